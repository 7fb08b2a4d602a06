"""Data in an object store."""

import io

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from imported import counts_of
from s3 import put_bytes

from aptool.data.collection import Collection
from aptool.data.insuranceqa import import_insuranceqa
from aptool.data.table import import_table
from aptool.data.trecqa import import_trecqa
from aptool.data.wikiqa import import_wikiqa

FILES = {
    "w/a.tsv": b"QuestionID\tQuestion\tDocumentID\tDocumentTitle\tSentenceID\tSentence\tLabel\n"
    b"Q1\twhy?\tD1\tWhy\tD1-0\tso\t1\nQ1\twhy?\tD1\tWhy\tD1-1\tno\t0\n",
    "t/id.txt": b"7\n7\n",
    "t/a.toks": b"who ?\nwho ?\n",
    "t/b.toks": b"me .\nyou .\n",
    "t/sim.txt": b"1\n0\n",
    "V1/vocabulary": b"idx_1\twhat\n",
    "V1/answers.label.token_idx": b"1\tidx_1\n2\tidx_1\n",
    "V1/question.dev.label.token_idx.pool": b"1\tidx_1\t1 2\n",
    "mine/a.jsonl": b'{"question": "who?", "answer": "me", "label": 1}\n'
    b'{"question": "who?", "answer": "you", "label": 0}\n',
}


def parquet():
    buffer = io.BytesIO()
    columns = {"question_id": ["Q1"] * 2, "question": ["why?"] * 2, "answer": ["so", "no"], "label": [1, 0]}
    pq.write_table(pa.table(columns), buffer)
    return buffer.getvalue()


@pytest.fixture
def root(bucket):
    for name, content in {**FILES, "w/train.parquet": parquet()}.items():
        put_bytes(f"{bucket}/{name}", content)
    return bucket


ONE_QUESTION = (1, 2, 1)


def test_every_format(root, tmp_path):
    assert counts_of(import_wikiqa(tmp_path / "tsv", {"train": f"{root}/w/a.tsv"})) == {"train": ONE_QUESTION}
    assert counts_of(import_wikiqa(tmp_path / "parquet", {"train": f"{root}/w/train.parquet"})) == {
        "train": ONE_QUESTION
    }
    assert counts_of(import_trecqa(tmp_path / "trecqa", {"dev": f"{root}/t/"})) == {"dev": ONE_QUESTION}
    assert counts_of(import_insuranceqa(tmp_path / "insuranceqa", f"{root}/V1")) == {"dev": ONE_QUESTION}
    import_table(tmp_path / "table", {"test": f"{root}/mine/a.jsonl"})
    assert counts_of(Collection(tmp_path / "table")) == {"test": ONE_QUESTION}
