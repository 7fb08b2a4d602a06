"""Options of the commands that import collections, and ``aptool data import`` of a user's own data.

Own data are tables, JSON and data sets of the Hugging Face hub, with any column names.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, Literal

import click

from aptool.cli.parameters import SectionedCommand, overwrite_option, seed_option, with_options
from aptool.cli.tables import print_table

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from aptool.datasets.import_options import ColumnNames, ImportPolicies
    from aptool.formats.collection import CollectionFiles

logger = logging.getLogger(__name__)

NO_LABELS = "no labels"  # instead of a count, for a split without qrels


def by_split(ctx: click.Context, param: click.Parameter, values: tuple[str, ...]) -> dict[str, str]:
    """Parse ``SPLIT=PATH`` values; the callback of options and arguments."""
    from aptool.datasets.importing import parse_splits

    return parse_splits(values)


def splits_of_folder(splits: tuple[str, ...], names: Mapping[str, Sequence[str]]) -> dict[str, str]:
    """The path of each split, from ``SPLIT=PATH`` values or one folder with files of the given names."""
    from aptool.datasets.importing import parse_splits, splits_in
    from aptool.formats.location import location

    if len(splits) == 1 and (folder := location(splits[0])).is_dir():
        return splits_in(folder, names)
    return parse_splits(splits)


folder_or_splits_argument = click.argument(
    "splits", metavar="FOLDER | SPLIT=PATH...", nargs=-1, required=True
)
output_option = with_options(
    click.option("--output", metavar="FOLDER", required=True, help="Folder of the collection to write."),
    overwrite_option("COLLECTION"),
)
questions_option = click.option(
    "--questions",
    metavar="FILTER",
    type=click.Choice(["all", "answerable", "both-labels"]),
    default="all",
    help="Questions to import: all, answerable (with a relevant answer), or both-labels (with relevant and "
    "non-relevant candidates).",
)
conflicts_option = click.option(
    "--conflicts",
    metavar="RULE",
    type=click.Choice(["error", "max", "min"]),
    default="error",
    help="Pair with several labels: error (stop), max or min.",
)


def report_collection(collection: CollectionFiles, names: ColumnNames | None = None) -> None:
    """Print the splits as a table; log the path and the number of rows per import policy."""
    manifest = collection.manifest
    read = manifest.get("details", {}).get("read", {})
    rows = [["split", "questions", "candidates", "relevant"]]
    if read:
        rows[0] += ["questions read", "candidates read"]
    for split, counts in manifest["splits"].items():
        values = [counts["questions"], counts["candidates"], counts.get("positives", NO_LABELS)]
        values += read.get(split, {}).values()
        rows.append([split, *(value if isinstance(value, str) else f"{value:,}" for value in values)])
    print_table(rows)
    for policy, touched in manifest["policies"].items():
        for split, count in touched.items():
            if count:
                logger.info(f"{split}: {policy.replace('_', ' ')}: {count:,}")
    if names is not None and names.question_id is None:
        logger.info("questions with the same text are one question (see --question-id)")
    logger.info(f"written: {collection.path}")
    for split, counts in manifest.get("details", {}).get("first_stage", {}).items():
        relevant, missed = counts["relevant"], counts["relevant_missed"]
        if relevant:
            logger.info(
                f"{split}: the first stage ({counts['system']}) missed {missed:,} of {relevant:,} relevant "
                f"answers ({missed / relevant:.1%}); {counts['relevant_added']:,} of them were added"
            )


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


def _table(kind: Literal["tsv", "csv"]) -> click.Command:
    """Return the command ``tsv`` or ``csv``, which try tabs or commas first."""

    @click.command(kind, cls=SectionedCommand)
    @_tables_argument
    @output_option
    @_columns
    @click.option(
        "--columns",
        metavar="NAMES",
        help="Column names, such as question,answer,label.  [default: header]",
    )
    @click.option(
        "--delimiter", metavar="CHAR", help="Column separator.  [default: recognised from the first lines]"
    )
    @click.option(
        "--quotes",
        metavar="MODE",
        type=click.Choice(["literal", "csv"]),
        help="Quotation marks: literal, or csv (around fields).  [default: recognised]",
    )
    @click.option("--encoding", metavar="NAME", help="Encoding, such as cp1252.  [default: recognised]")
    @click.option("--sheet", metavar="NAME", help="Sheet of an Excel workbook.  [default: the first]")
    @_policies
    def command(tables: tuple[str, ...], columns: str | None, **options: Any) -> None:
        """Import a table, in text or in an Excel workbook, with one row per question and candidate.

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
    splits = parse_splits(tables, ", or --split-ratio 80:10:10 to split one table")
    output, name, names, policies = _parse(**options)
    report_collection(import_rows(output, splits, names, policies, name=name, kind=kind), names)


def _parse(
    *, output: str, name: str | None, relevant: str | None, **options: Any
) -> tuple[str, str, ColumnNames, ImportPolicies]:
    """Return the output, the name of the collection, the names of the columns and the import policies."""
    from dataclasses import fields

    from aptool.datasets.import_options import ColumnNames, ImportPolicies
    from aptool.datasets.importing import collection_name

    options["relevant"] = tuple(relevant.split(",")) if relevant is not None else None
    policies = {field.name: options.pop(field.name) for field in fields(ImportPolicies)}
    return output, name or collection_name(output), ColumnNames(**options), ImportPolicies(**policies)


OWN_FORMATS = {
    "csv": _table("csv"),
    "tsv": _table("tsv"),
    "jsonl": json,
    "json": json,
    "hf": hf,
}
