"""The results of an experiment matrix: one row per system and collection, and paired tests over folds."""

from collections.abc import Sequence
from itertools import combinations
from statistics import fmean
from typing import Any, NamedTuple

import polars as pl

from aptool.data.collection import Collection
from aptool.data.runs import read_run
from aptool.data.trec import read_qrels
from aptool.documents import json_text, read_json
from aptool.errors import InputError
from aptool.evaluation.measures import evaluate_frames, mean_over_runs
from aptool.evaluation.names import is_mean
from aptool.evaluation.significance import Paired, Spread, compare_paired, holm, mean_and_sd
from aptool.experiments.trial import Result
from aptool.files import sha256_of
from aptool.outputs import EXPECTED, output_file
from aptool.paths import Location, names
from aptool.reporting.html import markdown_table

# Fewer than for one comparison: every pair of systems is tested.
PERMUTATIONS = 10_000
TABLE = "table.json"
OVER_SEEDS = "± is the standard deviation over seeds"  # caption of a table with several seeds


class SystemPair(NamedTuple):
    """A paired test over the folds of a collection of a system and one with a lower mean, the baseline.

    ``holm`` is the p-value of the permutation test, Holm-corrected for all pairs on the collection.
    """

    collection: str
    system: str
    other: str
    measure: str
    paired: Paired
    holm: float


class Summary(NamedTuple):
    """A system on a collection over all its seeds."""

    collection: str
    system: str
    seeds: int  # number of seeds
    questions: int  # number of questions
    means: dict[str, float]
    deviations: dict[str, float]  # sample standard deviation over seeds; 0 for a single seed
    fold_deviations: dict[str, float]  # over folds, of the means over seeds; empty without folds
    train_seconds: float  # mean over seeds, of all folds together
    score_seconds: float
    bytes_per_answer: float | None = None  # None for baselines and fusions
    pairs_per_second: float | None = None  # of ``score_seconds``; None for baselines and fusions


def summarize(results: Sequence[Result]) -> list[Summary]:
    """One summary per system and collection, in the order of the results."""
    summaries = []
    for group in _by_system(results):
        first = group[0]
        spreads = {
            measure: mean_and_sd([result.measures[measure] for result in group]) for measure in first.measures
        }
        summaries.append(
            Summary(
                collection=first.collection,
                system=first.system,
                seeds=len(group),
                questions=first.questions,
                means={measure: spread.mean for measure, spread in spreads.items()},
                deviations={measure: spread.sd for measure, spread in spreads.items()},
                fold_deviations=_fold_deviations(group),
                train_seconds=fmean(result.seconds["train"] for result in group),
                score_seconds=fmean(result.seconds["score"] for result in group),
                bytes_per_answer=_mean([result.costs.get("bytes_per_answer") for result in group]),
                pairs_per_second=_mean([_pairs_per_second(result) for result in group]),
            )
        )
    return summaries


def table_cells(
    summaries: Sequence[Summary], measures: Sequence[str], *, costs: bool = False
) -> list[list[str]]:
    """The summaries as rows of text, column titles first; ``costs`` adds the columns of costs."""
    titles = list(measures)
    folds = [f"{titles[0]}, sd over folds"] if any(summary.fold_deviations for summary in summaries) else []
    of_costs = ["pairs/s", "bytes/answer"] if costs else []
    rows = [["collection", "system", *titles, *folds, "questions", "seeds", "train s", "score s", *of_costs]]
    for summary in summaries:
        row = [summary.collection, summary.system]
        for measure, mean in summary.means.items():
            row.append(Spread(mean, summary.deviations[measure]).text(summary.seeds))
        if folds:
            row.append(f"{summary.fold_deviations[titles[0]]:.4f}" if summary.fold_deviations else "")
        row += [str(summary.questions), str(summary.seeds)]
        row += [f"{summary.train_seconds:.1f}", f"{summary.score_seconds:.1f}"]
        if costs:
            numbers = summary.pairs_per_second, summary.bytes_per_answer
            row += ["" if number is None else f"{number:,.0f}" for number in numbers]
        rows.append(row)
    return rows


def open_folder(folder: Location, *, overwrite: bool) -> None:
    """Mark a folder as that of a matrix by an empty table; raise if it has files but no table of a matrix."""
    is_empty = not names(folder)
    try:
        has_table = "results" in read_json(folder / TABLE)
    except (FileNotFoundError, InputError, TypeError):
        has_table = False
    if not (is_empty or has_table or overwrite):
        raise InputError(folder / TABLE, problem="not a table of `aptool matrix`", expected=EXPECTED)
    if not has_table:
        _write(folder / TABLE, json_text({"results": []}))


def write_table(
    folder: Location, results: Sequence[Result], measures: Sequence[str], command: str
) -> tuple[list[Summary], list[SystemPair]]:
    """Write ``table.md``, ``table.json`` and ``paired.md``; return their summaries and paired tests.

    The run files of ``results`` are below ``folder``. ``command`` is the command line that ran the matrix.
    The tests are of the first measure that is a mean, on collections with folds.
    """
    summaries = summarize(results)
    tests = next((paired_tests(results, measure) for measure in measures if is_mean(measure)), [])
    entries = []
    for result in results:
        entry = result._asdict() | {
            "run": str(result.run).removeprefix(f"{folder}/"),
            "sha256": sha256_of(result.run),
        }
        del entry["folder"]  # stored in the entry of the collection
        entries.append(entry)
    pairs = []
    for pair in tests:
        records = {
            name: getattr(pair.paired, name)._asdict() for name in ("interval", "permutation", "t_test")
        }
        pairs.append(pair._asdict() | {"paired": pair.paired._asdict() | records})
    document: dict[str, Any] = {
        "command": command,
        # Paths below the output folder are relative, so that the folder can be moved.
        "collections": {
            name: {
                "path": str(path).removeprefix(f"{folder}/"),
                "fingerprint": Collection(path).fingerprint,
            }
            for name, path in {result.collection: result.folder for result in results}.items()
        },
        "lines": [summary._asdict() for summary in summaries],
        "results": entries,
        "paired": pairs,
    }
    table = markdown_table(table_cells(summaries, measures, costs=True), left=2)
    caption = f"\n{OVER_SEEDS}.\n" if any(summary.seeds > 1 for summary in summaries) else ""
    _write(folder / "table.md", table + caption)
    if tests:
        _write(folder / "paired.md", markdown_table(paired_cells(tests), left=4))
    _write(folder / TABLE, json_text(document))
    return summaries, tests


def paired_tests(results: Sequence[Result], measure: str) -> list[SystemPair]:
    """Test every pair of systems over the folds of each collection, from the highest mean to the lowest."""
    groups = [group for group in _by_system(results) if group[0].folds]
    tests = []
    for collection in dict.fromkeys(group[0].collection for group in groups):
        values = {
            group[0].system: _per_question(group, measure)
            for group in groups
            if group[0].collection == collection
        }
        order = sorted(values, key=lambda system: -float(values[system].sum()))
        pairs = list(combinations(order, 2))
        compared = [
            compare_paired(values[other].to_numpy(), values[system].to_numpy(), permutations=PERMUTATIONS)
            for system, other in pairs
        ]
        corrected = holm([paired.permutation.p for paired in compared])
        tests += [
            SystemPair(collection, *pair, measure, paired, p)
            for pair, paired, p in zip(pairs, compared, corrected, strict=True)
        ]
    return tests


def paired_cells(tests: Sequence[SystemPair]) -> list[list[str]]:
    """The tests as rows of text, column titles first."""
    head = ["collection", "system", "against", "measure", "difference", "95% interval", "p", "p (Holm)"]
    rows = [head]
    for pair in tests:
        paired = pair.paired
        interval = f"{paired.interval.low:+.4f} to {paired.interval.high:+.4f}"
        numbers = [f"{paired.difference:+.4f}", interval, f"{paired.permutation.p:.4f}", f"{pair.holm:.4f}"]
        rows.append([pair.collection, pair.system, pair.other, pair.measure, *numbers])
    return rows


def _by_system(results: Sequence[Result]) -> list[list[Result]]:
    """Group results by collection and system, in the order of the results."""
    groups: dict[tuple[str, str], list[Result]] = {}
    for result in results:
        groups.setdefault((result.collection, result.system), []).append(result)
    return list(groups.values())


def _pairs_per_second(result: Result) -> float | None:
    """The pairs per second of ``score``; None if the pairs are unknown."""
    pairs = result.costs.get("pairs")
    return None if pairs is None else pairs / result.seconds["score"]


def _fold_deviations(seeds: Sequence[Result]) -> dict[str, float]:
    """Standard deviation over folds of each measure's mean over seeds; empty without folds."""
    by_fold = list(zip(*(result.folds for result in seeds), strict=True))
    if not by_fold:
        return {}
    return {
        measure: mean_and_sd([fmean(seed[measure] for seed in fold) for fold in by_fold]).sd
        for measure in seeds[0].measures
    }


def _mean(values: Sequence[float | None]) -> float | None:
    """The mean; None if a value is missing."""
    present = [value for value in values if value is not None]
    return fmean(present) if len(present) == len(values) else None


def _write(path: Location, text: str) -> None:
    with output_file(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


def _per_question(group: Sequence[Result], measure: str) -> pl.Series:
    """The measure of each question, as mean over the seeds of a system, in the order of the qrels."""
    first = group[0]
    qrels = read_qrels(Collection(first.folder).qrels_file(first.split))
    frames = [evaluate_frames(qrels, read_run(result.run).frame, [measure]).per_question for result in group]
    return mean_over_runs(frames)[measure]
