"""``aptool data import``: tables, JSON and data sets of the hub with a user's own columns."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Literal, TypeVar

import click

from aptool.cli.collections import (
    conflicts_option,
    output_option,
    questions_option,
    report_collection,
    splits_argument,
)
from aptool.errors import UsageError

if TYPE_CHECKING:
    from aptool.datasets.column_names import ColumnNames
    from aptool.datasets.policies import ImportPolicies

Command = TypeVar("Command", bound=Callable[..., Any])

_COLUMNS = (
    ("--question", "question", "Column of the question's text."),
    ("--answer", None, "Column of the candidate's text.  [default: answer; in a list of candidates: text]"),
    ("--label", "label", "Column of the relevance: 0, or 1 and more; see --relevant for words."),
    ("--question-id", None, "Column of the question's id.  [default: a question is identified by its text]"),
    ("--answer-id", None, "Column of the candidate's id.  [default: as for questions]"),
    ("--name", None, "Name of the collection.  [default: the name of its folder]"),
)
_empty_option = click.option(
    "--empty",
    type=click.Choice(["drop", "keep", "refuse"]),
    default="drop",
    show_default=True,
    help="Candidates without text: leave them out, import them, or end with an error.",
)
_relevant_option = click.option(
    "--relevant",
    metavar="LABELS",
    help="Labels that count as relevant, separated by commas, such as Good,PotentiallyUseful; all others do "
    "not.  [default: labels are whole numbers]",
)
_unlabelled_option = click.option(
    "--unlabelled",
    metavar="SPLIT",
    multiple=True,
    help="Split without labels: it gets pools and no qrels; repeatable.",
)
_candidates_option = click.option(
    "--candidates", default="candidates", metavar="NAME", show_default=True, help="Column of the list."
)
_positions_option = click.option(
    "--positions",
    default="relevant",
    metavar="NAME",
    show_default=True,
    help="Column of the positions, from 0, of the relevant candidates, where candidates are plain texts.",
)
_field_option = click.option(
    "--field",
    metavar="PATH",
    help="Keys, joined by dots, that lead to the list of objects in a JSON document, such as data.items.",
)


def _columns(command: Command) -> Command:
    """The options that name the columns of a pair."""
    for option, default, text in reversed(_COLUMNS):
        command = click.option(
            option, default=default, metavar="NAME", help=text, show_default=bool(default)
        )(command)
    return command


def _policies(command: Command) -> Command:
    """The options of ``ImportPolicies``."""
    options = (questions_option, conflicts_option, _empty_option, _relevant_option, _unlabelled_option)
    for option in reversed(options):
        command = option(command)
    return command


def _import_policies(options: dict[str, Any]) -> ImportPolicies:
    """Takes the options of `_policies` out of a command's options."""
    from aptool.datasets.policies import ImportPolicies

    relevant = options.pop("relevant")
    return ImportPolicies(
        questions=options.pop("questions"),
        conflicts=options.pop("conflicts"),
        empty=options.pop("empty"),
        relevant=tuple(relevant.split(",")) if relevant is not None else None,
        unlabelled=options.pop("unlabelled"),
    )


def _table(kind: Literal["tsv", "csv"], separator: str) -> click.Command:
    """The command ``tsv`` or ``csv``, which differ in the default separator of columns."""

    @click.command(kind)
    @splits_argument
    @output_option
    @_columns
    @click.option(
        "--columns",
        metavar="NAMES",
        help="Names of the columns of a table without a header line, such as question,answer,label.",
    )
    @click.option("--delimiter", help=f"Column separator.  [default: {separator}]")
    @click.option(
        "--quotes",
        type=click.Choice(["literal", "csv"]),
        help="Whether quotation marks are text or enclose fields.  [default: literal with tabs, else csv]",
    )
    @_policies
    def command(
        splits: tuple[str, ...], output: str, name: str | None, columns: str | None, **options: Any
    ) -> None:
        """Import a table of your own: a header line, then one row per question and candidate.

        Columns are found by their names in the header, or by --columns; other columns are ignored.
        """
        from aptool.datasets.column_names import ColumnNames

        policies = _import_policies(options)
        delimiter = options["delimiter"]
        if delimiter == "\\t":
            options["delimiter"] = "\t"
        elif delimiter is not None and (len(delimiter) != 1 or delimiter in '"\r\n'):
            raise UsageError(f"--delimiter {delimiter!r}: expected one character other than a quotation mark")
        header = tuple(part.strip() for part in columns.split(",")) if columns is not None else None
        _import(kind, output, splits, ColumnNames(**options, header=header), policies, name)

    return command


def _json(command_name: str) -> click.Command:
    """The command ``jsonl``, also called ``json``."""

    @click.command(command_name)
    @splits_argument
    @output_option
    @_columns
    @_candidates_option
    @_positions_option
    @_field_option
    @_policies
    def command(splits: tuple[str, ...], output: str, name: str | None, **options: Any) -> None:
        """Import JSON of your own: one object per question with its candidates, or one per pair.

        {"question": "...", "candidates": [{"text": "...", "label": 1}, ...]}, or
        {"question": "...", "candidates": ["...", ...], "relevant": [0]}, or
        {"question": "...", "answer": "...", "label": 1}

        The objects are JSON Lines, an array, or a list inside a document (see --field).
        """
        from aptool.datasets.column_names import ColumnNames

        policies = _import_policies(options)
        _import("jsonl", output, splits, ColumnNames(**options), policies, name)

    return command


@click.command()
@click.argument("dataset", metavar="FOLDER")
@output_option
@_columns
@_candidates_option
@_positions_option
@_field_option
@click.option(
    "--split",
    "splits",
    metavar="SPLIT=THEIRS",
    multiple=True,
    help="Split to import, and its name in the data set.  [default: all, dev=validation]",
)
@click.option("--config", metavar="NAME", help="Configuration of the data set.  [default: default]")
@_policies
def hf(
    dataset: str,
    output: str,
    name: str | None,
    splits: tuple[str, ...],
    config: str | None,
    **options: Any,
) -> None:
    """Import a data set with named columns in the layout of the Hugging Face hub.

    FOLDER is local, or hf://datasets/ORG/NAME. A row is a pair, or a question with a list of candidates.
    """
    from aptool.datasets.column_names import ColumnNames
    from aptool.datasets.huggingface import import_huggingface
    from aptool.datasets.importing import collection_name, parse_splits

    policies = _import_policies(options)
    names = ColumnNames(**options)
    collection = import_huggingface(
        output,
        dataset,
        names,
        name=name or collection_name(output),
        splits=parse_splits(splits),
        config=config,
        policies=policies,
    )
    report_collection(collection, names)


def _import(
    kind: Literal["tsv", "csv", "jsonl"],
    output: str,
    splits: tuple[str, ...],
    names: ColumnNames,
    policies: ImportPolicies,
    name: str | None,
) -> None:
    from aptool.datasets.importing import collection_name, parse_splits
    from aptool.datasets.rows import import_rows

    collection = import_rows(
        output, parse_splits(splits), names, policies, name=name or collection_name(output), kind=kind
    )
    report_collection(collection, names)


OWN_FORMATS = (
    _table("csv", "comma; tab for .tsv"),
    _table("tsv", "tab; comma for .csv"),
    _json("jsonl"),
    _json("json"),
    hf,
)
