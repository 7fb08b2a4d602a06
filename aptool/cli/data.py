"""``aptool data``: make, import, describe and check collections."""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from aptool.cli.parameters import HiddenArgument, one_output
from aptool.cli.tables import print_table
from aptool.errors import AptoolError, UsageError

if TYPE_CHECKING:
    from aptool.datasets.stats import Statistics
    from aptool.datasets.tabular import ColumnNames
    from aptool.formats.collection import Collection

logger = logging.getLogger(__name__)

Command = TypeVar("Command", bound=Callable[..., Any])

_output = click.option("--output", metavar="FOLDER", required=True, help="Folder of the collection to write.")
_output_or_argument = click.option(
    "--output",
    metavar="FOLDER",
    type=click.Path(path_type=Path),
    help="Folder of the collection to write.",
)
_splits = click.argument("splits", metavar="SPLIT=PATH...", nargs=-1, required=True)
_questions = click.option(
    "--questions",
    type=click.Choice(["all", "answerable", "both-labels"]),
    default="all",
    show_default=True,
    help="Questions to keep: all, those with a relevant answer, or those with a relevant and a non-relevant "
    "candidate.",
)


@click.group()
def data() -> None:
    """Make, import, describe and check collections."""


@data.command()
@click.argument("out", cls=HiddenArgument, required=False, type=click.Path(path_type=Path))
@_output_or_argument
@click.option("--limit", type=int, metavar="N", help="Maximum number of functions.")
def functions(out: Path | None, output: Path | None, limit: int | None) -> None:
    """Build the collection of functions: code search over the installed Python packages."""
    from aptool.datasets.functions import build
    from aptool.datasets.importing import check_output
    from aptool.formats.collection import Collection

    out = one_output(output, out)
    check_output(out)
    build(out, limit=limit)
    _report(Collection(out))


@data.group(name="import")
def import_() -> None:
    """Import a published data set, or one of your own.

    PATH may be a URL that fsspec knows, such as https://... or hf://datasets/...
    """


@import_.command()
@_splits
@_output
@_questions
def wikiqa(splits: tuple[str, ...], output: str, questions: str) -> None:
    """Import WikiQA: its TSV files, or the Parquet files of the hub's microsoft/wiki_qa.

    The paper's questions are those of --questions answerable.
    """
    from aptool.datasets.importing import parse_splits
    from aptool.datasets.wikiqa import build

    _report(build(output, parse_splits(splits), questions=questions))


@import_.command()
@_splits
@_output
@_questions
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
    _report(collection)


@import_.command()
@click.argument("folder", metavar="FOLDER")
@_output
@_questions
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
    _report(collection)


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


@import_.command()
@_splits
@_output
@_questions
@_columns
@click.option("--delimiter", help="Column separator.  [default: comma for .csv, else tab]")
@click.option(
    "--quotes",
    type=click.Choice(["literal", "csv"]),
    help="Whether quotation marks are text or enclose fields.  [default: csv with commas, else literal]",
)
def tsv(splits: tuple[str, ...], output: str, questions: str, name: str | None, **options: Any) -> None:
    """Import a table of your own: a header line, then one row per question and candidate.

    Columns are found by their names in the header; other columns are ignored.
    """
    from aptool.datasets.importing import parse_splits
    from aptool.datasets.tabular import ColumnNames, build_tsv

    delimiter = options["delimiter"]
    if delimiter == "\\t":
        options["delimiter"] = "\t"
    elif delimiter is not None and (len(delimiter) != 1 or delimiter in '"\r\n'):
        raise UsageError(f"--delimiter {delimiter!r}: expected one character other than a quotation mark")
    given = ColumnNames(**{**options, "answer": options["answer"] or "answer"})
    named = name or _name_of(output)
    _report(build_tsv(output, parse_splits(splits), given, name=named, questions=questions), given)


@import_.command()
@_splits
@_output
@_questions
@_columns
@click.option(
    "--candidates", default="candidates", metavar="NAME", show_default=True, help="Key of the list."
)
def jsonl(splits: tuple[str, ...], output: str, questions: str, name: str | None, **options: Any) -> None:
    """Import JSON Lines of your own: one object per question with its candidates.

    {"question": "...", "candidates": [{"text": "...", "label": 1}, ...]}
    """
    from aptool.datasets.importing import parse_splits
    from aptool.datasets.tabular import ColumnNames, build_jsonl

    given = ColumnNames(**{**options, "answer": options["answer"] or "text"})
    named = name or _name_of(output)
    _report(build_jsonl(output, parse_splits(splits), given, name=named, questions=questions), given)


@data.command()
@click.argument("out", cls=HiddenArgument, required=False, type=click.Path(path_type=Path))
@_output_or_argument
@click.option(
    "--like",
    type=click.Choice(["insuranceqa", "trecqa", "wikiqa"]),
    required=True,
    help="Published collection whose size and lengths it takes.",
)
@click.option("--scale", type=float, default=1.0, show_default=True, help="Factor on questions and answers.")
@click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True, help="Random seed.")
def synthetic(out: Path | None, output: Path | None, like: str, scale: float, seed: int) -> None:
    """Generate a collection of made-up words with the shape of a published one, for measurements."""
    from aptool.datasets.synthetic import build

    _report(build(one_output(output, out), like=like, scale=scale, seed=seed))


@data.command()
@click.argument("collection", metavar="COLLECTION")
@click.option("--vectors", metavar="FILE", help="Also count words without a vector.")
@click.option(
    "--words",
    type=click.Choice(["tokenizer", "whitespace"]),
    default="tokenizer",
    show_default=True,
    help="What counts as a word: the tokenizer's tokens or whitespace tokens (closer to the paper).",
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON, in full precision.")
def stats(collection: str, vectors: str | None, words: Any, as_json: bool) -> None:
    """Print statistics of a collection: the paper's table 1 and more."""
    from aptool.datasets.stats import describe
    from aptool.formats.collection import Collection

    found = describe(Collection(collection), vectors=vectors, words=words)
    if as_json:
        click.echo(json.dumps(found.to_dict(), indent=2, ensure_ascii=False))
    else:
        _print_statistics(found)


@data.command()
@click.argument("paths", metavar="PATH...", nargs=-1, required=True)
@click.pass_context
def check(context: click.Context, paths: tuple[str, ...]) -> None:
    """Validate pools, answers, qrels, runs and collections.

    The exit code is 1 if any of them is invalid.
    """
    from aptool.datasets.check import check_path

    bad = 0
    for path in paths:
        try:
            click.echo(f"{path}: {check_path(path)}")
        except AptoolError as error:
            bad += 1
            click.echo(str(error))
    if bad:
        logger.info(f"{bad} of {len(paths)} invalid")
        context.exit(1)


def _name_of(output: str) -> str:
    return re.sub(r"\s+", "-", Path(output).resolve().name) or "collection"


def _report(collection: Collection, names: ColumnNames | None = None) -> None:
    """Prints the splits as a table; logs the path and the rows that each policy touched."""
    manifest = collection.manifest
    read = manifest.get("details", {}).get("read", {})
    rows = [["split", "questions", "candidates", "relevant"]]
    if read:
        rows[0] += ["questions read", "candidates read"]
    for split, counts in manifest["splits"].items():
        values = [*counts.values(), *read.get(split, {}).values()]
        rows.append([split, *(f"{value:,}" for value in values)])
    print_table(rows)
    for policy, touched in manifest["policies"].items():
        for split, count in touched.items():
            if count:
                logger.info(f"{split}: {policy.replace('_', ' ')}: {count:,}")
    if names is not None and names.question_id is None:
        logger.info("questions with the same text are one question (see --question-id)")
    logger.info(f"written: {collection.path}")


def _print_statistics(found: Statistics) -> None:
    splits = found.splits.values()
    rows = [["", *found.splits]]
    for title, shown in (
        ("questions", [f"{s.questions:,}" for s in splits]),
        ("M: words per question", [f"{s.M:.2f}" for s in splits]),
        ("L: words per relevant answer", [f"{s.L:.2f}" for s in splits]),
        ("L over all candidates", [f"{s.L_all:.2f}" for s in splits]),
        ("L/M, mean over relevant answers", [f"{s.L_over_M:.2f}" for s in splits]),
        ("candidates", [f"{s.candidates:,}" for s in splits]),
        ("candidates per question", [f"{s.pool_mean:.2f}" for s in splits]),
        ("smallest, largest pool", [f"{s.pool_least}, {s.pool_most}" for s in splits]),
        ("relevant answers", [f"{s.relevant:,}" for s in splits]),
        ("relevant answers per question", [f"{s.relevant_mean:.2f}" for s in splits]),
        ("questions without relevant answer", [f"{s.without_relevant:,}" for s in splits]),
        ("questions without non-relevant candidate", [f"{s.without_nonrelevant:,}" for s in splits]),
        ("relevant answers not in the pool", [f"{s.relevant_not_in_pool:,}" for s in splits]),
        (
            "questions without relevant candidate",
            [f"{s.questions_without_relevant_in_pool:,}" for s in splits],
        ),
        ("distinct answer texts", [f"{s.distinct_answers:,}" for s in splits]),
        ("texts repeated in a pool", [f"{s.repeated_texts:,}" for s in splits]),
    ):
        rows.append([title, *shown])
    for policy, touched in found.policies.items():
        if any(touched.values()):
            shown = [f"{touched.get(split, 0):,}" for split in found.splits]
            rows.append([f"at import: {policy.replace('_', ' ')}", *shown])
    click.echo(f"{found.name} (words are {found.words} tokens)")
    print_table(rows)
    click.echo(f"{found.types:,} distinct words, {found.tokens:,} in all questions and distinct answers")
    if found.coverage is not None:
        covered = found.coverage
        click.echo(
            f"without a vector: {covered.unknown_types:,} distinct words ({1 - covered.type_share:.1%}), "
            f"{covered.unknown_tokens:,} in all ({1 - covered.token_share:.1%})"
        )
