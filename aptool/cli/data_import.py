"""``aptool data import``: collections out of published data sets, tables and retrieval data."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Literal, TypeVar

import click

from aptool.cli import retrieval
from aptool.cli.collections import (
    conflicts_option,
    name_of,
    output_option,
    questions_option,
    report_collection,
)
from aptool.errors import UsageError

if TYPE_CHECKING:
    from aptool.datasets.column_names import ColumnNames

logger = logging.getLogger(__name__)

Command = TypeVar("Command", bound=Callable[..., Any])

_splits = click.argument("splits", metavar="SPLIT=PATH...", nargs=-1, required=True)


@click.group(name="import")
def import_() -> None:
    """Import a published data set, or one of your own.

    PATH may be a URL that fsspec knows, such as https://... or hf://datasets/...
    """


@import_.command()
@_splits
@output_option
@questions_option
def wikiqa(splits: tuple[str, ...], output: str, questions: str) -> None:
    """Import WikiQA: its TSV files, or the Parquet files of the hub's microsoft/wiki_qa.

    The paper's questions are those of --questions answerable.
    """
    from aptool.datasets.importing import parse_splits
    from aptool.datasets.wikiqa import build

    report_collection(build(output, parse_splits(splits), questions=questions))


@import_.command()
@_splits
@output_option
@questions_option
@click.option(
    "--variant",
    type=click.Choice(["raw", "clean"]),
    help="Variant of TREC-QA; clean is verified.  [default: clean if every question outside train has a "
    "relevant and a non-relevant candidate, else raw]",
)
def trecqa(splits: tuple[str, ...], output: str, questions: str, variant: str | None) -> None:
    """Import TREC-QA: jacana's XML-like files, or folders with a.toks, b.toks, id.txt and sim.txt.

    The paper's questions are those of --questions both-labels.
    """
    from typing import cast

    from aptool.datasets.importing import parse_splits
    from aptool.datasets.trecqa import Variant, build

    stated = cast("Variant | None", variant)
    collection = build(output, parse_splits(splits), questions=questions, variant=stated)
    details = collection.manifest["details"]
    logger.info(f"variant: {details['variant'] or 'none'} ({details['variant_decided']})")
    report_collection(collection)


@import_.command()
@click.argument("folder", metavar="FOLDER")
@output_option
@questions_option
@click.option(
    "--pool-size",
    type=click.Choice(["100", "500", "1000", "1500"]),
    default="500",
    show_default=True,
    help="Candidates per question; V2 only.",
)
@click.option(
    "--tokens",
    type=click.Choice(["token", "raw"]),
    default="token",
    show_default=True,
    help="Tokenization of the texts; V2 only.",
)
def insuranceqa(folder: str, output: str, questions: str, pool_size: str, tokens: str) -> None:
    """Import InsuranceQA from FOLDER, the V1 or V2 of github.com/shuzi/insuranceQA."""
    from aptool.datasets.insuranceqa import build

    collection = build(output, folder, questions=questions, pool_size=int(pool_size), tokens=tokens)
    for split in collection.manifest["details"].get("splits_not_found", []):
        logger.info(f"{split}: skipped, its file is not in {folder}")
    report_collection(collection)


def _columns(command: Command) -> Command:
    """The options that name the columns of a pair."""
    for option, default, text in reversed(
        (
            ("--question", "question", "Column of the question's text."),
            ("--answer", None, "Column of the candidate's text.  [default: answer; in JSON: text]"),
            ("--label", "label", "Column of the relevance: 0, or 1 and more."),
            (
                "--question-id",
                None,
                "Column of the question's id.  [default: a question is identified by its text]",
            ),
            ("--answer-id", None, "Column of the candidate's id.  [default: as for questions]"),
            ("--name", None, "Name of the collection.  [default: the name of its folder]"),
        )
    ):
        metavar = "NAME"
        command = click.option(
            option, default=default, metavar=metavar, help=text, show_default=bool(default)
        )(command)
    return command


_candidates = click.option(
    "--candidates", default="candidates", metavar="NAME", show_default=True, help="Key of the list."
)
_relevant = click.option(
    "--relevant",
    default="relevant",
    metavar="NAME",
    show_default=True,
    help="Key of the positions, from 0, of the relevant ones, where candidates are plain texts.",
)


@import_.command()
@_splits
@output_option
@questions_option
@_columns
@conflicts_option
@click.option(
    "--columns",
    metavar="NAMES",
    help="Names of the columns of a table without a header line, such as question,answer,label.",
)
@click.option("--delimiter", help="Column separator.  [default: comma for .csv, else tab]")
@click.option(
    "--quotes",
    type=click.Choice(["literal", "csv"]),
    help="Whether quotation marks are text or enclose fields.  [default: csv with commas, else literal]",
)
def tsv(
    splits: tuple[str, ...],
    output: str,
    questions: str,
    name: str | None,
    conflicts: Any,
    columns: str | None,
    **options: Any,
) -> None:
    """Import a table of your own: a header line, then one row per question and candidate.

    Columns are found by their names in the header, or by --columns; other columns are ignored.
    """
    from aptool.datasets.column_names import ColumnNames

    delimiter = options["delimiter"]
    if delimiter == "\\t":
        options["delimiter"] = "\t"
    elif delimiter is not None and (len(delimiter) != 1 or delimiter in '"\r\n'):
        raise UsageError(f"--delimiter {delimiter!r}: expected one character other than a quotation mark")
    header = tuple(part.strip() for part in columns.split(",")) if columns is not None else None
    given = ColumnNames(**{**options, "answer": options["answer"] or "answer", "header": header})
    _import_table("tsv", output, splits, given, name, questions, conflicts)


@import_.command()
@_splits
@output_option
@questions_option
@_columns
@conflicts_option
@_candidates
@_relevant
def jsonl(
    splits: tuple[str, ...],
    output: str,
    questions: str,
    name: str | None,
    conflicts: Any,
    **options: Any,
) -> None:
    """Import JSON Lines or a JSON array of your own: one object per question with its candidates.

    {"question": "...", "candidates": [{"text": "...", "label": 1}, ...]}, or
    {"question": "...", "candidates": ["...", ...], "relevant": [0]}
    """
    from aptool.datasets.column_names import ColumnNames

    given = ColumnNames(**{**options, "answer": options["answer"] or "text"})
    _import_table("jsonl", output, splits, given, name, questions, conflicts)


@import_.command()
@click.argument("dataset", metavar="FOLDER")
@output_option
@questions_option
@_columns
@conflicts_option
@_candidates
@_relevant
@click.option(
    "--split",
    "splits",
    metavar="SPLIT=THEIRS",
    multiple=True,
    help="Split to import, and its name in the data set.  [default: all, dev=validation]",
)
@click.option("--config", metavar="NAME", help="Configuration of the data set.  [default: default]")
def hf(
    dataset: str,
    output: str,
    questions: str,
    name: str | None,
    conflicts: Any,
    splits: tuple[str, ...],
    config: str | None,
    **options: Any,
) -> None:
    """Import a data set with named columns in the layout of the Hugging Face hub.

    FOLDER is local, or hf://datasets/ORG/NAME. A row is a pair, or a question with a list of candidates.
    """
    from aptool.datasets.column_names import ColumnNames
    from aptool.datasets.huggingface import build
    from aptool.datasets.importing import parse_splits

    given = ColumnNames(**{**options, "answer": options["answer"] or "answer"})
    collection = build(
        output,
        dataset,
        given,
        name=name or name_of(output),
        splits=parse_splits(splits),
        config=config,
        questions=questions,
        conflicts=conflicts,
    )
    report_collection(collection, given)


def _import_table(
    kind: Literal["tsv", "jsonl"],
    output: str,
    splits: tuple[str, ...],
    names: ColumnNames,
    name: str | None,
    questions: str,
    conflicts: Any,
) -> None:
    from aptool.datasets.importing import parse_splits
    from aptool.datasets.tabular import build

    found = build(
        kind,
        output,
        parse_splits(splits),
        names,
        name=name or name_of(output),
        questions=questions,
        conflicts=conflicts,
    )
    report_collection(found, names)


for _command in (retrieval.beir, retrieval.mteb, retrieval.msmarco, retrieval.ir_datasets):
    import_.add_command(_command)
import_.add_command(retrieval.pools, "pyserini")  # a run and a corpus, whatever made the run
