"""``aptool plot``: charts of runs, of training and of costs, each with its data as CSV."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import click

from aptool.cli.runs import pools_given, pools_option, qrels_beside, qrels_option, short_names
from aptool.errors import AptoolError, UsageError

if TYPE_CHECKING:
    from collections.abc import Callable

    import polars as pl


class _Runs(NamedTuple):
    """Runs and their qrels; runs by their names in a chart."""

    path: str  # of the qrels
    qrels: pl.DataFrame
    runs: dict[str, pl.DataFrame]
    accuracy: dict[str, pl.DataFrame]  # question_id, P_1


_output = click.option(
    "--output",
    metavar="FILE",
    required=True,
    help="A .png or .svg file, or a name without suffix for both; the data are written beside it as .csv.",
)


@click.group("plot")
def plot() -> None:
    """Draw charts of runs, training or costs as PNG or SVG, with their data as CSV."""


@plot.command("lengths")
@click.argument("runs", metavar="RUN...", nargs=-1, required=True)
@qrels_option
@pools_option
@_output
def lengths(runs: tuple[str, ...], qrels: str | None, pools: tuple[str, ...], output: str) -> None:
    """Draw accuracy by the maximum length of the relevant answer (figures 3 and 4 of the paper)."""
    from aptool.reporting.curves import accuracy_by_length, relevant_lengths
    from aptool.reporting.plots import plot_accuracy_by_length, plot_files

    plot_files(output)
    read = _read(runs, qrels)
    given = pools_given(pools, read.path)
    if given is None:
        raise UsageError(f"no pools beside {read.path}; pass --pools POOLS")
    with given.files() as (files, answers):
        tokens = relevant_lengths(files, read.qrels, answers)
    if tokens.is_empty():
        raise AptoolError(f"{', '.join(files)}: no relevant answer of {read.path}; expected at least one")
    _save(plot_accuracy_by_length, accuracy_by_length(read.accuracy, tokens), output)


@plot.command("scores")
@click.argument("runs", metavar="RUN...", nargs=-1, required=True)
@qrels_option
@_output
def scores(runs: tuple[str, ...], qrels: str | None, output: str) -> None:
    """Draw the distributions of the scores of relevant answers and of other candidates."""
    from aptool.reporting.curves import score_distribution
    from aptool.reporting.plots import plot_files, plot_scores

    plot_files(output)
    read = _read(runs, qrels)
    _save(plot_scores, score_distribution(read.runs, read.qrels), output)


@plot.command("training")
@click.argument("models", metavar="MODEL...", nargs=-1, required=True)
@click.option("--measure", metavar="NAME", help="Measure on dev.  [default: the first one in the history]")
@_output
def training(models: tuple[str, ...], measure: str | None, output: str) -> None:
    """Draw the loss and a measure on dev by epoch."""
    from aptool.evaluation.names import common_name
    from aptool.reporting.curves import read_history, training_curves
    from aptool.reporting.plots import plot_files, plot_training

    plot_files(output)
    models = tuple(dict.fromkeys(model.rstrip("/") for model in models))
    names = short_names(list(models))
    curves = training_curves(
        {name: read_history(model) for model, name in zip(models, names.values(), strict=True)}
    )
    kept = [column.removeprefix("dev_") for column in curves.columns if column.startswith("dev_")]
    measure = measure if measure is None else common_name(measure) or measure
    if measure is not None and measure not in kept:
        raise UsageError(
            f"--measure {measure}: expected one of {', '.join(kept) or 'the measures on dev; there are none'}"
        )
    column = None if measure is None else f"dev_{measure}"
    _save(lambda data: plot_training(data, measure=column), curves, output)


@plot.command("costs")
@click.argument("runs", metavar="RUNS")
@click.option("--collection", metavar="NAME", help="Collection in RUNS.  [default: the first one]")
@click.option("--measure", metavar="NAME", help="Measure of the table of RUNS.  [default: its first one]")
@_output
def costs(runs: str, collection: str | None, measure: str | None, output: str) -> None:
    """Draw accuracy against the bytes kept of an answer, and against the pairs scored in a second.

    RUNS is the folder that `aptool matrix` wrote; the points are its trained systems.
    """
    from aptool.evaluation.names import common_name
    from aptool.reporting.curves import COSTS, cost_table
    from aptool.reporting.plots import plot_costs, plot_files
    from aptool.reporting.runs import read_runs

    plot_files(output)
    read = read_runs(runs)
    measure = read.measures[0] if measure is None else common_name(measure) or measure
    if measure not in read.measures:
        raise UsageError(f"--measure {measure}: expected one of {', '.join(read.measures)}")
    table = cost_table(read, measure)
    names = table["collection"].unique(maintain_order=True).to_list()
    if not names:
        raise AptoolError(f"{runs}: no trained system with costs; expected a folder of `aptool matrix`")
    if collection is not None and collection not in names:
        raise UsageError(f"--collection {collection}: expected one of {', '.join(names)}")
    own = table.filter(collection=collection if collection is not None else names[0])
    _save(lambda data: plot_costs(data, measure, COSTS), own, output)


def _read(runs: tuple[str, ...], qrels: str | None) -> _Runs:
    from aptool.evaluation.measures import evaluate
    from aptool.formats.trec import read_qrels, read_run

    names = short_names(tuple(dict.fromkeys(runs)))
    frames = {run: read_run(run).frame for run in names}
    path = qrels or qrels_beside(runs)
    judgements = read_qrels(path)
    accuracy = {
        names[run]: evaluate(judgements, frame, ["P@1"], run_name=run, qrels_name=path).per_question
        for run, frame in frames.items()
    }
    return _Runs(path, judgements, {names[run]: frame for run, frame in frames.items()}, accuracy)


def _save(draw: Callable[[pl.DataFrame], Any], data: pl.DataFrame, output: str) -> None:
    from aptool.reporting.plots import save_plot

    for file in save_plot(draw(data), data, output):
        click.echo(file)
