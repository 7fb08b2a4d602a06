"""``--review`` of ``aptool eval`` and ``aptool compare``."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from aptool.cli.parameters import with_options
from aptool.cli.runs import qrels_beside, short_names
from aptool.cli.tables import print_table
from aptool.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from aptool.library.evaluated_runs import ReviewInputs
    from aptool.library.pools import Pools
    from aptool.reporting.review import Answer

review_options = with_options(
    click.option(
        "--review",
        is_flag=True,
        help="Add a review: statistical power, first-stage recall, metrics per question type, agreement of "
        "the runs, gap to dev, leakage between splits.",
    ),
    click.option(
        "--dev",
        metavar="RUN",
        multiple=True,
        help="Dev run of each RUN, in the same order, for the gap to dev; implies --review.",
    ),
    click.option("--dev-qrels", metavar="QRELS", help="Qrels of --dev.  [default: X.qrels of X.run]"),
)


def check_review(review: bool, runs: tuple[str, ...], dev: tuple[str, ...], dev_qrels: str | None) -> bool:
    """Whether a review is requested; raise if ``--dev`` and ``--dev-qrels`` do not fit the runs."""
    if dev and len(dev) != len(runs):
        raise UsageError(f"--dev: given {len(dev)} times; expected {len(runs)}, one for each run")
    if dev_qrels is not None and not dev:
        raise UsageError("--dev-qrels: requires --dev")
    return review or bool(dev)


def review_inputs(
    runs: Sequence[str],
    dev: dict[str, str],
    dev_qrels: str | None,
    pools: Pools | None,
    confidence: float | None,
) -> ReviewInputs:
    """Return the inputs of a review; ``dev`` maps each run to its dev run."""
    from aptool.evaluation.significance import CONFIDENCE
    from aptool.library.evaluated_runs import ReviewInputs

    if dev and dev_qrels is None:
        dev_qrels = qrels_beside(tuple(dev.values()), option="--dev-qrels")
    return ReviewInputs(short_names(runs), pools, dev, dev_qrels, confidence or CONFIDENCE)


def print_answers(answers: Sequence[Answer], *, err: bool = False) -> None:
    """Print each question of the review with its answer."""
    for answer in answers:
        click.echo(err=err)
        click.echo(answer.question, err=err)
        for sentence in answer.sentences:
            click.echo(click.wrap_text(sentence, 100, "  ", "  "), err=err)
        if answer.rows:
            print_table([["  " + row[0], *row[1:]] for row in answer.rows], err=err)
