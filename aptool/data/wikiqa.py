"""Importer of WikiQA (Yang, Yih and Meek, 2015): sentences of a Wikipedia page that may answer a question.

Two layouts are read: Microsoft's ``WikiQA-train.tsv``, whose quotation marks are part of the text, and the
Parquet files of ``microsoft/wiki_qa``, which have no sentence ids.
"""

from collections.abc import Iterator, Mapping

from aptool.data.collection import Collection
from aptool.data.importing import SplitPools, write_collection
from aptool.data.table import pairs_of, pools_of
from aptool.data.table_files import read_table, table_files
from aptool.data.writing import LabelledPool
from aptool.paths import PathOrUrl

SOURCE = "WikiQA (Microsoft Research), www.microsoft.com/download/details.aspx?id=52419"
# The names of the splits in a folder.
SPLITS = {split: (f"WikiQA-{split}.tsv",) for split in ("train", "dev", "test")}
_TSV = {
    "question_id": "QuestionID",
    "question": "Question",
    "answer_id": "SentenceID",
    "answer": "Sentence",
    "relevance": "Label",
}
_PARQUET = {"question_id": "question_id", "question": "question", "answer": "answer", "relevance": "label"}


def import_wikiqa(
    out: PathOrUrl, splits: Mapping[str, str], *, questions: str = "all", overwrite: bool = False
) -> Collection:
    """Import WikiQA, each split from a TSV or Parquet file, a glob, or a folder.

    There are 2,118 train, 296 dev and 633 test questions; the paper's are ``answerable`` (873, 126, 243).
    """
    sources = {split: SplitPools(path, _read_pools(path)) for split, path in splits.items()}
    write_collection(
        out, name="wikiqa", source=SOURCE, splits=sources, questions=questions, overwrite=overwrite
    )
    return Collection(out)


def _read_pools(path: str) -> Iterator[LabelledPool]:
    files = table_files(path)
    names = _PARQUET if files[0].endswith(".parquet") else _TSV
    pairs = pairs_of([read_table(file, names.values()) for file in files], names)
    yield from pools_of(path, pairs, names, graded=False)
