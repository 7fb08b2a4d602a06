"""WikiQA: the published counts, and small files in both layouts."""

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from imported import DATA, candidates_of, counts_of, needs_data

from aptool.data.published import import_wikiqa
from aptool.data.trec import read_qrels
from aptool.errors import InputError

HEADER = "QuestionID\tQuestion\tDocumentID\tDocumentTitle\tSentenceID\tSentence\tLabel"
ROWS = [
    "Q1\thow are caves formed?\tD1\tCave\tD1-0\tA cave .\t0",
    'Q1\thow are caves formed?\tD1\tCave\tD1-1\t"Water" forms them .\t1',
    'Q2\twhat is "lime"?\tD2\tLime\tD2-0\t"Lime is an old word\t0',
    'Q2\twhat is "lime"?\tD2\tLime\tD2-1\tfor glue" .\t0',
]


def write_tsv(path, rows, header=HEADER):
    path.write_text("\n".join([header, *rows]) + "\n", encoding="utf-8", newline="\n")
    return str(path)


def texts_of(collection, split):
    return [text for pool in candidates_of(collection, split).values() for text in pool.values()]


@needs_data
def test_published_counts(tmp_path):
    """Questions and pairs as in the README of the data set; `test_stats` has those of the paper."""
    files = {split: f"{DATA}/wikiqa/WikiQA-{split}.tsv" for split in ("train", "dev")}
    collection = import_wikiqa(tmp_path / "wikiqa", files)
    assert counts_of(collection) == {"train": (2118, 20360, 1040), "dev": (296, 2733, 140)}


def test_hub_parquet_has_the_same_pools_under_derived_ids(tmp_path):
    """The files of a folder are one split."""
    columns = ["question_id", "question", "document_title", "answer", "label"]
    cells = [row.split("\t") for row in ROWS]
    rows = [(r[0], r[1], r[3], r[5], int(r[6])) for r in cells]
    (tmp_path / "train").mkdir()
    for part in range(2):
        values = zip(*rows[3 * part : 3 * part + 3], strict=True)
        table = pa.table(dict(zip(columns, values, strict=True)))
        pq.write_table(table, tmp_path / "train" / f"{part}.parquet")
    from_hub = import_wikiqa(tmp_path / "hub", {"train": str(tmp_path / "train")})
    from_tsv = import_wikiqa(tmp_path / "tsv", {"train": write_tsv(tmp_path / "a.tsv", ROWS)})
    assert from_hub.manifest["splits"] == from_tsv.manifest["splits"]
    assert texts_of(from_hub, "train") == texts_of(from_tsv, "train")
    qrels = read_qrels(from_hub.qrels_file("train")).rows()
    assert qrels == [("Q1", "Q1-0", 0), ("Q1", "Q1-1", 1), ("Q2", "Q2-0", 0), ("Q2", "Q2-1", 0)]


@pytest.mark.parametrize(
    ("header", "rows", "message"),
    [
        (HEADER, [ROWS[0], ROWS[1][:-1] + "2"], "line 3: column 'Label': 2: expected 0 or 1"),
        (HEADER.replace("Sentence\t", "Sentences\t"), ROWS, "column 'Sentence': not found among"),
    ],
)
def test_errors_name_the_line(tmp_path, header, rows, message):
    path = write_tsv(tmp_path / "a.tsv", rows, header)
    with pytest.raises(InputError) as error:
        import_wikiqa(tmp_path / "out", {"train": path})
    assert str(error.value).startswith(path)
    assert message in str(error.value)
    assert not (tmp_path / "out").exists()
