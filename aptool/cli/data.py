"""``aptool data``: make, import, describe and check collections."""

from __future__ import annotations

import json
import logging
from typing import TYPE_CHECKING, Any

import click

from aptool.cli import retrieval
from aptool.cli.collections import output_option, questions_option, report_collection, splits_argument
from aptool.cli.data_own import OWN_FORMATS
from aptool.cli.parameters import LOCATION, HiddenArgument, one_output, whole_number
from aptool.cli.retrieval import pools
from aptool.cli.tables import print_table
from aptool.errors import AptoolError

if TYPE_CHECKING:
    from aptool.datasets.stats import Statistics
    from aptool.formats.location import Location

logger = logging.getLogger(__name__)

_output_or_argument = click.option(
    "--output",
    metavar="FOLDER",
    type=LOCATION,
    help="Folder of the collection to write.",
)


@click.group()
def data() -> None:
    """Make, import, describe and check collections."""


@data.command()
@click.argument("out", cls=HiddenArgument, required=False, type=LOCATION)
@_output_or_argument
@click.option("--limit", type=whole_number(0), metavar="N", help="Maximum number of functions.")
def functions(out: Location | None, output: Location | None, limit: int | None) -> None:
    """Build the collection of functions: code search over the installed Python packages."""
    from aptool.datasets.functions import import_functions
    from aptool.datasets.importing import check_output
    from aptool.formats.collection import CollectionFiles

    out = one_output(output, out)
    check_output(out)
    import_functions(out, limit=limit)
    report_collection(CollectionFiles(out))


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
    from aptool.formats.collection import CollectionFiles

    found = describe(CollectionFiles(collection), vectors=vectors, words=words)
    if as_json:
        click.echo(json.dumps(found.to_dict(), indent=2, ensure_ascii=False))
    else:
        _print_statistics(found)


@data.command()
@click.argument("paths", metavar="PATH...", nargs=-1, required=True)
@click.option("--leaks", is_flag=True, help="Also count near copies of a split in the splits before it.")
@click.pass_context
def check(context: click.Context, paths: tuple[str, ...], leaks: bool) -> None:
    """Validate pools, answers, qrels, runs and collections.

    The exit code is 1 if any of them is invalid.
    """
    from aptool.datasets.check import check_path
    from aptool.formats.location import location

    bad = 0
    for path in paths:
        try:
            click.echo(f"{path}: {check_path(path)}")
            if leaks and location(path).is_dir():
                _print_leaks(path)
        except AptoolError as error:
            bad += 1
            click.echo(str(error))
    if bad:
        logger.info(f"{bad} of {len(paths)} invalid")
        context.exit(1)


@data.command()
@click.argument("collection", metavar="COLLECTION")
@click.option("--folds", type=click.IntRange(2, 1000), default=5, show_default=True, help="Number of folds.")
@click.option(
    "--split",
    "splits",
    multiple=True,
    default=("train", "dev"),
    show_default=True,
    help="Split whose questions are used; repeatable.",
)
@click.option("--output", metavar="FOLDER", required=True, help="Folder to write: FOLDER/fold1 and so on.")
def folds(collection: str, folds: int, splits: tuple[str, ...], output: str) -> None:
    """Split the questions of COLLECTION into folds, each a collection with a train and a dev split.

    Near copies of a question stay in one fold; the same collection gives the same folds.
    """
    from aptool.datasets.folds import write_folds
    from aptool.formats.collection import CollectionFiles

    for fold in write_folds(CollectionFiles(collection), output, folds, splits):
        counts = fold.manifest["splits"]
        click.echo(f"{fold.path}: {counts['train']['questions']:,} train, {counts['dev']['questions']:,} dev")


data.add_command(pools)


def _print_leaks(path: str) -> None:
    """Near copies of questions and of relevant answers, for every split and each one before it."""
    from aptool.datasets.leaks import find_leaks
    from aptool.formats.collection import CollectionFiles

    for leak in find_leaks(CollectionFiles(path)):
        click.echo(
            f"  {leak.near_questions:,} of {leak.questions:,} questions of {leak.split} have a near copy in "
            f"{leak.earlier} ({leak.same_questions:,} word for word), {leak.near_answers:,} of "
            f"{leak.answers:,} relevant answers ({leak.same_answers:,} word for word)"
        )
        if leak.examples:
            pairs = ", ".join(f"{own} and {other}" for own, other in leak.examples)
            click.echo(f"    questions such as {pairs}")


def _print_statistics(found: Statistics) -> None:
    splits = found.splits.values()
    rows = [["", *found.splits]]
    for title, shown in (
        ("questions", [f"{s.questions:,}" for s in splits]),
        ("M: words per question", [f"{s.M:.2f}" for s in splits]),
        ("L: words per relevant answer", [_shown(s.L, ".2f") for s in splits]),
        ("L over all candidates", [f"{s.L_all:.2f}" for s in splits]),
        ("L/M, mean over relevant answers", [_shown(s.L_over_M, ".2f") for s in splits]),
        ("candidates", [f"{s.candidates:,}" for s in splits]),
        ("candidates per question", [f"{s.pool_mean:.2f}" for s in splits]),
        ("smallest, largest pool", [f"{s.pool_least}, {s.pool_most}" for s in splits]),
        ("relevant answers", [_shown(s.relevant, ",") for s in splits]),
        ("relevant answers per question", [_shown(s.relevant_mean, ".2f") for s in splits]),
        ("questions without relevant answer", [_shown(s.without_relevant, ",") for s in splits]),
        ("questions without non-relevant candidate", [_shown(s.without_nonrelevant, ",") for s in splits]),
        ("relevant answers not in the pool", [_shown(s.relevant_not_in_pool, ",") for s in splits]),
        (
            "questions without relevant candidate",
            [_shown(s.questions_without_relevant_in_pool, ",") for s in splits],
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


def _shown(figure: float | None, form: str) -> str:
    """A figure, or a dash where a split has no labels."""
    return "-" if figure is None else format(figure, form)


@click.group(name="import")
def import_() -> None:
    """Import a published data set, or one of your own.

    PATH may be a URL that fsspec knows, such as https://... or hf://datasets/...
    """


@import_.command()
@splits_argument
@output_option
@questions_option
def wikiqa(splits: tuple[str, ...], output: str, questions: str) -> None:
    """Import WikiQA: its TSV files, or the Parquet files of the hub's microsoft/wiki_qa.

    The paper's questions are those of --questions answerable.
    """
    from aptool.datasets.importing import parse_splits
    from aptool.datasets.wikiqa import import_wikiqa

    report_collection(import_wikiqa(output, parse_splits(splits), questions=questions))


@import_.command()
@splits_argument
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
    from aptool.datasets.trecqa import Variant, import_trecqa

    stated = cast("Variant | None", variant)
    collection = import_trecqa(output, parse_splits(splits), questions=questions, variant=stated)
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
    from aptool.datasets.insuranceqa import import_insuranceqa

    collection = import_insuranceqa(
        output, folder, questions=questions, pool_size=int(pool_size), tokens=tokens
    )
    for split in collection.manifest["details"].get("splits_not_found", []):
        logger.info(f"{split}: skipped, its file is not in {folder}")
    report_collection(collection)


for _command in (*OWN_FORMATS, retrieval.beir, retrieval.mteb, retrieval.msmarco, retrieval.ir_datasets):
    import_.add_command(_command)
import_.add_command(retrieval.pools, "pyserini")  # a run and a corpus, whatever made the run


data.add_command(import_)
