"""``--review`` of `aptool eval` and `aptool compare`: its options, and its answers in print."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import click

from aptool.cli.runs import qrels_beside, short_names
from aptool.cli.tables import print_table
from aptool.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from aptool.library.evaluated_runs import ReviewInputs
    from aptool.library.pools import Pools
    from aptool.reporting.review import Answer

Command = TypeVar("Command", bound=Callable[..., Any])


def review_options(command: Command) -> Command:
    """The options ``--review``, ``--dev`` and ``--dev-qrels``."""
    for option in reversed(
        (
            click.option(
                "--review",
                is_flag=True,
                help="Answer the questions a reviewer asks: power, the limit of the first stage, figures by "
                "kind of question, agreement of the runs, the gap to dev, leaks from the splits before.",
            ),
            click.option(
                "--dev",
                metavar="RUN",
                multiple=True,
                help="Run on dev of each run, in their order, for the gap to dev; implies --review.",
            ),
            click.option(
                "--dev-qrels", metavar="QRELS", help="Qrels of dev.  [default: DEV.qrels beside DEV.run]"
            ),
        )
    ):
        command = option(command)
    return command


def check_review(review: bool, runs: tuple[str, ...], dev: tuple[str, ...], dev_qrels: str | None) -> bool:
    """Whether there is to be a review.

    Raises:
        UsageError: there is not one run on dev for each run, or --dev-qrels is given without --dev.
    """
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
    """The inputs of a review; ``dev`` is the run on dev of each run."""
    from aptool.evaluation.significance import CONFIDENCE
    from aptool.library.evaluated_runs import ReviewInputs

    if dev and dev_qrels is None:
        dev_qrels = qrels_beside(tuple(dev.values()), option="--dev-qrels")
    return ReviewInputs(short_names(runs), pools, dev, dev_qrels, confidence or CONFIDENCE)


def print_answers(answers: Sequence[Answer], *, err: bool = False) -> None:
    """Prints each question with its answer; on stderr if stdout holds a table for a paper."""
    for one in answers:
        click.echo(err=err)
        click.echo(one.question, err=err)
        for sentence in one.sentences:
            click.echo(click.wrap_text(sentence, 100, "  ", "  "), err=err)
        if one.rows:
            print_table([["  " + row[0], *row[1:]] for row in one.rows], err=err)
