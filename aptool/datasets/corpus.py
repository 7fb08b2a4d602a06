"""Corpora, queries and judgements of retrieval collections. A corpus is streamed, never held in memory.

A corpus is a file, folder or glob of ``.jsonl``, ``.tsv`` or ``.parquet`` files, plain or gzip:

- JSON lines or arrays of BEIR (``_id``, ``title``, ``text``), Pyserini (``id``, ``contents``), or ``id`` and
  ``text``;
- lines of ``id<TAB>text``, as in MS MARCO (``id<TAB>url<TAB>title<TAB>body`` for its documents);
- Parquet with one of these sets of columns.

The text of a document is its title, a space and its body, as in BEIR's own code.
"""

from collections.abc import Callable, Collection, Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import polars as pl

from aptool.datasets.pairs import CONFLICTS_HINT, Conflicts, check_text, id_text, parse_label
from aptool.datasets.text_files import read_lines, read_objects, read_rows
from aptool.errors import InputError
from aptool.formats.ids import check_answer_id, check_question_id
from aptool.formats.inputs import expand, readable, unpacked_name
from aptool.formats.location import location
from aptool.formats.parquet import open_parquet

# Column names of ids and texts, in order of precedence.
ID_NAMES = ("_id", "id", "docid", "doc_id", "pid", "qid", "query_id", "query-id", "corpus-id", "corpus_id")
TEXT_NAMES = ("text", "contents", "passage", "body", "query", "question")

SUFFIXES = (".jsonl", ".json", ".tsv", ".parquet")
QRELS_SCHEMA = {"question_id": pl.String, "answer_id": pl.String, "relevance": pl.Int64}


class Entry(NamedTuple):
    """A document or a query, with the file and the position that messages name."""

    file: str
    position: str
    id: str
    text: str


class Corpus(NamedTuple):
    """Documents that can be streamed more than once; their texts may be empty."""

    name: str  # in messages
    entries: Callable[[], Iterator[Entry]]


def file_corpus(*paths: str | Path) -> Corpus:
    """A corpus in files, folders or globs."""
    more = f" and {len(paths) - 1} more" if len(paths) > 1 else ""
    return Corpus(f"{paths[0]}{more}", partial(_documents, paths))


def _documents(paths: Iterable[str | Path]) -> Iterator[Entry]:
    for entry in _entries(paths):
        check_answer_id(entry.file, entry.position, entry.id, "id")
        check_text(entry.file, entry.position, "text", entry.text, empty=True)
        yield entry


def read_queries(*paths: str | Path) -> dict[str, str]:
    """Read query texts by id. An id may be repeated with the same text."""
    queries: dict[str, str] = {}
    for entry in _entries(paths):
        check_question_id(entry.file, entry.position, entry.id, "id")
        check_text(entry.file, entry.position, "text", entry.text)
        if queries.setdefault(entry.id, entry.text) != entry.text:
            expected = f"the text that query {entry.id!r} had before"
            raise InputError(entry.file, position=entry.position, value=entry.text, expected=expected)
    return queries


def corpus_files(path: str | Path) -> list[str]:
    """List the files of a corpus, sorted by name."""
    if location(path).is_dir():
        names = sorted(file.name for file in location(path).iterdir())
        files = [str(location(path) / name) for name in names if unpacked_name(name).endswith(SUFFIXES)]
        if not files:
            expected = f"files that end in one of {', '.join(SUFFIXES)}"
            raise InputError(path, problem="a folder without a corpus", expected=expected)
        return files
    with readable(path):
        return expand([str(path)], ".jsonl")


def read_fields(path: str, columns: Collection[str] | None = None) -> Iterator[tuple[str, dict[str, Any]]]:
    """Read the rows of a Parquet file, only the given columns, or of a JSON file, each with its position."""
    if path.endswith(".parquet"):
        with open_parquet(path) as reader:
            names = [name for name in reader.schema.names if columns is None or name in columns]
            for number, fields in enumerate(reader.rows(names)):
                yield f"row {number}", fields
    else:
        yield from read_objects(path)


def _entries(paths: Iterable[str | Path]) -> Iterator[Entry]:
    for file in (file for path in paths for file in corpus_files(path)):
        name = unpacked_name(file)
        if name.endswith(".tsv"):
            yield from _tsv_entries(file)
        elif name.endswith((".jsonl", ".json", ".parquet")):
            for position, fields in read_fields(file, {*ID_NAMES, "title", *TEXT_NAMES}):
                yield _entry(file, position, fields)
        else:
            expected = f"a name that ends in one of {', '.join(SUFFIXES)}"
            raise InputError(file, problem="unknown kind of file", expected=expected)


def _tsv_entries(path: str) -> Iterator[Entry]:
    for number, line in read_lines(path):
        if not line.strip():
            continue
        fields, position = line.split("\t"), f"line {number}"
        if len(fields) == 4:  # MS MARCO's documents: id, url, title, body
            yield Entry(path, position, fields[0], f"{fields[2]} {fields[3]}".strip())
        elif len(fields) == 2:
            yield Entry(path, position, fields[0], fields[1])
        else:
            expected = "id<TAB>text, or id<TAB>url<TAB>title<TAB>body"
            raise InputError(path, position=position, problem=f"{len(fields)} fields", expected=expected)


def _entry(path: str, position: str, fields: dict[str, Any]) -> Entry:
    name = _first_of(path, position, fields, ID_NAMES)
    title = fields.get("title")
    text = _first_of(path, position, fields, TEXT_NAMES)
    for column, value in (("title", title or ""), ("text", text)):
        if not isinstance(value, str):
            raise InputError(path, position=position, column=column, value=value, expected="a text")
    return Entry(
        path, position, id_text(path, position, "id", name), f"{title} {text}".strip() if title else text
    )


def _first_of(path: str, position: str, fields: dict[str, Any], names: tuple[str, ...]) -> Any:
    for name in names:
        if name in fields:
            return fields[name]
    columns = ", ".join(map(repr, fields)) or "none"
    expected = f"one called {' or '.join(names[:4])}"
    raise InputError(path, position=position, problem=f"columns {columns}", expected=expected)


class Judgement(NamedTuple):
    """A relevance judgement, with the position that messages name."""

    position: str
    question_id: str
    answer_id: str
    relevance: int


def judgement_frame(path: str | Path, judgements: Iterable[Judgement], conflicts: Conflicts) -> pl.DataFrame:
    """Collect at least one judgement as question_id, answer_id, relevance, each pair once."""
    labels: dict[tuple[str, str], int] = {}
    for position, question, answer, relevance in judgements:
        before = labels.setdefault((question, answer), relevance)
        if before == relevance:
            continue
        if conflicts.resolution == "error":
            expected = f"the score {before} that this pair had before ({CONFLICTS_HINT})"
            raise InputError(path, position=position, column="score", value=relevance, expected=expected)
        labels[question, answer] = conflicts.resolve(question, answer, before, relevance)
    if not labels:
        raise InputError(path, problem="no judgement", expected="query-id<TAB>corpus-id<TAB>score")
    return pl.DataFrame([(*pair, label) for pair, label in labels.items()], schema=QRELS_SCHEMA, orient="row")


def read_judgements(path: str | Path) -> Iterator[Judgement]:
    """Read ``query-id<TAB>corpus-id<TAB>score``, with or without a header line, or TREC's qrels with tabs."""
    for number, line in read_rows(path):
        fields = line.split("\t")
        if number == 1 and fields[-1].strip().lower() in ("score", "relevance", "label"):
            continue
        if len(fields) == 4:  # TREC's: query, iteration, document, relevance
            fields = [fields[0], fields[2], fields[3]]
        position = f"line {number}"
        if len(fields) != 3:
            expected = "query-id<TAB>corpus-id<TAB>score"
            raise InputError(path, position=position, problem=f"{len(fields)} fields", expected=expected)
        query, document, label = fields
        for column, name in (("query-id", query), ("corpus-id", document)):
            if not name.strip():
                raise InputError(path, position=position, column=column, value=name, expected="an id")
        yield Judgement(position, query, document, parse_label(path, position, "score", label, graded=True))
