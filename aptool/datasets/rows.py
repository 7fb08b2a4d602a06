"""Importer of a user's own data: tables, JSON, Parquet and rows in memory.

A row is a pair of a question and a candidate, or a question with a list of candidates. Without ids, a
question is identified by its text, and a candidate by its text within the question.
"""

import logging
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict
from functools import partial
from typing import Any, Literal, TypeAlias

from aptool.datasets.candidates import add_candidates
from aptool.datasets.folds import divide
from aptool.datasets.import_options import (
    ADD_CANDIDATES_OPTION,
    ColumnNames,
    ImportPolicies,
    Labels,
    RawPair,
    SplitPolicies,
)
from aptool.datasets.importing import SplitPools, write_collection
from aptool.datasets.pairs import SPELLINGS_JOINED, Pair, comparable, label_text, pools_of, strip_html
from aptool.datasets.row_reader import RowReader, Rows
from aptool.datasets.tabular import read_columns
from aptool.datasets.workbook import SUFFIXES as WORKBOOKS
from aptool.errors import InputError
from aptool.formats.collection import CollectionFiles
from aptool.formats.inputs import unpacked_name
from aptool.formats.location import PathOrUrl
from aptool.version import check_installed

logger = logging.getLogger(__name__)

Kind: TypeAlias = Literal["tsv", "csv", "jsonl", "parquet"]
PairReader: TypeAlias = Callable[[SplitPolicies], Iterator[RawPair]]

_SUFFIXES: dict[str, Kind] = {
    ".csv": "csv",
    ".tsv": "tsv",
    ".txt": "tsv",
    ".jsonl": "jsonl",
    ".json": "jsonl",
    ".parquet": "parquet",
    **dict.fromkeys(WORKBOOKS, "csv"),
}
NO_POLICIES = ImportPolicies()


def import_rows(
    out: PathOrUrl,
    splits: Mapping[str, str | Rows],
    names: ColumnNames,
    policies: ImportPolicies = NO_POLICIES,
    *,
    name: str,
    kind: Kind | None = None,
) -> CollectionFiles:
    """Import rows of pairs, or of questions with their candidates, from files or from rows in memory.

    The kinds of files are ``tsv`` (delimited text, or an Excel workbook), ``csv`` (the same, by default with
    commas), ``jsonl`` (JSON Lines, an array or a document) and ``parquet``; None: by the files' names.
    """
    sources = {}
    for split, content in splits.items():
        path = content if isinstance(content, str) else f"rows of {split!r}"
        sources[split] = path, partial(_read_split, path, content, names, kind)
    files = [content.rsplit("/", 1)[-1] for content in splits.values() if isinstance(content, str)]
    source = f"imported from {', '.join(files) or 'rows in memory'}"
    return write_rows(out, sources, names, policies, name=name, source=source)


def write_rows(
    out: PathOrUrl,
    sources: Mapping[str, tuple[str, PairReader]],
    names: ColumnNames,
    policies: ImportPolicies,
    *,
    name: str,
    source: str,
    details: Mapping[str, Any] | None = None,
) -> CollectionFiles:
    """Group the pairs of each split into pools, and write them as a collection; see `import_rows`.

    ``sources`` maps a split to the path that messages name and the reader of its pairs.
    """
    if policies.shares and len(sources) == 1:
        sources = {"table": next(iter(sources.values()))}  # in ids of questions, which no split names
    policies.check(list(sources))
    labels = Labels(policies.relevant)
    splits = {}
    for split, (path, read) in sources.items():
        split_policies = SplitPolicies(split, policies)
        splits[split] = _split_pools(path, read(split_policies), names, split_policies, labels)
    if policies.shares:
        splits = divide(splits["table"], policies.shares)
    added = policies.added_answers
    if added is not None:
        has_ids = names.answer_id is not None
        splits = {
            split: content._replace(
                pools=add_candidates(content, added, policies.seed, has_answer_ids=has_ids)
            )
            for split, content in splits.items()
        }
    layout = {key: value for key, value in asdict(names).items() if value is not None}
    details = {**(details or {}), "layout": layout}
    if policies.relevant:
        details["relevant_labels"] = list(policies.relevant)
    for option in ("add_candidates", "split_ratio", "strip_html"):
        if value := getattr(policies, option):
            details[option] = value
    if added is not None and added.is_random:
        details["seed"] = policies.seed
    written = write_collection(
        out,
        name=name,
        source=source,
        splits=splits,
        questions=policies.questions,
        details=details,
        check=labels.check_use,
    )
    for split, counts in written.manifest["splits"].items():
        if added is None and counts["candidates"] < 2 * counts["questions"]:
            option = f"{ADD_CANDIDATES_OPTION} all"
            logger.warning(f"{split}: {option} makes the answers of other questions candidates as well")
    return written


def _split_pools(
    path: str, rows: Iterator[RawPair], names: ColumnNames, policies: SplitPolicies, labels: Labels
) -> SplitPools:
    if policies.labelled:
        pairs = labels.apply(path, names.label, rows, policies)
    else:
        pairs = (pair for pair, _ in rows)
    if policies.strip_html:
        pairs = map(_without_html, pairs)
    pools = pools_of(
        path,
        _with_ids(pairs, names, policies),
        names.columns,
        empty=policies.empty,
        conflicts=policies.conflicts,
    )
    return SplitPools(path, pools, policies.conflicts, policies.counts, policies.labelled)


def _without_html(pair: Pair) -> Pair:
    answer = strip_html(pair.answer) if pair.answer is not None else None
    return pair._replace(question=strip_html(pair.question), answer=answer)


def _with_ids(pairs: Iterator[Pair], names: ColumnNames, policies: SplitPolicies) -> Iterator[Pair]:
    """Number the texts by first appearance, where the file has no ids; an id fits no other split's qrels."""
    questions: dict[str, tuple[str, str]] = {}  # comparable text -> id, first text
    spellings: set[str] = set()
    answers: dict[str, dict[str, str]] = {}
    for pair in pairs:
        if names.question_id is None:
            first = f"{policies.split}-Q{len(questions)}", pair.question
            question_id, question = questions.setdefault(comparable(pair.question), first)
            if question != pair.question:
                spellings.add(pair.question)
                policies.counts[SPELLINGS_JOINED] = len(spellings)
            pair = pair._replace(question_id=question_id, question=question)
        if names.answer_id is None and pair.answer is not None:
            ids = answers.setdefault(pair.question_id, {})
            pair = pair._replace(answer_id=ids.setdefault(pair.answer, f"{pair.question_id}-{len(ids)}"))
        yield pair


def _read_split(
    path: str, content: str | Rows, names: ColumnNames, kind: Kind | None, policies: SplitPolicies
) -> Iterator[RawPair]:
    reader = RowReader(path, names, policies)
    if not isinstance(content, str):
        return reader.read_rows(content)
    plain = unpacked_name(path).lower()
    kind = kind or next((kind for suffix, kind in _SUFFIXES.items() if plain.endswith(suffix)), None)
    if kind is None:
        expected = f"a name that ends in {', '.join(_SUFFIXES)}"
        raise InputError(path, problem="unknown format", expected=expected)
    if plain.endswith(WORKBOOKS):
        check_installed("fastexcel", purpose=f"{path}: an Excel workbook", extra="excel")
    if kind == "jsonl":
        return reader.read_json()
    if kind == "parquet":
        return reader.read_rows(reader.parquet_rows())
    delimiter = "," if kind == "csv" and not plain.endswith(".tsv") else None
    return _read_table(path, names, policies, delimiter)


def _read_table(
    path: str, names: ColumnNames, policies: SplitPolicies, delimiter: str | None
) -> Iterator[RawPair]:
    for position, fields in read_columns(path, names, policies, delimiter):
        question_id, question, answer_id, answer, label = fields
        pair = Pair(position, question_id, question, answer_id, answer, 0)
        yield pair, label_text(label) if policies.implied_label is None else policies.implied_label
