"""Importer of WikiQA (Yang, Yih and Meek, 2015): sentences of a Wikipedia page that may answer a question.

Two layouts are read: Microsoft's ``WikiQA-train.tsv``, whose quotation marks are part of the text, and the
Parquet files of ``microsoft/wiki_qa``, which have no sentence ids.
"""

from collections.abc import Iterator, Mapping

from aptool.data.collection import Collection
from aptool.data.importing import SplitPools, write_collection
from aptool.data.pairs import Columns, Pair, pools_of
from aptool.data.parquet import open_parquet
from aptool.data.table_files import column_value, read_delimited
from aptool.data.values import id_text, parse_label
from aptool.data.writing import LabelledPool
from aptool.errors import InputError
from aptool.files import expand, open_unpacked
from aptool.paths import PathOrUrl

SOURCE = "WikiQA (Microsoft Research), www.microsoft.com/download/details.aspx?id=52419"
TSV = Columns("QuestionID", "Question", "SentenceID", "Sentence", "Label")
# The names of the splits in a folder.
SPLITS = {split: (f"WikiQA-{split}.tsv",) for split in ("train", "dev", "test")}
_PARQUET_MAGIC = b"PAR1"


def import_wikiqa(
    out: PathOrUrl, splits: Mapping[str, str], *, questions: str = "all", overwrite: bool = False
) -> Collection:
    """Import WikiQA, each split from a TSV or Parquet file, a glob of Parquet files, or a folder of them.

    There are 2,118 train, 296 dev and 633 test questions; the paper's are ``answerable`` (873, 126, 243).
    """
    sources = {split: SplitPools(path, _read_pools(path)) for split, path in splits.items()}
    write_collection(
        out, name="wikiqa", source=SOURCE, splits=sources, questions=questions, overwrite=overwrite
    )
    return Collection(out)


def _read_pools(path: str) -> Iterator[LabelledPool]:
    files = expand([path], ".parquet")
    if len(files) == 1 and not _is_parquet(files[0]):
        yield from pools_of(files[0], _tsv_pairs(files[0]), TSV)
    else:
        pairs = (pair for file in files for pair in _parquet_pairs(file))
        yield from pools_of(path, pairs, Columns())


def _is_parquet(path: str) -> bool:
    with open_unpacked(path) as file:
        return file.read(len(_PARQUET_MAGIC)) == _PARQUET_MAGIC


def _tsv_pairs(path: str) -> Iterator[Pair]:
    for position, row in read_delimited(path, "\t"):
        *texts, label = (column_value(path, position, row, column) for column in TSV)
        question_id, question, answer_id, answer = texts
        relevance = parse_label(path, position, TSV.label, label)
        yield Pair(position, question_id, question, answer_id, answer, relevance)


def _parquet_pairs(path: str) -> Iterator[Pair]:
    columns = ["question_id", "question", "answer", "label"]
    with open_parquet(path) as reader:
        names = reader.schema.names
        for number, row in enumerate(reader.rows([name for name in names if name in columns])):
            position = f"row {number}"
            question_id, question, answer, label = (
                column_value(path, position, row, column) for column in columns
            )
            for column, value in (("question", question), ("answer", answer)):
                if not isinstance(value, str):
                    raise InputError(path, position=position, column=column, value=value, expected="a text")
            question_id = id_text(path, position, "question_id", question_id)
            relevance = parse_label(path, position, "label", label)
            yield Pair(position, question_id, question, None, answer, relevance)
