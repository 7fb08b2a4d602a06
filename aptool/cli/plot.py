"""``aptool plot``: charts of runs, training histories and costs, each with its data as CSV."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from aptool.cli.parameters import overwrite_option, with_options
from aptool.cli.runs import pools_given, pools_option, qrels_of, qrels_option, short_names
from aptool.errors import AptoolError, UsageError

if TYPE_CHECKING:
    from collections.abc import Callable

    import polars as pl

    from aptool.library.evaluated_runs import EvaluatedRuns


def _files(output: str) -> list[Path]:
    """The files that a plot may write."""
    path = Path(output)
    return [path.with_suffix(suffix) for suffix in (".csv", ".png", ".svg")]


_output = with_options(
    click.option(
        "--output",
        metavar="FILE",
        required=True,
        help="PNG or SVG file, or a name without suffix for both; also writes a CSV.",
    ),
    overwrite_option("PLOT", files=_files),
)


@click.group("plot")
def plot() -> None:
    """Plot runs, training histories or costs as PNG or SVG, with the data as CSV."""


@plot.command("lengths")
@click.argument("runs", metavar="RUN...", nargs=-1, required=True)
@qrels_option
@pools_option
@_output
def lengths(runs: tuple[str, ...], qrels: str | None, pools: tuple[str, ...], output: str) -> None:
    """Plot accuracy by maximum length of the relevant answer."""
    from aptool.evaluation.texts import relevant_lengths
    from aptool.reporting.charts import accuracy_by_length, with_enough_questions
    from aptool.reporting.plots import plot_accuracy_by_length, plot_files

    plot_files(output)
    qrels, evaluated = _evaluate(runs, qrels)
    judgements = evaluated.qrels.frame
    accuracy = {name: evaluation.per_question for name, evaluation in evaluated.evaluations.items()}
    texts = pools_given(pools, qrels)
    if texts is None:
        raise UsageError(f"{qrels}: no pools in its folder; pass --pools POOLS")
    with texts.files() as (files, answers):
        tokens = relevant_lengths(files, judgements, answers)
    if tokens.is_empty():
        raise AptoolError(f"{', '.join(files)}: no relevant answer of {qrels}; expected at least one")
    _save(
        lambda points: plot_accuracy_by_length(with_enough_questions(points)),
        accuracy_by_length(accuracy, tokens),
        output,
    )


@plot.command("scores")
@click.argument("runs", metavar="RUN...", nargs=-1, required=True)
@qrels_option
@_output
def scores(runs: tuple[str, ...], qrels: str | None, output: str) -> None:
    """Plot score distributions of relevant and non-relevant candidates."""
    from aptool.reporting.charts import score_distribution
    from aptool.reporting.plots import plot_files, plot_scores

    plot_files(output)
    _, evaluated = _evaluate(runs, qrels)
    frames = {name: run.frame for name, run in evaluated.runs.items()}
    _save(plot_scores, score_distribution(frames, evaluated.qrels.frame), output)


@plot.command("training")
@click.argument("models", metavar="MODEL...", nargs=-1, required=True)
@click.option("--measure", metavar="NAME", help="Dev measure.  [default: first one in the history]")
@_output
def training(models: tuple[str, ...], measure: str | None, output: str) -> None:
    """Plot loss and a dev measure per epoch."""
    from aptool.evaluation.names import common_name
    from aptool.reporting.charts import read_history, training_curves
    from aptool.reporting.plots import plot_files, plot_training

    plot_files(output)
    models = tuple(dict.fromkeys(model.rstrip("/") for model in models))
    curves = training_curves({name: read_history(model) for model, name in short_names(models).items()})
    measures = [column.removeprefix("dev_") for column in curves.columns if column.startswith("dev_")]
    measure = measure if measure is None else common_name(measure) or measure
    if measure is not None and measure not in measures:
        expected = f"one of {', '.join(measures)}" if measures else "none, as the history has no dev measures"
        raise UsageError(f"--measure {measure}: expected {expected}")
    columns = ["loss", *(f"dev_{name}" for name in ([measure] if measure else measures[:1]))]
    _save(lambda data: plot_training(data, columns), curves, output)


@plot.command("costs")
@click.argument("runs", metavar="RUNS")
@click.option("--collection", metavar="NAME", help="Collection in RUNS.  [default: first one]")
@click.option("--measure", metavar="NAME", help="Measure in RUNS.  [default: first one]")
@_output
def costs(runs: str, collection: str | None, measure: str | None, output: str) -> None:
    """Plot accuracy by bytes per answer and by pairs per second.

    RUNS is the output folder of `aptool matrix`. Each point is a trained system.
    """
    from aptool.evaluation.names import common_name
    from aptool.reporting.charts import COSTS, cost_table
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
    data = table.filter(collection=collection if collection is not None else names[0])
    _save(lambda data: plot_costs(data, measure, COSTS), data, output)


def _evaluate(runs: tuple[str, ...], qrels: str | None) -> tuple[str, EvaluatedRuns]:
    """Return the path of the qrels, and P@1 of the runs by their short names."""
    from aptool.library.evaluated_runs import evaluate_runs
    from aptool.library.run import Qrels, Run

    names = short_names(tuple(dict.fromkeys(runs)))
    loaded = {name: Run.load(run) for run, name in names.items()}
    path = qrels_of(runs, qrels)
    return path, evaluate_runs(Qrels.load(path), loaded, ("P@1",))


def _save(draw: Callable[[pl.DataFrame], Any], data: pl.DataFrame, output: str) -> None:
    from aptool.reporting.plots import save_plot

    for file in save_plot(draw(data), data, output):
        click.echo(file)
