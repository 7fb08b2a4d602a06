"""``aptool data``: make, import, describe and check collections."""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from aptool.errors import AptoolError, UsageError

if TYPE_CHECKING:
    from aptool.datasets.stats import Statistics
    from aptool.datasets.tabular import Layout
    from aptool.formats.collection import Collection

logger = logging.getLogger(__name__)

Command = TypeVar("Command", bound=Callable[..., Any])

_output = click.option("--output", metavar="OUT", required=True, help="The collection's folder.")
_splits = click.argument("splits", metavar="SPLIT=PATH...", nargs=-1, required=True)
_questions = click.option(
    "--questions",
    type=click.Choice(["all", "answerable", "both-labels"]),
    default="all",
    show_default=True,
    help="Which to keep: answerable ones have a right answer, both-labels a right and a wrong candidate.",
)


@click.group()
def data() -> None:
    """Make, import, describe and check collections."""


@data.command()
@click.argument("out", metavar="OUT")
@click.option("--limit", type=int, metavar="N", help="At most so many functions.")
def functions(out: str, limit: int | None) -> None:
    """Make the built-in collection: code search over the installed Python packages."""
    from aptool.datasets.functions import build
    from aptool.datasets.importing import check_output
    from aptool.formats.collection import Collection

    check_output(out)
    build(Path(out), limit=limit)
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

    --questions answerable keeps those that the paper uses.
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
    help="Which TREC-QA this is; clean is checked.  [default: clean if every question outside train has a "
    "right and a wrong candidate, else raw]",
)
def trecqa(splits: tuple[str, ...], output: str, questions: str, variant: str | None) -> None:
    """Import TREC-QA: jacana's XML-like files, or folders with a.toks, b.toks, id.txt and sim.txt.

    --questions both-labels keeps those that the paper uses.
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
    help="V2: which of its pools.",
)
@click.option(
    "--tokens",
    type=click.Choice(["token", "raw"]),
    default="token",
    show_default=True,
    help="V2: which of its two ways of cutting text into words.",
)
def insuranceqa(folder: str, output: str, questions: str, pool_size: str, tokens: str) -> None:
    """Import InsuranceQA from FOLDER, the V1 or V2 of github.com/shuzi/insuranceQA."""
    from aptool.datasets.insuranceqa import build

    collection = build(output, folder, questions=questions, pool_size=int(pool_size), tokens=tokens)
    for split in collection.manifest["details"].get("splits_not_found", []):
        logger.info(f"{split}: left out, its file is not in {folder}")
    _report(collection)


def _columns(command: Command) -> Command:
    """The options that say where the parts of a pair stand."""
    for option, default, text in reversed(
        (
            ("--question", "question", "The question's text."),
            ("--answer", None, "A candidate's text.  [default: answer; in JSON: text]"),
            ("--label", "label", "Its relevance: 0, or 1 and more."),
            ("--question-id", None, "The question's id.  [default: questions are told apart by their text]"),
            ("--answer-id", None, "The candidate's id.  [default: as for questions]"),
            ("--name", None, "What to call the collection.  [default: the name of its folder]"),
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
@click.option("--delimiter", help="What separates columns.  [default: comma for .csv, else tab]")
@click.option(
    "--quotes",
    type=click.Choice(["literal", "csv"]),
    help="Whether quotation marks are text or enclose fields.  [default: csv with commas, else literal]",
)
def tsv(splits: tuple[str, ...], output: str, questions: str, name: str | None, **layout: Any) -> None:
    """Import your own table: a header line, then one row for each question and candidate.

    Columns are found by the names in the header; others are ignored.
    """
    from aptool.datasets.importing import parse_splits
    from aptool.datasets.tabular import Layout, build_tsv

    delimiter = layout["delimiter"]
    if delimiter == "\\t":
        layout["delimiter"] = "\t"
    elif delimiter is not None and (len(delimiter) != 1 or delimiter in '"\r\n'):
        raise UsageError(f"--delimiter {delimiter!r}: expected one character other than a quotation mark")
    given = Layout(**{**layout, "answer": layout["answer"] or "answer"})
    named = name or _name_of(output)
    _report(build_tsv(output, parse_splits(splits), given, name=named, questions=questions), given)


@import_.command()
@_splits
@_output
@_questions
@_columns
@click.option("--candidates", default="candidates", metavar="NAME", show_default=True, help="Their list.")
def jsonl(splits: tuple[str, ...], output: str, questions: str, name: str | None, **layout: Any) -> None:
    """Import your own JSON Lines: one object for each question with its candidates.

    {"question": "...", "candidates": [{"text": "...", "label": 1}, ...]}
    """
    from aptool.datasets.importing import parse_splits
    from aptool.datasets.tabular import Layout, build_jsonl

    given = Layout(**{**layout, "answer": layout["answer"] or "text"})
    named = name or _name_of(output)
    _report(build_jsonl(output, parse_splits(splits), given, name=named, questions=questions), given)


@data.command()
@click.argument("out", metavar="OUT")
@click.option(
    "--like",
    type=click.Choice(["insuranceqa", "trecqa", "wikiqa"]),
    required=True,
    help="Whose shape it takes.",
)
@click.option("--scale", type=float, default=1.0, show_default=True, help="Factor on questions and answers.")
@click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True)
def synthetic(out: str, like: str, scale: float, seed: int) -> None:
    """Make a collection of made-up words in a published shape, for measuring."""
    from aptool.datasets.synthetic import build

    _report(build(out, like=like, scale=scale, seed=seed))


@data.command()
@click.argument("collection", metavar="COLLECTION")
@click.option("--vectors", metavar="FILE", help="Also count the words that these vectors lack.")
@click.option(
    "--words",
    type=click.Choice(["tokenizer", "spaces"]),
    default="tokenizer",
    show_default=True,
    help="What counts as a word: the tokenizer's, or what stands between spaces (closer to the paper's).",
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON, in full precision.")
def stats(collection: str, vectors: str | None, words: Any, as_json: bool) -> None:
    """Describe a collection: the paper's table 1, and what else matters."""
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
    """Validate pools, answers, qrels, run files, and collections.

    Exits with 1 if anything is wrong with any of them.
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
        logger.info(f"{bad} of {len(paths)} not valid")
        context.exit(1)


def _name_of(output: str) -> str:
    return re.sub(r"\s+", "-", Path(output).resolve().name) or "collection"


def _report(collection: Collection, layout: Layout | None = None) -> None:
    """A short table of what was made on stdout; on stderr where it is, and which policies did what."""
    manifest = collection.manifest
    read = manifest.get("details", {}).get("read", {})
    rows = [["split", "questions", "candidates", "right"]]
    if read:
        rows[0] += ["questions read", "candidates read"]
    for split, counts in manifest["splits"].items():
        values = [*counts.values(), *read.get(split, {}).values()]
        rows.append([split, *(f"{value:,}" for value in values)])
    _print_table(rows)
    for policy, touched in manifest["policies"].items():
        for split, count in touched.items():
            if count:
                logger.info(f"{split}: {policy.replace('_', ' ')}: {count:,}")
    if layout is not None and layout.question_id is None:
        logger.info("questions with the same text are one question (--question-id tells them apart)")
    logger.info(f"written: {collection.path}")


def _print_statistics(found: Statistics) -> None:
    splits = found.splits.values()
    rows = [["", *found.splits]]
    for title, shown in (
        ("questions", [f"{s.questions:,}" for s in splits]),
        ("M: words per question", [f"{s.M:.2f}" for s in splits]),
        ("L: words per right answer", [f"{s.L:.2f}" for s in splits]),
        ("L over all candidates", [f"{s.L_all:.2f}" for s in splits]),
        ("L/M, mean over right answers", [f"{s.L_over_M:.2f}" for s in splits]),
        ("candidates", [f"{s.candidates:,}" for s in splits]),
        ("candidates per question", [f"{s.pool_mean:.2f}" for s in splits]),
        ("smallest, largest pool", [f"{s.pool_least}, {s.pool_most}" for s in splits]),
        ("right answers", [f"{s.right:,}" for s in splits]),
        ("right answers per question", [f"{s.right_mean:.2f}" for s in splits]),
        ("questions without right answer", [f"{s.without_right:,}" for s in splits]),
        ("questions without wrong candidate", [f"{s.without_wrong:,}" for s in splits]),
        ("right answers not in the pool", [f"{s.right_not_in_pool:,}" for s in splits]),
        ("questions without right one in pool", [f"{s.questions_without_right_in_pool:,}" for s in splits]),
        ("distinct answer texts", [f"{s.distinct_answers:,}" for s in splits]),
        ("texts repeated in a pool", [f"{s.repeated_texts:,}" for s in splits]),
    ):
        rows.append([title, *shown])
    for policy, touched in found.policies.items():
        if any(touched.values()):
            shown = [f"{touched.get(split, 0):,}" for split in found.splits]
            rows.append([f"at import: {policy.replace('_', ' ')}", *shown])
    counted = "the tokenizer's" if found.words == "tokenizer" else "what stands between spaces"
    click.echo(f"{found.name} (words are {counted})")
    _print_table(rows)
    click.echo(f"{found.types:,} different words, {found.tokens:,} in all questions and distinct answers")
    if found.coverage is not None:
        c = found.coverage
        types, tokens = c.unknown_types / max(1, c.types), c.unknown_tokens / max(1, c.tokens)
        click.echo(
            f"without a vector: {c.unknown_types:,} different words ({types:.1%}), "
            f"{c.unknown_tokens:,} in all ({tokens:.1%})"
        )


def _print_table(rows: Sequence[Sequence[str]]) -> None:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for first, *others in rows:
        aligned = (cell.rjust(width) for cell, width in zip(others, widths[1:], strict=True))
        click.echo("  ".join([first.ljust(widths[0]), *aligned]))
