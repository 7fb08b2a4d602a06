"""Published data in an object store."""

from imported import counts_of
from s3 import put_bytes

from aptool.data.published import import_insuranceqa, import_trecqa, import_wikiqa

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
}


ONE_QUESTION = (1, 2, 1)


def test_published_data(bucket, tmp_path):
    for name, content in FILES.items():
        put_bytes(f"{bucket}/{name}", content)
    assert counts_of(import_wikiqa(tmp_path / "tsv", {"train": f"{bucket}/w/a.tsv"})) == {
        "train": ONE_QUESTION
    }
    assert counts_of(import_trecqa(tmp_path / "trecqa", {"dev": f"{bucket}/t/"})) == {"dev": ONE_QUESTION}
    assert counts_of(import_insuranceqa(tmp_path / "insuranceqa", f"{bucket}/V1")) == {"dev": ONE_QUESTION}
