"""Corpora and queries of retrieval collections: streamed, so that memory does not grow with the corpus.

A corpus is a file, a folder of files or a glob of ``.jsonl``, ``.tsv`` or ``.parquet`` files, plain or gzip:

- JSON lines, or a JSON array, of BEIR (``_id``, ``title``, ``text``), Pyserini (``id``, ``contents``), or of
  ``id``, ``text``;
- lines of ``id<TAB>text``, as MS MARCO has them (``id<TAB>url<TAB>title<TAB>body`` for its documents);
- Parquet with one of these sets of columns.

A title stands before the text, separated by one space, as in BEIR's own code.
"""

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import polars as pl

from aptool.datasets.json_rows import read_objects, unit_of
from aptool.datasets.lines import read_lines, read_rows, readable
from aptool.datasets.pairs import check_text, parse_label
from aptool.datasets.policies import CONFLICTS_HINT, Conflicts
from aptool.errors import InputError
from aptool.formats import storage
from aptool.formats.ids import check_answer_id, check_question_id
from aptool.formats.location import location
from aptool.formats.parquet import open_parquet
from aptool.formats.urls import is_object_url, is_remote

# Names of the id and of the text, in the order in which they are looked for.
ID_NAMES = ("_id", "id", "docid", "doc_id", "pid", "qid", "query_id", "query-id", "corpus-id", "corpus_id")
TEXT_NAMES = ("text", "contents", "passage", "body", "query", "question")

SUFFIXES = (".jsonl", ".jsonl.gz", ".json", ".json.gz", ".tsv", ".tsv.gz", ".parquet")


class Entry(NamedTuple):
    """A document or a query."""

    place: str  # where it stands in its file, for messages
    id: str
    text: str


class Corpus(Protocol):
    """Documents that can be streamed more than once."""

    def __str__(self) -> str:
        """What messages call it."""

    def entries(self) -> Iterator[tuple[str, Entry]]:
        """Every document with the file that it stands in."""


class FileCorpus:
    """A corpus in one file, folder or glob, or in several."""

    def __init__(self, *paths: str | Path) -> None:
        self._paths = paths

    def __str__(self) -> str:
        return str(self._paths[0]) + (f" and {len(self._paths) - 1} more" if len(self._paths) > 1 else "")

    def entries(self) -> Iterator[tuple[str, Entry]]:
        """See ``Corpus.entries``; a document may be empty."""
        return (entry for path in self._paths for entry in read_entries(path))


def corpus_files(path: str | Path) -> list[str]:
    """The files of a corpus, in the order of their names.

    Raises:
        InputError: there is none.
    """
    files: list[str] = []
    if (not is_remote(path) or is_object_url(path)) and location(path).is_dir():
        names = sorted(file.name for file in location(path).iterdir())
        files += [str(location(path) / name) for name in names if name.endswith(SUFFIXES)]
        if not files:
            expected = f"files that end in one of {', '.join(SUFFIXES)}"
            raise InputError(path, problem="a folder without a corpus", expected=expected)
        return files
    with readable(path):
        return storage.expand([str(path)], ".jsonl")


def read_entries(path: str | Path, *, queries: bool = False) -> Iterator[tuple[str, Entry]]:
    """The documents of a corpus, or queries, each with the file that it stands in.

    Args:
        path: a file, a folder or a glob.
        queries: whether the entries are queries, which need a text; a document may be empty.

    Raises:
        InputError: a line or row is not one; it names the file and the line or row.
    """
    for file in corpus_files(path):
        for entry in _entries_of(file):
            check = check_question_id if queries else check_answer_id
            check(file, entry.place, entry.id, "id")
            check_text(file, entry.place, "text", entry.text, empty=not queries)
            yield file, entry


def read_queries(*paths: str | Path) -> dict[str, str]:
    """Query texts by id, out of one file or several.

    Raises:
        InputError: a line or row is not a query, or an id stands there twice with different texts.
    """
    queries: dict[str, str] = {}
    entries = (entry for path in paths for entry in read_entries(path, queries=True))
    for file, entry in entries:
        known = queries.setdefault(entry.id, entry.text)
        if known != entry.text:
            expected = f"the text that query {entry.id!r} had before"
            raise InputError(file, place=entry.place, value=entry.text, expected=expected)
    return queries


def _entries_of(path: str) -> Iterator[Entry]:
    name = path.removesuffix(".gz")
    if name.endswith(".parquet"):
        return _parquet_entries(path)
    if name.endswith((".jsonl", ".json")):
        return _json_entries(path)
    if name.endswith(".tsv"):
        return _tsv_entries(path)
    raise InputError(
        path, problem="unknown kind of file", expected=f"a name that ends in one of {', '.join(SUFFIXES)}"
    )


def _json_entries(path: str) -> Iterator[Entry]:
    unit = unit_of(path)
    for number, fields in read_objects(path):
        yield _entry(path, f"{unit} {number}", fields)


def _tsv_entries(path: str) -> Iterator[Entry]:
    for number, line in read_lines(path):
        if not line.strip():
            continue
        fields = line.split("\t")
        if len(fields) == 4:  # MS MARCO's documents: id, url, title, body
            yield Entry(f"line {number}", fields[0], f"{fields[2]} {fields[3]}".strip())
        elif len(fields) == 2:
            yield Entry(f"line {number}", fields[0], fields[1])
        else:
            expected = "id<TAB>text, or id<TAB>url<TAB>title<TAB>body"
            raise InputError(path, place=f"line {number}", problem=f"{len(fields)} fields", expected=expected)


def _parquet_entries(path: str) -> Iterator[Entry]:
    known = {*ID_NAMES, "title", *TEXT_NAMES}
    with open_parquet(path) as reader:
        columns = [name for name in reader.schema.names if name in known]
        for number, fields in enumerate(reader.rows(columns)):
            yield _entry(path, f"row {number}", fields)


def _entry(path: str, place: str, fields: dict[str, Any]) -> Entry:
    name = _named(path, place, fields, ID_NAMES)
    title = fields.get("title")
    text = _named(path, place, fields, TEXT_NAMES)
    if isinstance(name, bool) or not isinstance(name, str | int):
        raise InputError(path, place=place, column="id", value=name, expected="a text or a whole number")
    for column, value in (("title", title or ""), ("text", text)):
        if not isinstance(value, str):
            raise InputError(path, place=place, column=column, value=value, expected="a text")
    return Entry(place, str(name), f"{title} {text}".strip() if title else text)


def _named(path: str, place: str, fields: dict[str, Any], names: tuple[str, ...]) -> Any:
    for name in names:
        if name in fields:
            return fields[name]
    have = ", ".join(map(repr, fields)) or "none"
    raise InputError(
        path, place=place, problem=f"columns {have}", expected=f"one called {' or '.join(names[:4])}"
    )


QRELS_SCHEMA = {"question_id": pl.String, "answer_id": pl.String, "relevance": pl.Int64}


class Judgement(NamedTuple):
    """A judgement, and where it stands in its file or data set."""

    place: str
    question_id: str
    answer_id: str
    relevance: int


def judgement_frame(
    path: str | Path, rows: Iterable[Judgement], conflicts: Conflicts | None = None
) -> pl.DataFrame:
    """The judgements as question_id, answer_id, relevance, each pair once.

    Args:
        path: where they come from, for messages.
        rows: the judgements.
        conflicts: what becomes of a pair with different labels; None refuses it.

    Raises:
        InputError: there is none, or two contradict each other.
    """
    found: dict[tuple[str, str], int] = {}
    resolved = conflicts if conflicts is not None else Conflicts()
    for place, question, answer, relevance in rows:
        before = found.setdefault((question, answer), relevance)
        if before == relevance:
            continue
        if resolved.resolution == "error":
            expected = f"the score {before} that this pair had before ({CONFLICTS_HINT})"
            raise InputError(path, place=place, column="score", value=relevance, expected=expected)
        found[question, answer] = resolved.resolve(question, answer, before, relevance)
    if not found:
        raise InputError(path, problem="no judgement", expected="query-id<TAB>corpus-id<TAB>score")
    return pl.DataFrame([(*pair, value) for pair, value in found.items()], schema=QRELS_SCHEMA, orient="row")


def read_qrels_tsv(path: str | Path, conflicts: Conflicts | None = None) -> pl.DataFrame:
    """Judgements as ``query-id<TAB>corpus-id<TAB>score``, with or without the header line.

    Raises:
        InputError: a line is not a judgement, or as `judgement_frame`.
    """
    return judgement_frame(path, qrels_rows(path), conflicts)


def qrels_rows(path: str | Path) -> Iterator[Judgement]:
    """The lines of such a file. Raises like `read_qrels_tsv`."""
    for number, line in read_rows(path):
        fields = line.split("\t")
        if number == 1 and fields[-1].strip().lower() in ("score", "relevance", "label"):
            continue
        if len(fields) == 4:  # TREC's: query, iteration, document, relevance
            fields = [fields[0], fields[2], fields[3]]
        place = f"line {number}"
        if len(fields) != 3:
            expected = "query-id<TAB>corpus-id<TAB>score"
            raise InputError(path, place=place, problem=f"{len(fields)} fields", expected=expected)
        query, document, label = fields
        yield Judgement(place, query, document, parse_label(path, place, "score", label, graded=True))
