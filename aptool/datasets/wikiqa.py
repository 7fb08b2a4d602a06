"""WikiQA (Yang, Yih and Meek, 2015): sentences of a Wikipedia page that may answer a question.

Two layouts are read: Microsoft's ``WikiQA-train.tsv``, whose quotation marks are part of the text, and the
Parquet files of ``hf://datasets/microsoft/wiki_qa``, which carry no sentence ids.
"""

from collections.abc import Iterator, Mapping

from aptool.datasets.importing import SplitPools, write_collection
from aptool.datasets.lines import open_plain, read_rows, readable
from aptool.datasets.pairs import Columns, Pair, parse_label, pools_of
from aptool.datasets.tabular import find_columns, row_fields
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
    """Imports WikiQA.

    Args:
        out: the collection's folder.
        splits: split -> a TSV or Parquet file, a glob of Parquet files, or a folder of them.
        questions: ``all`` (2,118 train, 296 dev, 633 test) or ``answerable`` (873, 126, 243), as the
            paper has it.

    Raises:
        InputError: a file is not WikiQA; the message names the line or row.
    """
    sources = {split: SplitPools(path, read_pools(path)) for split, path in splits.items()}
    return write_collection(out, name="wikiqa", source=SOURCE, splits=sources, questions=questions)


def read_pools(path: str) -> Iterator[LabelledPool]:
    """The pools of one split, in the order of the file."""
    with readable(path):
        files = storage.expand([path], ".parquet")
    if len(files) == 1 and not _is_parquet(files[0]):
        yield from pools_of(files[0], _tsv_pairs(files[0]), TSV, empty="keep")
    else:
        pairs = (pair for file in files for pair in _parquet_pairs(file))
        yield from pools_of(path, pairs, PARQUET, unit="row", empty="keep")


def _tsv_pairs(path: str) -> Iterator[Pair]:
    rows = read_rows(path)
    names, columns = find_columns(path, rows, TSV, "\t")
    for number, line in rows:
        fields = row_fields(path, number, line.split("\t"), names)
        question_id, question, answer_id, answer, label = (fields[column] for column in columns)
        relevance = parse_label(path, f"line {number}", TSV.label, label)
        yield Pair(number, question_id, question, answer_id, answer, relevance)


def _is_parquet(path: str) -> bool:
    with open_plain(path) as file, readable(path):
        return file.read(len(_PARQUET_MAGIC)) == _PARQUET_MAGIC


def _parquet_pairs(path: str) -> Iterator[Pair]:
    """Rows are numbered from 0 over the whole file."""
    columns = [PARQUET.question_id, PARQUET.question, PARQUET.answer, PARQUET.label]
    with open_parquet(path) as reader:
        missing = [name for name in columns if name not in reader.schema.names]
        if missing:
            have = ", ".join(reader.schema.names)
            raise InputError(path, column=missing[0], expected=f"such a column; the file has {have}")
        for number, values in enumerate(reader.rows(columns)):
            yield _parquet_pair(path, number, *(values[name] for name in columns))


def _parquet_pair(path: str, row: int, *values: object) -> Pair:
    named = zip((PARQUET.question_id, PARQUET.question, PARQUET.answer), values, strict=False)
    for column, value in named:
        if not isinstance(value, str):
            raise InputError(path, place=f"row {row}", column=column, value=value, expected="a text")
    question_id, question, answer, label = values
    relevance = parse_label(path, f"row {row}", PARQUET.label, str(label))
    return Pair(row, str(question_id), str(question), None, str(answer), relevance)
