"""A user's own data as a collection: tables, JSON, and rows in memory.

Columns are found by their names. Without ids, a question is identified by its text and an answer by its text
within the question, so that a repeated row is a repeated candidate.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, replace
from typing import Any, Literal, TypeAlias

from aptool.datasets.column_names import ColumnNames, Labels, RawPair, listed, with_ids
from aptool.datasets.importing import SplitPools, write_collection
from aptool.datasets.json_rows import check_columns, list_fields, pairs_of_row, read_objects, unit_of
from aptool.datasets.lines import read_lines
from aptool.datasets.pairs import pools_of
from aptool.datasets.policies import FIELD_OPTION, ImportPolicies, SplitPolicies
from aptool.datasets.tabular import refuse_xml, table_pairs
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
_NO_POLICIES = ImportPolicies()


def import_rows(
    out: PathOrUrl,
    splits: Mapping[str, str | Rows],
    names: ColumnNames,
    policies: ImportPolicies = _NO_POLICIES,
    *,
    name: str,
    kind: Kind | None = None,
) -> CollectionFiles:
    """Imports rows of pairs, or of questions with their candidates.

    Args:
        out: the collection's folder.
        splits: split -> a file, or rows in memory: mappings by column name.
        names: the columns or keys, and the format of a table.
        policies: what becomes of rows that are not plain pairs.
        name: of the collection.
        kind: format of the files: ``tsv`` (delimited text), ``csv`` (the same, by default with commas),
            ``jsonl`` (JSON Lines, an array or a document) or ``parquet``; None: told by their names.

    Raises:
        InputError: a row is neither a pair nor a pool; the message names file, line, column, value and
            expectation.
        UsageError: a policy has an unknown value, or a label in ``policies.relevant`` does not occur.
    """
    policies.check(list(splits))
    labels = Labels(policies.relevant)
    sources = {
        split: _source(split, content, names, SplitPolicies(split, policies), labels, kind)
        for split, content in splits.items()
    }
    files = [content.rsplit("/", 1)[-1] for content in splits.values() if isinstance(content, str)]
    return write_collection(
        out,
        name=name,
        source=f"imported from {', '.join(files) or 'rows in memory'}",
        splits=sources,
        questions=policies.questions,
        details=details_of(names, policies),
        check=labels.check_use,
    )


def details_of(names: ColumnNames, policies: ImportPolicies) -> dict[str, Any]:
    """The layout and the labels, as the manifest records them."""
    layout = {key: value for key, value in asdict(names).items() if value is not None}
    return {"layout": layout} | ({"relevant_labels": list(policies.relevant)} if policies.relevant else {})


def split_pools(
    path: str,
    unit: str,
    rows: Iterator[RawPair],
    names: ColumnNames,
    policies: SplitPolicies,
    labels: Labels,
) -> SplitPools:
    """The pools of one split out of its raw pairs.

    Args:
        path: where the pairs come from, for messages.
        unit: what their places count.
        rows: the pairs, with their labels.
        names: the columns.
        policies: of the split; their counts are complete once the pools are read.
        labels: how labels become relevance.
    """
    pairs = (
        labels.judged(path, unit, names.label, rows, policies)
        if policies.labelled
        else (pair for pair, _ in rows)
    )
    pools = pools_of(
        path,
        with_ids(pairs, names, policies.split),
        names.columns,
        unit=unit,
        empty=policies.empty,
        conflicts=policies.conflicts,
        counts=policies.counts,
    )
    if not policies.labelled:
        pools = _without_labels(pools)
    return SplitPools(path, pools, policies.conflicts, policies.counts, policies.labelled)


def parquet_rows(path: str, names: ColumnNames, policies: SplitPolicies) -> Iterator[Mapping[str, Any]]:
    """The rows of a Parquet file, with the columns that are used.

    Raises:
        InputError: it is not a Parquet file, or a column is missing.
    """
    used = {names.question, names.label, names.candidates, names.positions, names.pair_answer}
    used |= {name for name in (names.question_id, names.answer_id) if name is not None}
    with open_parquet(path) as reader:
        check_columns(path, None, reader.schema.names, names, policies)
        yield from reader.rows([name for name in reader.schema.names if name in used])


def _source(
    split: str,
    content: str | Rows,
    names: ColumnNames,
    policies: SplitPolicies,
    labels: Labels,
    kind: Kind | None,
) -> SplitPools:
    if not isinstance(content, str):
        rows = _row_pairs(f"rows of {split!r}", "row", enumerate(content), names, policies)
        return split_pools(f"rows of {split!r}", "row", rows, names, policies, labels)
    kind = kind or _kind_of(content)
    if kind == "jsonl":
        unit = unit_of(content, names.field)
        rows = _json_pairs(content, unit, names, policies)
        return split_pools(content, unit, rows, names, policies, labels)
    if kind == "parquet":
        table = enumerate(parquet_rows(content, names, policies))
        rows = _row_pairs(content, "row", table, names, policies)
        return split_pools(content, "row", rows, names, policies, labels)
    if kind == "csv" and names.delimiter is None and not _plain(content).endswith(".tsv"):
        names = replace(names, delimiter=",")
    return split_pools(content, "line", table_pairs(content, names, policies), names, policies, labels)


def _kind_of(path: str) -> Kind:
    for suffix, kind in _SUFFIXES.items():
        if _plain(path).endswith(suffix):
            return kind
    raise InputError(path, problem="unknown format", expected=f"a name that ends in {', '.join(_SUFFIXES)}")


def _plain(path: str) -> str:
    return path.lower().removesuffix(".gz")


def _row_pairs(
    path: str,
    unit: str,
    rows: Iterable[tuple[int, Mapping[str, Any]]],
    names: ColumnNames,
    policies: SplitPolicies,
) -> Iterator[RawPair]:
    for number, row in rows:
        yield from pairs_of_row(path, number, unit, row, names, policies)


def _json_pairs(path: str, unit: str, names: ColumnNames, policies: SplitPolicies) -> Iterator[RawPair]:
    start = next((line for _, line in read_lines(path) if line.strip()), "{").lstrip()
    refuse_xml(path, start)
    if start[0] not in "{[":
        expected = "JSON objects; `aptool data import csv` reads tables"
        raise InputError(path, place="line 1", problem=f"no JSON: {start[:40]!r}", expected=expected)
    for number, row in read_objects(path, strict=True, field=names.field):
        if names.question not in row and names.candidates not in row and names.field is None:
            _hint_at_field(path, f"{unit} {number}", row, names)
        yield from pairs_of_row(path, number, unit, row, names, policies)


def _hint_at_field(path: str, place: str, row: Mapping[str, Any], names: ColumnNames) -> None:
    """Refuses an object that has lists of objects instead of a question."""
    fields = list_fields(row, names.question)
    if fields:
        options = " or ".join(f"{FIELD_OPTION} {field}" for field in fields[:5])
        expected = f"a column {names.question!r} (--question NAME says which), or a list of such objects"
        expected += f" ({options}); the object has {listed(list(row))}"
        raise InputError(path, place=place, problem="no question", expected=expected)


def _without_labels(pools: Iterator[LabelledPool]) -> Iterator[LabelledPool]:
    for pool in pools:
        yield pool._replace(relevance={})
