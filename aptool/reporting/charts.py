"""Charts of the report: the figures of `reporting.plots` as images, each with its data as a table."""

from base64 import b64encode
from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

import polars as pl

from aptool.evaluation.texts import relevant_lengths
from aptool.formats.pools import read_answers
from aptool.formats.trec import read_qrels, read_run
from aptool.reporting.curves import (
    COSTS,
    accuracy_by_length,
    read_history,
    score_distribution,
    training_curves,
    was_trained,
    with_enough_questions,
)
from aptool.reporting.plots import plot_accuracy_by_length, plot_costs, plot_scores, plot_training, svg
from aptool.reporting.runs import CollectionResults, SystemResults

if TYPE_CHECKING:
    from matplotlib.figure import Figure


class Chart(NamedTuple):
    """A chart in the report."""

    title: str
    note: str
    image: str  # data URL of an SVG file
    table: list[list[str]]  # column titles first


def draw_charts(results: CollectionResults, costs: pl.DataFrame) -> Iterator[Chart]:
    """Draw the charts of a collection that have data; ``costs`` are its rows of `curves.cost_table`.

    Lines are those of the trained systems and the baseline: lines of fusions would hide them.
    """
    main = results.measures[0]
    trained = [system for system in results.systems if system.configs]
    shown = sorted(trained or results.systems, key=lambda system: -system.means[main])
    if trained:
        baselines = (system for system in results.systems if not system.configs)
        shown += [system for system in baselines if system.name == results.baseline]
    qrels = read_qrels(results.collection.qrels(results.split))
    lengths = _by_length(results, shown, qrels)
    if len(lengths):
        note = "Over the questions whose relevant answer has at most this many words."
        yield _chart("P@1 by length of the relevant answer", note, plot_accuracy_by_length(lengths), lengths)
    histories = _histories(shown)
    if histories is not None:
        measures = [name for name in histories.columns if name.startswith("dev_")]
        columns = ["loss", *([f"dev_{main}"] if f"dev_{main}" in measures else measures[:1])]
        means = histories.group_by("system", "epoch", maintain_order=True).agg(pl.col(columns).mean())
        means = means.sort("epoch", maintain_order=True)
        note = "Means over seeds. Different losses are not comparable."
        yield _chart("Training by epoch", note, plot_training(means, columns), means)
    titles = {name: title for name, title in COSTS.items() if costs[name].drop_nulls().n_unique() > 1}
    if titles:
        order = pl.DataFrame({"system": [system.name for system in shown]})
        ordered = costs.join(order, on="system", maintain_order="right").select("system", *titles, main)
        table = ordered.with_columns(pl.col(list(titles)).round().cast(pl.Int64)).rename(titles)
        note = "Means over seeds; the axes of the costs are logarithmic."
        yield _chart(f"{main} by cost", note, plot_costs(ordered, main, titles), table)
    runs = {system.name: read_run(system.entries[0].run).frame for system in results.systems}
    for (name,), shares in score_distribution(runs, qrels).partition_by("system", as_dict=True).items():
        yield _chart(f"Scores of {name}", "As shares of the candidates.", plot_scores(shares), shares)


def _by_length(results: CollectionResults, shown: list[SystemResults], qrels: pl.DataFrame) -> pl.DataFrame:
    """The accuracy by answer length: system, length, questions, accuracy."""
    collection = results.collection
    answers = read_answers(collection.answers) if collection.answers else None
    lengths = relevant_lengths([collection.pools(results.split)], qrels, answers)
    accuracy = {system.name: system.per_question for system in shown}
    return with_enough_questions(accuracy_by_length(accuracy, lengths))


def _histories(systems: list[SystemResults]) -> pl.DataFrame | None:
    """The training histories of all seeds; None without trained systems."""
    parts = [
        training_curves({system.name: read_history(entry.model)})
        for system in systems
        for entry in system.entries
        if entry.model is not None and was_trained(entry.model)
    ]
    return pl.concat(parts, how="diagonal_relaxed") if parts else None


def _chart(title: str, note: str, figure: "Figure", data: pl.DataFrame) -> Chart:
    image = f"data:image/svg+xml;base64,{b64encode(svg(figure).encode()).decode()}"
    rows = [[_cell(value) for value in row] for row in data.iter_rows()]
    return Chart(title, note, image, [data.columns, *rows])


def _cell(value: str | float | None) -> str:
    if isinstance(value, float):
        return f"{value:.4f}"
    if isinstance(value, int):
        return f"{value:,}"
    return value or ""
