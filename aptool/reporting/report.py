"""The report on runs in one HTML file: results, charts, and the questions on which systems differ most."""

import logging
from typing import TYPE_CHECKING, Any, NamedTuple

import polars as pl

from aptool.data.check import warn_of_added
from aptool.data.runs import read_run
from aptool.data.trec import read_qrels
from aptool.environment import __version__, check_installed, command, install_command
from aptool.errors import UsageError
from aptool.evaluation.compare import Comparison, question_deltas, ranked_answers, shown_p, verdict
from aptool.evaluation.significance import ALPHA, PERMUTATIONS, Interval
from aptool.evaluation.texts import with_texts
from aptool.outputs import check_apart, check_output
from aptool.paths import Location
from aptool.reporting.charts import draw_charts
from aptool.reporting.html import environment, write_page
from aptool.reporting.runs import CollectionResults, Questions, Runs, SystemResults, evaluate_systems

if TYPE_CHECKING:
    import torch

    from aptool.models.explain import Explanation

logger = logging.getLogger(__name__)

DEPTH = 5  # answers from the top of each ranking

_KEYS = ["question_id", "answer_id"]


def write_report(
    runs: Runs,
    output: Location,
    *,
    baseline: str | None,
    questions: int,
    device: str,
    overwrite: bool = False,
) -> None:
    """Write the report of runs into an HTML file.

    Args:
        runs: of `runs.read_runs` or `runs.runs_of_files`.
        output: the HTML file.
        baseline: the system to test the other systems against; None is BM25, else the first system.
        questions: number of questions with the largest gains, and as many with the largest losses.
        device: the device that computes the heat maps.
        overwrite: replace an existing file.
    """
    check_apart(output, [entry.run for entry in runs.entries])
    for asked in runs.questions.values():
        beside = [path for path in asked.qrels.parent.iterdir() if path.suffix != ".html"]
        check_apart(output, [*beside, asked.qrels])
    check_output(output, overwrite=overwrite)
    names = {entry.system for entry in runs.entries}
    if baseline is not None and baseline not in names:
        raise UsageError(f"--baseline {baseline!r}: expected one of {', '.join(sorted(names))}")
    # After the checks of paths, as PyTorch takes seconds to import, and before the slow part.
    environment()
    check_installed("matplotlib", purpose="a chart", extra="report")
    picked = _device(device)
    sections = []
    for name, judged in runs.questions.items():
        systems = runs.on(name)
        chosen = baseline if baseline in systems else None
        results = evaluate_systems(name, judged, systems, runs.measures, chosen)
        differences = _largest_differences(results, questions, picked)
        warn_of_added(judged.qrels)
        logger.info(f"{name}: charts")
        sections.append(_section(results, differences, runs.command))
        logger.info(f"{name}: {' '.join(sections[-1]['conclusion'])}")
    values = {
        "collections": sections,
        "systems": len(names),
        "depth": DEPTH,
        "permutations": PERMUTATIONS,
        "alpha": f"{ALPHA:.2g}",
        "version": __version__,
        "command": command(),
        "mark": mark,
        "shown_p": shown_p,
    }
    write_page(output, "report.html", values)


def _device(name: str) -> "torch.device | None":
    """The device of the heat maps, which a report without PyTorch does not have."""
    try:
        from aptool.models.device import pick_device
    except ModuleNotFoundError as error:
        if error.name != "torch":
            raise
        logger.info(f"PyTorch is not installed: no heat maps ({install_command('torch')})")
        return None
    return pick_device(name)


def _section(results: CollectionResults, differences: dict[str, Any], command: str | None) -> dict[str, Any]:
    """The template values of one collection; ``command`` ran the matrix."""
    return {
        "results": results,
        "conclusion": conclusion(results),
        "scale": Scale.around([system.intervals[results.measures[0]] for system in results.systems]),
        "details": detail_rows(results),
        "charts": list(draw_charts(results)),
        "seeded": any(len(system.entries) > 1 for system in results.systems),
        "differences": differences,
        "provenance": _provenance(results, command),
        "runs": [["Run", "Seed", "Preset", "Best epoch", "Trained on"], *run_rows(results)],
    }


def conclusion(results: CollectionResults) -> list[str]:
    """The system with the highest main measure, and the test of the best system against the baseline."""

    def mean(system: SystemResults) -> float:
        return system.spreads[main].mean

    main = results.measures[0]
    first = max(results.systems, key=mean)
    name = f"{first.name}, the baseline," if first.name == results.baseline else first.name
    sentences = [f"{name} has the highest {main}, {mean(first):.4f}."]
    tested = [system for system in results.systems if main in system.comparisons]
    if tested:
        best = max(tested, key=mean)
        sentences.append(f"{verdict(results.baseline, best.comparisons[main])}.")
    return sentences


class Scale(NamedTuple):
    """The scale of the bars of intervals."""

    ticks: list[float]  # three to five round numbers

    @classmethod
    def around(cls, intervals: list[Interval]) -> "Scale":
        """The scale whose ends enclose all intervals."""
        from matplotlib.ticker import MaxNLocator

        low, high = min(low for low, _ in intervals), max(high for _, high in intervals)
        ticks = MaxNLocator(4, steps=[1, 2, 5, 10]).tick_values(low, max(high, low + 2e-4))
        return cls([round(float(tick), 12) for tick in ticks])

    def percent(self, value: float) -> float:
        """The position of a value, in percent of the width."""
        low, high = self.ticks[0], self.ticks[-1]
        return 100 * (value - low) / (high - low)


def mark(comparison: Comparison | None) -> str:
    """The mark of a mean that is significantly better or worse than the baseline's."""
    if comparison is None or not comparison.significant:
        return ""
    return "▲" if comparison.difference > 0 else "▼"


def detail_rows(results: CollectionResults) -> list[list[str]]:
    """The intervals and the tests of all systems and measures, column titles first."""
    titles = ["System", "Measure", "Mean", "95% interval", "Δ", "95% interval of Δ", "p", "p, Holm", "d"]
    rows = [[*titles, "Wins", "Ties", "Losses"]]
    for system in results.systems:
        for measure in results.measures:
            mean = system.spreads[measure].text(len(system.entries))
            row = [system.name, measure, mean, "{:.4f} to {:.4f}".format(*system.intervals[measure])]
            comparison = system.comparisons.get(measure)
            if comparison is None:
                row += [""] * (len(rows[0]) - len(row))
            else:
                row += [f"{comparison.difference:+.4f}", f"{comparison.low:+.4f} to {comparison.high:+.4f}"]
                row += [shown_p(comparison.p), shown_p(comparison.p_holm)]
                row.append(f"{comparison.effect:+.2f}")
                row += [f"{count:,}" for count in (comparison.wins, comparison.ties, comparison.losses)]
            rows.append(row)
    return rows


def _provenance(results: CollectionResults, command: str | None) -> list[tuple[str, str]]:
    """The origin of the results: (term, text)."""
    versions: dict[str, dict[str, None]] = {}
    for system in results.systems:
        for config in system.configs:
            for name, version in config["versions"].items():
                versions.setdefault(name, {})[version] = None
    lines = list(results.questions.origin)
    if versions:
        text = "; ".join(f"{name} {', '.join(numbers)}" for name, numbers in versions.items())
        lines.append(("Trained with", text))
    lines.append(("Evaluated with", f"aptool {__version__}"))
    if command:
        lines.append(("Command", command))
    return lines


def run_rows(results: CollectionResults) -> list[list[str]]:
    """The rows of the table of runs, one per system and seed."""
    rows = []
    for system in results.systems:
        for entry in system.entries:
            row = [system.name, str(entry.seed), "", "", ""]
            if config := entry.config:
                trained = config["training"]
                row[2:] = [str(config["recipe"]["preset"]), str(trained["best_epoch"])]
                row.append(f"{trained['collection']} {trained['fingerprint']}")
            rows.append(row)
    return rows


def _largest_differences(
    results: CollectionResults, top: int, device: "torch.device | None"
) -> dict[str, Any]:
    """The ``top`` questions with the largest gains over the baseline and as many with the largest losses.

    ``better`` and ``worse`` are the numbers of questions, including those not listed, ``gained`` and ``lost``
    the listed ones, as of `_describe`, and ``seed`` is that of the rankings.

    The system is the best trained system, or the best system if none was trained. The measure is the main
    measure, a mean over seeds. The rankings are those of the first seed, with the first `DEPTH` answers and
    all relevant answers. The first answer and the highest-ranked relevant answer have heat maps, unless the
    system has no weights of words or the device is None.
    """
    baseline = next(each for each in results.systems if each.name == results.baseline)
    others = [each for each in results.systems if each is not baseline] or [baseline]
    trained = [each for each in others if each.configs]
    system = max(trained or others, key=lambda each: each.spreads[results.measures[0]].mean)
    better, worse = question_deltas(baseline.per_question, system.per_question, results.measures[0])
    listed = pl.concat([better.head(top), worse.head(top)])
    questions = _describe(results.questions, system, baseline, listed, device)
    gained = min(top, better.height)
    return {
        "system": system.name,
        "seed": system.entries[0].seed,
        "better": better.height,
        "worse": worse.height,
        "gained": questions[:gained],
        "lost": questions[gained:],
    }


def _describe(
    asked: Questions,
    system: SystemResults,
    baseline: SystemResults,
    deltas: pl.DataFrame,
    device: "torch.device | None",
) -> list[dict[str, Any]]:
    """The rows of `question_deltas` with text, candidates, relevant, missing and answers.

    ``candidates`` and ``relevant`` are their numbers, ``missing`` the relevant answers that are not among the
    candidates. ``answers`` are rows of `ranked_answers` with their text, ``answer``, and ``heat_map``.
    """
    relevant = read_qrels(asked.qrels).filter(pl.col("relevance") > 0)
    runs = read_run(baseline.entries[0].run).frame, read_run(system.entries[0].run).frame
    answers = ranked_answers(deltas, relevant, runs)
    is_relevant, rank = pl.col("is_relevant"), pl.col("rank_after")
    counts = answers.group_by("question_id").agg(
        candidates=rank.count(),
        relevant=is_relevant.sum(),
        missing=pl.col("answer_id").filter(is_relevant & rank.is_null()),
    )
    shown = with_texts(answers.filter((rank <= DEPTH) | (is_relevant & rank.is_not_null())), asked.pools)
    heat_maps = _heat_maps(system, shown, device)
    by_question = shown.rows_by_key("question_id", named=True, include_key=True)
    questions = deltas.join(counts, on="question_id", maintain_order="left").to_dicts()
    for question in questions:
        question["answers"] = by_question.get(question["question_id"], [])
        texts = (answer["question"] for answer in question["answers"] if answer["question"])
        question["text"] = next(texts, "")
        for answer in question["answers"]:
            answer["heat_map"] = heat_maps.get((answer["question_id"], answer["answer_id"]))
    return questions


def _heat_maps(
    system: SystemResults, shown: pl.DataFrame, device: "torch.device | None"
) -> dict[tuple[str, str], "Explanation"]:
    """Explain the scores of the first answer and of the highest-ranked relevant answer of each question."""
    folder = system.entries[0].model
    if folder is None or device is None:
        return {}
    from aptool.models.explain import explain_pairs, gives_weights
    from aptool.models.model import load_model

    model = load_model(folder, device)
    if not gives_weights(model):
        return {}
    logger.info(f"heat maps of {system.name}")
    best = pl.col("is_relevant") & (pl.col("is_relevant").cum_sum().over("question_id") == 1)
    chosen = shown.filter((pl.col("rank_after") == 1) | best).drop_nulls("answer")
    pairs = chosen.select("question", "answer").rows()
    return dict(zip(chosen.select(_KEYS).rows(), explain_pairs(model, pairs), strict=True))
