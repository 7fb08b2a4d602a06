"""Importer of WikiQA (Yang, Yih and Meek, 2015): sentences of a Wikipedia page that may answer a question.

Two layouts are read: Microsoft's ``WikiQA-train.tsv``, whose quotation marks are part of the text, and the
Parquet files of ``hf://datasets/microsoft/wiki_qa``, which have no sentence ids.
"""

from collections.abc import Iterator, Mapping

from aptool.datasets.column_names import missing_column
from aptool.datasets.importing import SplitPools, write_collection
from aptool.datasets.lines import open_plain, readable
from aptool.datasets.pairs import Columns, Pair, parse_label, pools_of
from aptool.datasets.tabular import read_columns
from aptool.errors import InputError
from aptool.formats import storage
from aptool.formats.collection import CollectionFiles, LabelledPool
from aptool.formats.location import PathOrUrl
from aptool.formats.parquet import open_parquet

SOURCE = "WikiQA (Microsoft Research), www.microsoft.com/download/details.aspx?id=52419"
TSV = Columns("QuestionID", "Question", "SentenceID", "Sentence", "Label")
PARQUET = Columns("question_id", "question", "answer_id", "answer", "label")
_PARQUET_MAGIC = b"PAR1"


def import_wikiqa(out: PathOrUrl, splits: Mapping[str, str], *, questions: str = "all") -> CollectionFiles:
    """Import WikiQA.

    Args:
        out: the collection's folder.
        splits: split -> a TSV or Parquet file, a glob of Parquet files, or a folder of them.
        questions: ``all`` (2,118 train, 296 dev, 633 test) or, as in the paper,
            ``answerable`` (873, 126, 243).
    """
    sources = {split: SplitPools(path, _read_pools(path)) for split, path in splits.items()}
    return write_collection(out, name="wikiqa", source=SOURCE, splits=sources, questions=questions)


def _read_pools(path: str) -> Iterator[LabelledPool]:
    with readable(path):
        files = storage.expand([path], ".parquet")
    if len(files) == 1 and not _is_parquet(files[0]):
        yield from pools_of(files[0], _tsv_pairs(files[0]), TSV, empty="keep")
    else:
        pairs = (pair for file in files for pair in _parquet_pairs(file))
        yield from pools_of(path, pairs, PARQUET, empty="keep")


def _is_parquet(path: str) -> bool:
    with open_plain(path) as file, readable(path):
        return file.read(len(_PARQUET_MAGIC)) == _PARQUET_MAGIC


def _tsv_pairs(path: str) -> Iterator[Pair]:
    for number, (question_id, question, answer_id, answer, label) in read_columns(path, TSV, delimiter="\t"):
        place = f"line {number}"
        relevance = parse_label(path, place, TSV.label, label)
        yield Pair(place, question_id, question, answer_id, answer, relevance)


def _parquet_pairs(path: str) -> Iterator[Pair]:
    text_columns = [PARQUET.question_id, PARQUET.question, PARQUET.answer]
    columns = [*text_columns, PARQUET.label]
    with open_parquet(path) as reader:
        names = reader.schema.names
        for column in columns:
            if column not in names:
                raise missing_column(path, None, column, names)
        for number, row in enumerate(reader.rows(columns)):
            place = f"row {number}"
            for column in text_columns:
                if not isinstance(row[column], str):
                    raise InputError(path, place=place, column=column, value=row[column], expected="a text")
            question_id, question, answer, label = (row[column] for column in columns)
            relevance = parse_label(path, place, PARQUET.label, str(label))
            yield Pair(place, question_id, question, None, answer, relevance)
