"""Importer of a user's own data: tables, JSON, Parquet and rows in memory.

A row is a pair of a question and a candidate, or a question with a list of candidates. Without ids, a
question is identified by its text, and a candidate by its text within the question.
"""

import numbers
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any, Literal, TypeAlias

from aptool.datasets.column_names import (
    ColumnNames,
    missing_column,
    option_hint,
    quoted_names,
    with_ids,
)
from aptool.datasets.importing import SplitPools, write_collection
from aptool.datasets.json_files import list_fields, read_objects
from aptool.datasets.labels import Labels, RawPair, label_text
from aptool.datasets.lines import read_lines
from aptool.datasets.pairs import Pair, pools_of
from aptool.datasets.policies import EMPTY_HINT, FIELD_OPTION, ImportPolicies, SplitPolicies
from aptool.datasets.tabular import read_columns, refuse_xml
from aptool.errors import InputError
from aptool.formats.collection import CollectionFiles, LabelledPool
from aptool.formats.location import PathOrUrl
from aptool.formats.parquet import open_parquet

Kind: TypeAlias = Literal["tsv", "csv", "jsonl", "parquet"]
Rows: TypeAlias = Iterable[Mapping[str, Any]]

_SUFFIXES: dict[str, Kind] = {
    ".csv": "csv",
    ".tsv": "tsv",
    ".txt": "tsv",
    ".jsonl": "jsonl",
    ".json": "jsonl",
    ".parquet": "parquet",
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
    """Import rows of pairs, or of questions with their candidates.

    Args:
        out: the collection's folder.
        splits: split -> a file, or rows in memory.
        names: the columns or keys, and the format of a table.
        policies: how to handle rows that are not plain pairs.
        name: name of the collection.
        kind: format of the files: ``tsv`` (delimited text), ``csv`` (the same, by default with commas),
            ``jsonl`` (JSON Lines, an array or a document) or ``parquet``; None: by the files' names.
    """
    policies.check(list(splits))
    labels = Labels(policies.relevant)
    sources = {}
    for split, content in splits.items():
        split_policies = SplitPolicies(split, policies)
        path = content if isinstance(content, str) else f"rows of {split!r}"
        pairs = _pairs(path, content, names, split_policies, kind)
        sources[split] = split_pools(path, pairs, names, split_policies, labels)
    files = [content.rsplit("/", 1)[-1] for content in splits.values() if isinstance(content, str)]
    return write_collection(
        out,
        name=name,
        source=f"imported from {', '.join(files) or 'rows in memory'}",
        splits=sources,
        questions=policies.questions,
        details=manifest_details(names, policies),
        check=labels.check_use,
    )


def manifest_details(names: ColumnNames, policies: ImportPolicies) -> dict[str, Any]:
    """The layout and the relevant labels, for the manifest."""
    layout = {key: value for key, value in asdict(names).items() if value is not None}
    return {"layout": layout} | ({"relevant_labels": list(policies.relevant)} if policies.relevant else {})


def split_pools(
    path: str, rows: Iterator[RawPair], names: ColumnNames, policies: SplitPolicies, labels: Labels
) -> SplitPools:
    """Group the raw pairs of one split into pools."""
    if policies.labelled:
        pairs = labels.apply(path, names.label, rows, policies)
    else:
        pairs = (pair for pair, _ in rows)
    pools = pools_of(
        path,
        with_ids(pairs, names, policies.split),
        names.columns,
        empty=policies.empty,
        conflicts=policies.conflicts,
        counts=policies.counts,
    )
    if not policies.labelled:
        pools = _without_labels(pools)
    return SplitPools(path, pools, policies.conflicts, policies.counts, policies.labelled)


def _without_labels(pools: Iterator[LabelledPool]) -> Iterator[LabelledPool]:
    for pool in pools:
        yield pool._replace(relevance={})


def _pairs(
    path: str, content: str | Rows, names: ColumnNames, policies: SplitPolicies, kind: Kind | None
) -> Iterator[RawPair]:
    if not isinstance(content, str):
        return _pairs_of_rows(path, content, names, policies)
    plain = path.lower().removesuffix(".gz")
    kind = kind or next((kind for suffix, kind in _SUFFIXES.items() if plain.endswith(suffix)), None)
    if kind is None:
        expected = f"a name that ends in {', '.join(_SUFFIXES)}"
        raise InputError(path, problem="unknown format", expected=expected)
    if kind == "jsonl":
        return _json_pairs(path, names, policies)
    if kind == "parquet":
        return _pairs_of_rows(path, parquet_rows(path, names, policies), names, policies)
    if kind == "csv" and names.delimiter is None and not plain.endswith(".tsv"):
        names = replace(names, delimiter=",")
    return _table_pairs(path, names, policies)


def _table_pairs(path: str, names: ColumnNames, policies: SplitPolicies) -> Iterator[RawPair]:
    columns = names.columns
    if not policies.labelled:
        columns = columns._replace(label=names.question)  # the label is not read
    rows = read_columns(
        path,
        columns,
        delimiter=names.delimiter,
        quotes=names.quotes,
        header=names.header,
        split=policies.split,
    )
    for number, (question_id, question, answer_id, answer, label) in rows:
        pair = Pair(f"line {number}", question_id, question, answer_id, answer, 0)
        yield pair, label.strip() if policies.labelled else ""


def parquet_rows(path: str, names: ColumnNames, policies: SplitPolicies) -> Iterator[Mapping[str, Any]]:
    """Read the rows of a Parquet file, only the columns that are used."""
    used = {*names.columns, names.candidates, names.positions}
    with open_parquet(path) as reader:
        _check_columns(path, None, reader.schema.names, names, policies)
        yield from reader.rows([name for name in reader.schema.names if name in used])


def _pairs_of_rows(path: str, rows: Rows, names: ColumnNames, policies: SplitPolicies) -> Iterator[RawPair]:
    for number, row in enumerate(rows):
        yield from pairs_of_row(path, f"row {number}", row, names, policies)


def _json_pairs(path: str, names: ColumnNames, policies: SplitPolicies) -> Iterator[RawPair]:
    start = next((line for _, line in read_lines(path) if line.strip()), "{").lstrip()
    refuse_xml(path, start)
    if start[0] not in "{[":
        expected = "JSON objects; `aptool data import csv` reads tables"
        raise InputError(path, place="line 1", problem=f"no JSON: {start[:40]!r}", expected=expected)
    for place, row in read_objects(path, strict=True, field=names.field):
        if names.question not in row and names.candidates not in row and names.field is None:
            _check_field(path, place, row, names)
        yield from pairs_of_row(path, place, row, names, policies)


def _check_field(path: str, place: str, row: Mapping[str, Any], names: ColumnNames) -> None:
    """Refuse an object that has lists of objects instead of a question."""
    fields = list_fields(row, names.question)
    if fields:
        options = " or ".join(f"{FIELD_OPTION} {field}" for field in fields[:5])
        expected = f"a column {names.question!r}, or --question NAME, or a list of such objects ({options})"
        problem = f"no question among {quoted_names(list(row))}"
        raise InputError(path, place=place, problem=problem, expected=expected)


def _check_columns(
    path: str, place: str | None, columns: Sequence[str], names: ColumnNames, policies: SplitPolicies
) -> None:
    """Check that a row has the columns of a pair, or of a question with its candidates."""
    required = {"question-id": names.question_id, "question": names.question}
    if names.candidates not in columns:
        required |= {"answer-id": names.answer_id, "answer": names.pair_answer}
        required |= {"label": names.label} if policies.labelled else {}
    for part, column in required.items():
        if column is not None and column not in columns:
            hint = option_hint(part, policies.split)
            if part == "answer":
                hint += f", or a list {names.candidates!r}"
            raise missing_column(path, place, column, columns, hint)


def pairs_of_row(
    path: str, place: str, row: Mapping[str, Any], names: ColumnNames, policies: SplitPolicies
) -> Iterator[RawPair]:
    """Read the pairs of one row, with their labels; the label of an unlabelled split is empty."""
    _check_columns(path, place, list(row), names, policies)
    question = row[names.question]
    if not isinstance(question, str):
        raise InputError(path, place=place, column=names.question, value=question, expected="a text")
    pair = Pair(place, _id(path, place, names.question_id, row), question, "", None, 0)
    if names.candidates in row:
        yield from _candidates(path, pair, row, names, policies)
        return
    answer = _answer_text(path, place, names.pair_answer, row[names.pair_answer])
    answer_id = _id(path, place, names.answer_id, row)
    label = label_text(row[names.label]) if policies.labelled else ""
    yield pair._replace(answer_id=answer_id, answer=answer), label


def _candidates(
    path: str, pair: Pair, row: Mapping[str, Any], names: ColumnNames, policies: SplitPolicies
) -> Iterator[RawPair]:
    """Read the list of candidates of the question of ``pair``."""
    candidates = row[names.candidates]
    if not isinstance(candidates, list):
        expected = "a list of candidates"
        raise InputError(path, place=pair.place, column=names.candidates, value=candidates, expected=expected)
    if not candidates:
        if policies.empty == "refuse":
            expected = f"a list of at least one candidate ({EMPTY_HINT})"
            raise InputError(
                path, place=pair.place, column=names.candidates, value=candidates, expected=expected
            )
        yield pair, ""
        return
    are_texts = isinstance(candidates[0], str)
    labels = _labels_of_texts(path, pair.place, row, len(candidates), names, policies) if are_texts else []
    for index, candidate in enumerate(candidates):
        place = f"{pair.place}, candidate {index + 1}"
        if are_texts:
            if not isinstance(candidate, str):
                expected = "a text, as the first candidate is"
                raise InputError(path, place=place, value=candidate, expected=expected)
            yield pair._replace(place=place, answer=candidate), labels[index]
            continue
        if not isinstance(candidate, dict):
            raise InputError(path, place=place, value=candidate, expected="a JSON object")
        column = names.candidate_answer(candidate)
        answer = _answer_text(path, place, column, _value(path, place, column, candidate))
        answer_id = _id(path, place, names.answer_id, candidate)
        label = ""
        if policies.labelled:
            hint = option_hint("label", policies.split)
            label = label_text(_value(path, place, names.label, candidate, hint))
        yield pair._replace(place=place, answer_id=answer_id, answer=answer), label


def _labels_of_texts(
    path: str, place: str, row: Mapping[str, Any], count: int, names: ColumnNames, policies: SplitPolicies
) -> list[str]:
    """Read the labels of ``count`` candidates that are plain texts."""
    if not policies.labelled:
        return [""] * count
    if names.positions in row:
        positions = row[names.positions]
        valid = isinstance(positions, list) and all(
            isinstance(position, int) and not isinstance(position, bool) and 0 <= position < count
            for position in positions
        )
        if not valid:
            expected = f"a list of positions from 0 to {count - 1}, or --positions NAME for another column"
            raise InputError(path, place=place, column=names.positions, value=positions, expected=expected)
        labels = [str(int(position in set(positions))) for position in range(count)]
        given = row.get(names.label)
        if isinstance(given, list) and len(given) == count:
            also = [str(min(1, int(text))) if text.isdigit() else text for text in map(label_text, given)]
            if also != labels:
                expected = f"[{', '.join(labels)}], as {names.positions!r} says"
                raise InputError(path, place=place, column=names.label, value=given, expected=expected)
        return labels
    if names.label not in row:
        expected = f"{names.positions!r} (positions of the relevant candidates; or --positions NAME) or "
        expected += f"{names.label!r} (one label per candidate), or {option_hint('label', policies.split)}"
        raise InputError(path, place=place, problem=f"keys {quoted_names(list(row))}", expected=expected)
    labels = row[names.label]
    if not isinstance(labels, list) or len(labels) != count:
        expected = f"a list of {count} labels, one per candidate"
        raise InputError(path, place=place, column=names.label, value=labels, expected=expected)
    return [label_text(label) for label in labels]


def _value(path: str, place: str, key: str, candidate: Mapping[str, Any], hint: str = "") -> Any:
    if key not in candidate:
        raise missing_column(path, place, key, list(candidate), hint)
    return candidate[key]


def _answer_text(path: str, place: str, column: str, value: Any) -> str:
    """A candidate's text; null and NaN, the missing values of data frames, are empty texts."""
    if value is None or (isinstance(value, float) and value != value):
        return ""
    if not isinstance(value, str):
        raise InputError(path, place=place, column=column, value=value, expected="a text")
    return value


def _id(path: str, place: str, key: str | None, row: Mapping[str, Any]) -> str:
    """The id under ``key``, which may be a number; '' if there is no key."""
    if key is None:
        return ""
    value = _value(path, place, key, row)
    if isinstance(value, bool) or not isinstance(value, str | numbers.Integral):
        raise InputError(path, place=place, column=key, value=value, expected="a text or a whole number")
    return str(value)
