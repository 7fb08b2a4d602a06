"""``aptool data import`` of tables, JSON and Hugging Face data sets with any column names."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

import click

from aptool.cli.collections import (
    by_split,
    conflicts_option,
    output_option,
    questions_option,
    report_collection,
)
from aptool.cli.parameters import SectionedCommand, seed_option, with_options

if TYPE_CHECKING:
    from aptool.datasets.import_options import ColumnNames, ImportPolicies

_tables_argument = click.argument("tables", metavar="SPLIT=PATH...", nargs=-1, required=True)
_columns = with_options(
    click.option("--question", default="question", metavar="NAME", help="Column of the question text."),
    click.option(
        "--answer", metavar="NAME", help="Column of the candidate text.  [default: answer; in lists: text]"
    ),
    click.option(
        "--label",
        default="label",
        metavar="NAME",
        help="Column of the grade, 0 or more (words: see --relevant).",
    ),
    click.option(
        "--question-id", metavar="NAME", help="Column of the question id.  [default: from the text]"
    ),
    click.option("--answer-id", metavar="NAME", help="Column of the candidate id.  [default: from the text]"),
    click.option("--name", metavar="NAME", help="Name of the collection.  [default: name of its folder]"),
)
_lists = with_options(
    click.option(
        "--candidates", default="candidates", metavar="NAME", help="Column of the list of candidates."
    ),
    click.option(
        "--positions",
        default="relevant",
        metavar="NAME",
        help="Column of the indices (from 0) of relevant candidates.",
    ),
    click.option(
        "--field",
        metavar="PATH",
        help="List of objects in a JSON document, such as data.items.  [default: the document]",
    ),
)
_policies = with_options(
    questions_option,
    conflicts_option,
    click.option(
        "--empty",
        metavar="RULE",
        type=click.Choice(["drop", "keep", "refuse"]),
        default="drop",
        help="Candidates without text: drop, keep, or refuse (stop).",
    ),
    click.option(
        "--relevant",
        metavar="LABELS",
        help="Relevant labels, such as Good,PotentiallyUseful.  [default: labels are grades]",
    ),
    click.option(
        "--unlabelled",
        metavar="SPLIT",
        multiple=True,
        help="Split without labels: write pools, no qrels; repeatable.",
    ),
    click.option(
        "--add-candidates",
        metavar="all|N|bm25:N",
        help="Add answers of other questions of the split to each pool: all, N at random, or the N best by "
        "BM25. Without a label column, each row is a right answer.",
    ),
    seed_option,
    click.option(
        "--split-ratio",
        metavar="RATIO",
        help="Split one table by question, as train:dev:test or train:dev, such as 80:10:10.",
    ),
    click.option("--strip-html", is_flag=True, help="Remove the tags of HTML from questions and answers."),
)


def _table(kind: Literal["tsv", "csv"], separator: str) -> click.Command:
    """Return the command ``tsv`` or ``csv``; they differ in the default delimiter."""

    @click.command(kind, cls=SectionedCommand)
    @_tables_argument
    @output_option
    @_columns
    @click.option(
        "--columns",
        metavar="NAMES",
        help="Column names, such as question,answer,label.  [default: header]",
    )
    @click.option("--delimiter", metavar="CHAR", help=f"Column separator.  [default: {separator}]")
    @click.option(
        "--quotes",
        metavar="MODE",
        type=click.Choice(["literal", "csv"]),
        help="Quotation marks: literal, or csv (around fields).  [default: csv; literal for tabs]",
    )
    @click.option("--encoding", metavar="NAME", help="Encoding, such as cp1252.  [default: UTF-8 or UTF-16]")
    @_policies
    def command(tables: tuple[str, ...], columns: str | None, **options: Any) -> None:
        """Import a table with one row per question and candidate.

        Columns are found by name in the header or in --columns; other columns are ignored.
        """
        if options["delimiter"] == "\\t":
            options["delimiter"] = "\t"
        header = tuple(part.strip() for part in columns.split(",")) if columns is not None else None
        _import(kind, tables, header=header, **options)

    return command


@click.command(cls=SectionedCommand)
@_tables_argument
@output_option
@_columns
@_lists
@_policies
def json(tables: tuple[str, ...], **options: Any) -> None:
    r"""Import JSON with one object per question or per pair.

    \b
    {"question": "...", "candidates": [{"text": "...", "label": 1}, ...]}
    {"question": "...", "candidates": ["...", ...], "relevant": [0]}
    {"question": "...", "answer": "...", "label": 1}

    The file is JSON Lines, an array, or a document with a list (see --field).
    """
    _import("jsonl", tables, **options)


@click.command(cls=SectionedCommand)
@click.argument("dataset", metavar="FOLDER")
@output_option
@_columns
@_lists
@click.option(
    "--split",
    "splits",
    metavar="SPLIT=NAME",
    multiple=True,
    callback=by_split,
    help="Split, and its name in the data set; repeatable.  [default: all, dev=validation]",
)
@click.option("--config", metavar="NAME", help="Configuration (subset) of the data set.  [default: default]")
@_policies
def hf(dataset: str, splits: dict[str, str], config: str | None, **options: Any) -> None:
    """Import a data set in the layout of the Hugging Face Hub.

    FOLDER is local, or hf://datasets/ORG/NAME. A row is a pair, or a question with a list of candidates.
    """
    from aptool.datasets.huggingface import import_huggingface

    output, name, names, policies = _parse(**options)
    collection = import_huggingface(
        output, dataset, names, name=name, splits=splits, config=config, policies=policies
    )
    report_collection(collection, names)


def _import(kind: Literal["tsv", "csv", "jsonl"], tables: tuple[str, ...], **options: Any) -> None:
    from aptool.datasets.importing import parse_splits
    from aptool.datasets.rows import import_rows

    if options["split_ratio"] is not None and len(tables) == 1 and "=" not in tables[0]:
        tables = (f"table={tables[0]}",)
    splits = parse_splits(tables)
    output, name, names, policies = _parse(**options)
    report_collection(import_rows(output, splits, names, policies, name=name, kind=kind), names)


def _parse(
    *,
    output: str,
    name: str | None,
    questions: Any,
    conflicts: Any,
    empty: Any,
    relevant: str | None,
    unlabelled: tuple[str, ...],
    add_candidates: str | None,
    seed: int,
    split_ratio: str | None,
    strip_html: bool,
    **columns: Any,
) -> tuple[str, str, ColumnNames, ImportPolicies]:
    """Return the output, the name of the collection, the names of the columns and the import policies."""
    from aptool.datasets.import_options import ColumnNames, ImportPolicies
    from aptool.datasets.importing import collection_name

    policies = ImportPolicies(
        questions=questions,
        conflicts=conflicts,
        empty=empty,
        relevant=tuple(relevant.split(",")) if relevant is not None else None,
        unlabelled=unlabelled,
        add_candidates=add_candidates,
        seed=seed,
        split_ratio=split_ratio,
        strip_html=strip_html,
    )
    return output, name or collection_name(output), ColumnNames(**columns), policies


OWN_FORMATS = {
    "csv": _table("csv", "comma; tab for .tsv"),
    "tsv": _table("tsv", "tab; comma for .csv"),
    "jsonl": json,
    "json": json,
    "hf": hf,
}
