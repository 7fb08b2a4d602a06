"""The runs of a report: of a folder that `aptool matrix` wrote, or run files with their qrels."""

import logging
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import polars as pl

from aptool.data.collection import Collection
from aptool.data.pools import Pools
from aptool.data.runs import read_run
from aptool.data.trec import read_qrels
from aptool.data.writing import MANIFEST
from aptool.documents import read_json
from aptool.errors import InputError, counted
from aptool.evaluation.compare import Comparison, compare_tables
from aptool.evaluation.measures import averages, evaluate_frames, mean_intervals, mean_over_runs
from aptool.evaluation.names import is_mean
from aptool.evaluation.significance import Interval, Spread, mean_and_sd
from aptool.files import expand, sha256_of
from aptool.models.hub import CONFIG, trained_config
from aptool.paths import Location, PathOrUrl, is_remote, location, why_missing

logger = logging.getLogger(__name__)

TABLE = "table.json"
DEFAULT_BASELINE = "bm25"
# The measure of the charts by answer length; evaluated even if it is not in the table of experiments.
ACCURACY = "P@1"


class RunEntry(NamedTuple):
    """One system with one seed on one collection."""

    collection: str  # name in the table of experiments
    system: str
    seed: int
    run: Location
    model: Location | None  # its model folder, if it was trained

    @property
    def config(self) -> dict[str, Any] | None:
        """The model's configuration; None for a system that is not trained."""
        return None if self.model is None else trained_config(read_json(self.model / CONFIG))


class Questions(NamedTuple):
    """The questions that runs rank: their labels, and their texts if there are pools."""

    name: str
    qrels: Location
    pools: Pools | None  # None if the texts are unknown
    counts: list[str]  # as shown
    origin: list[tuple[str, str]]  # (term, text), as shown


class Runs(NamedTuple):
    """Runs and the questions that they rank."""

    entries: list[RunEntry]
    measures: tuple[str, ...]
    questions: dict[str, Questions]  # by the name of the collection
    command: str | None = None  # the command that wrote the folder of a matrix

    def on(self, collection: str) -> dict[str, list[RunEntry]]:
        """The systems run on a collection, each with its runs by seed, in the order of the table."""
        systems: dict[str, list[RunEntry]] = {}
        for entry in self.entries:
            if entry.collection == collection:
                systems.setdefault(entry.system, []).append(entry)
        return {name: sorted(entries, key=lambda entry: entry.seed) for name, entries in systems.items()}


def runs_of_files(
    systems: Iterable[tuple[str, PathOrUrl]],
    qrels: PathOrUrl,
    pools: Sequence[PathOrUrl],
    measures: tuple[str, ...],
) -> Runs:
    """Run files of any tool, each with the name of its system; equal names are seeds of one system.

    Args:
        systems: name and run file of each system.
        qrels: the qrels of all runs.
        pools: files, folders or globs with the texts; may be empty.
        measures: printed names of the measures, the main measure first.
    """
    path = location(qrels)
    judged = read_qrels(path)
    files = expand([str(each) for each in pools], ".pools.parquet")
    questions = Questions(
        name=path.name.partition(".qrels")[0],
        qrels=path,
        pools=Pools.load(files) if files else None,
        counts=[
            counted(judged["question_id"].n_unique(), "judged question"),
            f"{judged.filter(pl.col('relevance') > 0).height:,} relevant",
        ],
        origin=[
            ("Qrels", str(path)),
            ("SHA-256", sha256_of(path)),
            *(("Pools", file) for file in files),
        ],
    )
    entries: list[RunEntry] = []
    for system, run in systems:
        seed = sum(entry.system == system for entry in entries)
        entries.append(RunEntry(questions.name, system, seed, location(run), None))
    return Runs(entries, measures, {questions.name: questions})


def read_runs(folder: PathOrUrl) -> Runs:
    """Read the folder that `aptool matrix` wrote."""
    root = location(folder)
    path = root / TABLE
    if not path.is_file():
        expected = "the folder that `aptool matrix TABLE --output FOLDER` writes, or runs and --qrels"
        raise InputError(folder, problem=why_missing(root, TABLE), expected=expected)
    document = read_json(path)
    try:
        entries = [_entry(root, result) for result in document["results"]]
        measures = tuple(document["results"][0]["measures"])
        if not measures:
            raise ValueError("no measures")
        recorded = {
            name: (recorded_folder(root, entry["path"]), entry["fingerprint"])
            for name, entry in document["collections"].items()
        }
        command = document["command"]
    except (KeyError, TypeError, AttributeError, IndexError, ValueError, OverflowError) as error:
        raise InputError(path, value=repr(error), expected="the results of `aptool matrix`") from error
    splits = {entry.collection: entry.run.name.removesuffix(".run") for entry in entries}
    if not splits.keys() <= recorded.keys():
        missing = min(splits.keys() - recorded.keys())
        raise InputError(path, column="collections", value=missing, expected="the folder of each collection")
    questions = {name: _questions(*recorded[name], split) for name, split in splits.items()}
    return Runs(entries, measures, questions, command)


def _entry(folder: Location, result: dict[str, Any]) -> RunEntry:
    run = folder / result["run"]
    model = run.parent / "model"
    if not all(isinstance(result[name], str) for name in ("collection", "system")):
        raise TypeError("collection and system: expected two names")
    if not run.is_file():
        raise InputError(run, problem="file not found", expected=f"a run file listed in {folder / TABLE}")
    if result["sha256"] != sha256_of(run):
        expected = "the run that it evaluated; run `aptool matrix` again"
        raise InputError(run, problem=f"changed since {folder / TABLE} was written", expected=expected)
    trained = model if (model / CONFIG).is_file() else None
    return RunEntry(result["collection"], result["system"], int(result["seed"]), run, trained)


def recorded_folder(folder: Location, path: str) -> Location:
    """A collection of ``table.json``: below the folder of runs, otherwise relative to the current folder."""
    if is_remote(path) or path.startswith("/"):
        return location(path)
    below = folder / path
    return below if (below / MANIFEST).is_file() else location(path)


def _questions(folder: Location, scored: str, split: str) -> Questions:
    """The questions of a split; ``scored`` is the fingerprint of the scored collection."""
    collection = Collection(folder)
    if scored != collection.fingerprint:
        expected = f"{scored}, which was scored; run `aptool matrix` again"
        raise InputError(folder, position="fingerprint", value=collection.fingerprint, expected=expected)
    counts, files = collection.manifest["splits"][split], collection.manifest["files"]
    qrels = collection.qrels_file(split)
    return Questions(
        name=collection.name,
        qrels=qrels,
        pools=collection.pools(split),
        counts=[
            f"split {split}",
            f"{counts['questions']:,} questions",
            f"{counts['candidates']:,} candidates",
            f"{counts['positives']:,} relevant",
        ],
        origin=[
            ("Collection", str(collection.path)),
            ("Fingerprint", collection.fingerprint),
            ("Source", str(collection.manifest["source"])),
            (f"SHA-256 of {qrels.name}", files.get(qrels.name, "not recorded")),
        ],
    )


class SystemResults(NamedTuple):
    """Results of one system over all its seeds."""

    name: str
    entries: list[RunEntry]  # runs, one per seed
    configs: list[dict[str, Any]]  # ``config.json`` of each model
    per_question: pl.DataFrame  # question_id, and each measure and `ACCURACY`: the mean over seeds
    spreads: dict[str, Spread]  # by measure, as the following
    intervals: dict[str, Interval]
    comparisons: dict[str, Comparison]  # with the baseline; empty for the baseline


class CollectionResults(NamedTuple):
    """Results of all systems on one collection."""

    name: str  # of the collection
    questions: Questions
    measures: tuple[str, ...]
    baseline: str
    systems: list[SystemResults]

    def best(self, measure: str) -> float:
        """The highest mean of a measure."""
        return max(system.spreads[measure].mean for system in self.systems)


def evaluate_systems(
    name: str,
    questions: Questions,
    systems: dict[str, list[RunEntry]],
    measures: tuple[str, ...],
    baseline: str | None,
) -> CollectionResults:
    """Evaluate every run on the questions and test every system against the baseline.

    ``name`` is that of the collection. The first measure is the main measure. The baseline None is BM25 if it
    was run, otherwise the first system.
    """
    if baseline is None:
        baseline = DEFAULT_BASELINE if DEFAULT_BASELINE in systems else next(iter(systems))
    qrels, path = read_qrels(questions.qrels), str(questions.qrels)
    evaluated = tuple(dict.fromkeys((*measures, ACCURACY)))
    results = {}
    for system, entries in systems.items():
        logger.info(f"{name}: {system}")
        frames = [
            evaluate_frames(
                qrels, read_run(entry.run).frame, evaluated, run_name=str(entry.run), qrels_name=path
            ).per_question
            for entry in entries
        ]
        seeds = [averages(frame.select("question_id", *measures)) for frame in frames]
        mean = mean_over_runs(frames).drop("candidates")
        results[system] = SystemResults(
            name=system,
            entries=entries,
            configs=[config for entry in entries if (config := entry.config) is not None],
            per_question=mean,
            spreads={measure: mean_and_sd([seed[measure] for seed in seeds]) for measure in measures},
            intervals=mean_intervals(mean.select("question_id", *measures)),
            comparisons={},
        )
    logger.info(f"{name}: tests against {baseline}")
    tables = {system: result.per_question for system, result in results.items()}
    reference = tables.pop(baseline)
    tested = [measure for measure in measures if is_mean(measure)]
    for comparison in compare_tables(reference, tables.items(), tested):
        results[comparison.system].comparisons[comparison.measure] = comparison
    return CollectionResults(name, questions, measures, baseline, list(results.values()))
