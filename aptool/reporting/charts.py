"""Charts of runs: accuracy by answer length, training curves, distributions of scores, costs.

Their data as tables, and the charts of the report, drawn by `reporting.plots`.
"""

import math
from base64 import b64encode
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import polars as pl

from aptool.data.runs import read_run
from aptool.data.trec import read_qrels
from aptool.documents import parse_json
from aptool.errors import AptoolError, InputError
from aptool.evaluation.evaluation import averages, in_groups, mean_intervals
from aptool.files import stat
from aptool.paths import PathOrUrl, location
from aptool.reporting.plots import plot_accuracy_by_length, plot_costs, plot_scores, plot_training, svg
from aptool.reporting.runs import ACCURACY, TABLE, CollectionResults, Runs, SystemResults

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# Results over fewer questions are not shown: a single question changes them too much.
LEAST_QUESTIONS = 20
_LEAST_SHARE = 0.05  # of all questions, where that is fewer
HISTORY = "training/history.jsonl"
_LARGEST_EPOCH, _LARGEST = 1e9, 1e38  # in a history: axes overflow beyond, and integers have 64 bits
# Columns of costs and their titles in charts.
COSTS = {"bytes_per_answer": "bytes per answer", "pairs_per_second": "pairs per second"}


def accuracy_by_length(accuracy: Mapping[str, pl.DataFrame], groups: pl.DataFrame) -> pl.DataFrame:
    """Accuracy by the maximum length of the relevant answer (figures 3 and 4 of the paper).

    ``accuracy`` has question_id and `ACCURACY` of each system, and ``groups`` is a table of
    `texts.groups_by_length`; questions without a relevant candidate are in no group. Returns system, length
    (the maximum), questions (their number), accuracy, low, high (its 95% interval), for the lengths with at
    least `LEAST_QUESTIONS` or 5% of the questions.
    """
    least = min(LEAST_QUESTIONS, _LEAST_SHARE * groups["question_id"].n_unique())
    lengths = dict(groups.select("group", "position").unique().iter_rows())
    rows = [
        (system, lengths[name], group.height, averages(group)[ACCURACY], *mean_intervals(group)[ACCURACY])
        for system, frame in accuracy.items()
        for name, group in in_groups(frame.select("question_id", ACCURACY), groups).items()
        if group.height >= least
    ]
    numbers = dict.fromkeys(("accuracy", "low", "high"), pl.Float64)
    schema = {"system": pl.String, "length": pl.Int64, "questions": pl.Int64, **numbers}
    return pl.DataFrame(rows, schema=schema, orient="row")


def was_trained(model: PathOrUrl) -> bool:
    """Whether a model was trained for at least one epoch."""
    path = location(model) / HISTORY
    return not path.is_file() or stat(path).size > 0


def read_history(model: PathOrUrl) -> pl.DataFrame:
    """Read the training history of a model folder.

    Returns:
        One row per epoch: epoch, loss (mean loss), active (share of pairs with a loss), learning_rate,
        ``dev_NAME`` for each measure on the dev split, and ``seconds_NAME``; only recorded columns.
    """
    path = location(model) / HISTORY
    if not path.is_file():
        raise InputError(path, problem="file not found", expected="the history of a trained model")
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except UnicodeDecodeError as error:
        raise InputError(path, problem=str(error), expected="text in UTF-8") from error
    rows = []
    for number, line in enumerate(lines, 1):
        expected, position = "a JSON object with the keys 'epoch' and 'loss'", f"line {number}"
        entry = parse_json(line, path, position=position, expected=expected)
        if not isinstance(entry, dict) or not {"epoch", "loss"} <= entry.keys():
            raise InputError(path, position=position, value=line, expected=expected)
        if not isinstance(entry.get("dev", {}), dict):
            expected = "the measures by name"
            raise InputError(path, position=position, column="dev", value=entry["dev"], expected=expected)
        row = _flat(entry)
        for column, value in row.items():
            largest = _LARGEST_EPOCH if column == "epoch" else _LARGEST
            if not isinstance(value, int | float) or not abs(value) <= largest:
                expected = f"a number from {-largest:g} to {largest:g}"
                raise InputError(path, position=position, column=column, value=value, expected=expected)
        rows.append({"epoch": int(row.pop("epoch")), **{name: float(value) for name, value in row.items()}})
    if not rows:
        raise InputError(path, problem="no line", expected="one line per epoch")
    return pl.DataFrame(rows, infer_schema_length=None)


def training_curves(histories: Mapping[str, pl.DataFrame]) -> pl.DataFrame:
    """Concatenate the histories of several systems, with a column ``system``."""
    return pl.concat(
        [frame.select(pl.lit(system).alias("system"), pl.all()) for system, frame in histories.items()],
        how="diagonal_relaxed",
    )


def score_distribution(
    runs: Mapping[str, pl.DataFrame], qrels: pl.DataFrame, *, bins: int | None = None
) -> pl.DataFrame:
    """Distributions of the scores of relevant answers and of other candidates of judged questions.

    A candidate without judgement is not relevant. There are ``bins`` of equal width over each system's
    scores; None is the square root of the number of relevant candidates, clipped to 10 to 40.

    Returns:
        system (str), low, high (f64: bounds of a bin), relevant, others (f64: share of the relevant and of
        the other candidates in the bin, 0 if there are none).
    """
    judged = qrels.filter(pl.col("relevance") > 0).select("question_id", "answer_id")
    parts = []
    for system, run in runs.items():
        candidates = run.join(qrels, on="question_id", how="semi")
        keys = ["question_id", "answer_id"]
        relevant = candidates.join(judged, on=keys, how="semi")["score"].to_numpy()
        irrelevant = candidates.join(judged, on=keys, how="anti")["score"].to_numpy()
        count = bins or min(max(math.isqrt(len(relevant)), 10), 40)
        edges = _edges(system, np.concatenate([relevant, irrelevant]), count)
        shares = {
            name: np.histogram(scores, edges)[0] / max(1, len(scores))
            for name, scores in (("relevant", relevant), ("others", irrelevant))
        }
        bounds = {"low": edges[:-1], "high": edges[1:]}
        parts.append(pl.DataFrame({"system": [system] * count, **bounds, **shares}))
    return pl.concat(parts)


def _edges(system: str, scores: np.ndarray, count: int) -> np.ndarray:
    """(count + 1,) bounds of bins of equal width."""
    try:
        with np.errstate(over="raise"):
            return np.histogram_bin_edges(scores, count)
    except (ValueError, FloatingPointError) as error:  # the range has too few floats, or overflows
        low, high = scores.min(), scores.max()
        raise AptoolError(
            f"{system}: scores from {low} to {high}; expected a range that {count} bins divide"
        ) from error


def _flat(entry: Mapping[str, Any]) -> dict[str, Any]:
    """Flatten the history entry of an epoch."""
    row: dict[str, Any] = {}
    for key, value in entry.items():
        if key == "dev" and isinstance(value, dict):
            row |= {f"dev_{name}": measured for name, measured in value.items()}
        elif key == "seconds" and isinstance(value, dict):
            row |= {f"seconds_{name}": seconds for name, seconds in value.items()}
        elif key in ("epoch", "loss") or isinstance(value, int | float):
            row[key] = value
    return row


def cost_table(runs: Runs, measure: str) -> pl.DataFrame:
    """The accuracy and costs (means over seeds, or null) of the trained systems of a folder of runs.

    Returns collection, system, the measure, `COSTS` and train_seconds, in the order of the table; systems
    without any of `COSTS` are left out.
    """
    try:
        rows = [
            {
                "collection": str(line["collection"]),
                "system": str(line["system"]),
                measure: float(line["means"][measure]),
                **{name: None if line.get(name) is None else float(line[name]) for name in COSTS},
                "train_seconds": float(line["train_seconds"]),
            }
            for line in runs.lines
        ]
    except (KeyError, TypeError, ValueError, OverflowError, AttributeError) as error:
        expected = "the results of `aptool matrix`"
        raise InputError(
            runs.source / TABLE, position="lines", value=repr(error), expected=expected
        ) from error
    numbers = dict.fromkeys((measure, *COSTS, "train_seconds"), pl.Float64)
    frame = pl.DataFrame(rows, schema={"collection": pl.String, "system": pl.String, **numbers})
    return frame.filter(pl.any_horizontal(pl.col(name).is_not_null() for name in COSTS))


class Chart(NamedTuple):
    """A chart in the report."""

    title: str
    note: str
    image: str  # data URL of an SVG file
    table: list[list[str]]  # column titles first


def draw_charts(results: CollectionResults, costs: pl.DataFrame) -> Iterator[Chart]:
    """Draw the charts of a collection that have data; ``costs`` are its rows of `cost_table`.

    The charts show the trained systems and the baseline. Fusions would hide their lines.
    """
    main = results.measures[0]
    trained = [system for system in results.systems if system.configs]
    shown = sorted(trained or results.systems, key=lambda system: -system.means[main])
    if trained:
        baselines = (system for system in results.systems if not system.configs)
        shown += [system for system in baselines if system.name == results.baseline]
    asked = results.questions
    qrels = read_qrels(asked.qrels)
    accuracy = {system.name: system.per_question for system in shown}
    if asked.pools and len(lengths := accuracy_by_length(accuracy, asked.by_length(qrels))):
        note = "Over the questions whose relevant answer has at most this many words, with 95% intervals."
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
    runs = {system.name: read_run(system.entries[0].run).frame for system in shown}
    for (name,), shares in score_distribution(runs, qrels).partition_by("system", as_dict=True).items():
        yield _chart(f"Scores of {name}", "As shares of the candidates.", plot_scores(shares), shares)


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
