"""``aptool data``: build, import, check and describe collections."""

from __future__ import annotations

import json
import logging
from dataclasses import asdict
from typing import TYPE_CHECKING

import click

from aptool.cli.imports import RELEVANT_MISSING, import_, output_option, report_collection
from aptool.cli.parameters import Count, json_option, overwrite_flag, seed_option
from aptool.cli.tables import print_table
from aptool.errors import AptoolError, printable

if TYPE_CHECKING:
    from aptool.data.stats import Statistics

logger = logging.getLogger(__name__)

# Title and text of each row of `aptool data stats`, from the attributes of `stats.SplitStatistics`.
_STATISTICS = {
    "questions": "{questions:,}",
    "M: words per question": "{M:.2f}",
    "L: words per relevant answer": "{L:.2f}",
    "L over all candidates": "{L_all:.2f}",
    "L/M, mean over relevant answers": "{L_over_M:.2f}",
    "candidates": "{candidates:,}",
    "candidates per question": "{pool_mean:.2f}",
    "smallest, largest pool": "{pool_least}, {pool_most}",
    "relevant answers": "{relevant:,}",
    "questions without relevant answer": "{without_relevant:,}",
    "questions without non-relevant candidate": "{without_nonrelevant:,}",
    "relevant answers not in the pool": "{relevant_not_in_pool:,}",
    "questions without relevant candidate": "{questions_without_relevant_in_pool:,}",
    "distinct answer texts": "{distinct_answers:,}",
}


@click.group()
def data() -> None:
    """Build, import, check and describe collections."""


@data.command()
@output_option
@click.option("--limit", type=Count(0), metavar="N", help="Maximum number of functions.  [default: no limit]")
def functions(output: str, overwrite: bool, limit: int | None) -> None:
    """Build a code-search collection from the installed Python packages."""
    from aptool.data.collection import Collection
    from aptool.data.functions import import_functions

    import_functions(output, limit=limit, overwrite=overwrite)
    report_collection(Collection(output))


@data.command()
@click.argument("collection", metavar="COLLECTION")
@json_option
def stats(collection: str, as_json: bool) -> None:
    """Print statistics of a collection."""
    from aptool.data.collection import Collection
    from aptool.data.stats import describe

    statistics = describe(Collection(collection))
    if as_json:
        click.echo(json.dumps(asdict(statistics), indent=2, ensure_ascii=False))
    else:
        _print_statistics(statistics)


@data.command()
@click.argument("paths", metavar="PATH...", nargs=-1, required=True)
@click.option("--leaks", is_flag=True, help="Count near copies between splits (data leakage).")
@click.pass_context
def check(context: click.Context, paths: tuple[str, ...], leaks: bool) -> None:
    """Validate pools, answers, qrels, runs and collections.

    The exit code is 1 if a path is invalid.
    """
    from aptool.data.check import check_path, is_collection

    invalid = 0
    for path in paths:
        try:
            click.echo(f"{path}: {check_path(path)}")
            if leaks and is_collection(path):
                _print_leaks(path)
        except AptoolError as error:
            invalid += 1
            click.echo(str(error))
    if invalid:
        logger.info(f"{invalid} of {len(paths)} invalid")
        context.exit(1)


@data.command()
@click.argument("collection", metavar="COLLECTION")
@click.option(
    "--folds",
    type=Count(2, 1000),
    default=5,
    metavar="N",
    help="Number of folds, 2 to 1000.",
)
@click.option(
    "--split",
    "splits",
    multiple=True,
    default=("train", "dev"),
    metavar="SPLIT",
    help="Split to take questions from; repeatable.",
)
@click.option(
    "--pool-size",
    type=Count(2),
    default=500,
    metavar="N",
    help="Candidates per dev question, if its split has relevant candidates only: further ones are drawn.",
)
@seed_option
@click.option("--output", metavar="FOLDER", required=True, help="Folder of the folds: FOLDER/fold1 etc.")
@overwrite_flag
def folds(
    collection: str,
    folds: int,
    splits: tuple[str, ...],
    pool_size: int,
    seed: int,
    output: str,
    overwrite: bool,
) -> None:
    """Split COLLECTION into cross-validation folds.

    Each fold is a collection with a train and a dev split. Near duplicates stay in one fold. The same
    collection always gives the same folds; --seed only draws the answers of --pool-size.
    """
    from aptool.data.collection import Collection
    from aptool.data.folds import write_folds

    written = write_folds(
        Collection(collection),
        output,
        folds,
        splits,
        pool_size=pool_size,
        seed=seed,
        overwrite=overwrite,
    )
    for fold in written:
        counts = fold.manifest["splits"]
        click.echo(f"{fold.path}: {counts['train']['questions']:,} train, {counts['dev']['questions']:,} dev")


def _print_leaks(path: str) -> None:
    """Print the near copies of questions and relevant answers between each pair of splits."""
    from aptool.data.check import find_leaks
    from aptool.data.collection import Collection

    collection = Collection(path)
    if len(collection.splits) == 1:
        click.echo(f"  {collection.splits[0]} is the only split: no leaks to look for")
    for leak in find_leaks(collection):
        click.echo(
            f"  {leak.questions.near:,} of {leak.questions.total:,} questions of {leak.split} have a near "
            f"copy in {leak.earlier} ({leak.questions.same:,} word for word), {leak.answers.near:,} of "
            f"{leak.answers.total:,} relevant answers ({leak.answers.same:,} word for word)"
        )
        if leak.examples:
            pairs = ", ".join(f"{question} and {earlier}" for question, earlier in leak.examples)
            click.echo(printable(f"    questions such as {pairs}"))


def _print_statistics(statistics: Statistics) -> None:
    rows = [["", *statistics.splits]]
    for title, text in _STATISTICS.items():
        rows.append([title, *(text.format_map(vars(split)) for split in statistics.splits.values())])
    for policy, touched in statistics.policies.items():
        if any(touched.values()) and policy != RELEVANT_MISSING:  # it has a row above
            shown = [f"{touched.get(split, 0):,}" for split in statistics.splits]
            rows.append([f"at import: {policy.replace('_', ' ')}", *shown])
    click.echo(statistics.name)
    print_table(rows)


data.add_command(import_)
