"""The folder that `aptool matrix` wrote: its systems, collections and files."""

import logging
from collections.abc import Mapping
from typing import Any, NamedTuple

import polars as pl

from aptool.documents import read_json
from aptool.errors import InputError, UsageError
from aptool.evaluation.compare import Comparison, compare
from aptool.evaluation.evaluation import averages, mean_intervals, mean_over_runs
from aptool.evaluation.measures import evaluate
from aptool.evaluation.names import is_mean
from aptool.evaluation.significance import Interval, mean_and_sd
from aptool.files import sha256_of
from aptool.formats.collection import MANIFEST, CollectionFiles
from aptool.formats.runs import read_run
from aptool.formats.trec import read_qrels
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
    seconds: dict[str, float]  # train, score
    model: Location | None  # its model folder, if it was trained
    sha256: str | None = None  # of the run file that was evaluated, if recorded

    @property
    def split(self) -> str:
        """The split that was scored."""
        return self.run.name.removesuffix(".run")

    @property
    def config(self) -> dict[str, Any] | None:
        """The model's ``config.json``."""
        return None if self.model is None else dict(read_json(self.model / "config.json"))


class Runs(NamedTuple):
    """The contents of a folder of runs."""

    folder: Location
    entries: list[RunEntry]
    measures: tuple[str, ...]
    command: str | None  # the command that wrote the folder
    collections: dict[str, Location]  # folders of the collections, if recorded
    fingerprints: dict[str, str]  # of the scored collections, if recorded
    lines: list[dict[str, Any]]  # rows of the table: means over seeds, and costs

    def on(self, collection: str) -> dict[str, list[RunEntry]]:
        """The systems run on a collection, each with its runs by seed, in the order of the table."""
        systems: dict[str, list[RunEntry]] = {}
        for entry in self.entries:
            if entry.collection == collection:
                systems.setdefault(entry.system, []).append(entry)
        return {name: sorted(entries, key=lambda entry: entry.seed) for name, entries in systems.items()}


def read_runs(folder: PathOrUrl) -> Runs:
    """Read the folder that `aptool matrix` wrote."""
    root = location(folder)
    path = root / TABLE
    if not path.is_file():
        expected = "the folder that `aptool matrix TABLE --output FOLDER` writes"
        raise InputError(folder, problem=why_missing(root, TABLE), expected=expected)
    document = read_json(path)
    try:
        entries = [_entry(root, result) for result in document["results"]]
        measures = tuple(document["results"][0]["measures"])
        if not measures:
            raise ValueError("no measures")
        recorded = document.get("collections", {})
        collections = {name: _collection(root, entry["path"]) for name, entry in recorded.items()}
        fingerprints = {
            name: entry["fingerprint"] for name, entry in recorded.items() if "fingerprint" in entry
        }
        command, lines = document.get("command"), list(document.get("lines", []))
    except (KeyError, TypeError, AttributeError, IndexError, ValueError, OverflowError) as error:
        raise InputError(path, value=repr(error), expected="the results of `aptool matrix`") from error
    for entry in entries:
        if not entry.run.is_file():
            raise InputError(entry.run, problem="file not found", expected=f"a run file listed in {path}")
        if entry.sha256 is not None and entry.sha256 != sha256_of(entry.run):
            expected = "the run that it evaluated; run `aptool matrix` again"
            raise InputError(entry.run, problem=f"changed since {path} was written", expected=expected)
    return Runs(root, entries, measures, command, collections, fingerprints, lines)


def _entry(folder: Location, result: dict[str, Any]) -> RunEntry:
    run = folder / result["run"]
    model = run.parent / "model"
    seconds = {key: float(value) for key, value in result["seconds"].items()}
    if not all(isinstance(result[name], str) for name in ("collection", "system")):
        raise TypeError("collection and system: expected two names")
    trained = model if (model / "config.json").is_file() else None
    return RunEntry(
        result["collection"],
        result["system"],
        int(result["seed"]),
        run,
        seconds,
        trained,
        result.get("sha256"),
    )


def _collection(folder: Location, path: str) -> Location:
    """A collection of ``table.json``: below the folder of runs, otherwise relative to the current folder."""
    if is_remote(path) or path.startswith("/"):
        return location(path)
    below = folder / path
    return below if (below / MANIFEST).is_file() else location(path)


def find_collections(runs: Runs, folders: Mapping[str, Location]) -> dict[str, CollectionFiles]:
    """Open the collections of the runs, by their names in the table of experiments.

    ``folders`` take precedence over the folders recorded with the runs. The folder named "" is used for the
    collection of the same name, or for the only collection.
    """
    names = list(dict.fromkeys(entry.collection for entry in runs.entries))
    for name in folders:
        if name and name not in names:
            raise UsageError(f"--collection {name}={folders[name]}: expected one of {', '.join(names)}")
    unnamed = CollectionFiles(folders[""]) if "" in folders else None
    if unnamed is not None and len(names) > 1 and unnamed.name not in names:
        expected = f"NAME={folders['']} with a name among {', '.join(names)}"
        raise UsageError(f"--collection {folders['']} is {unnamed.name!r}: expected {expected}")
    collections = {}
    for name in names:
        if name in folders:
            collections[name] = CollectionFiles(folders[name])
        elif unnamed is not None and (unnamed.name == name or len(names) == 1):
            collections[name] = unnamed
        elif name in runs.collections:
            collections[name] = CollectionFiles(runs.collections[name])
        else:
            raise UsageError(f"folder of collection {name!r} unknown; pass --collection {name}=FOLDER")
        scored, fingerprint = runs.fingerprints.get(name), collections[name].fingerprint
        if scored is not None and scored != fingerprint:
            expected = f"{scored}, which was scored; run `aptool matrix` again"
            raise InputError(
                collections[name].path, position="fingerprint", value=fingerprint, expected=expected
            )
    return collections


class SystemResults(NamedTuple):
    """Results of one system over all its seeds."""

    name: str
    entries: list[RunEntry]  # runs, one per seed
    configs: list[dict[str, Any]]  # ``config.json`` of each model
    per_question: pl.DataFrame  # question_id, and each measure and `ACCURACY`: the mean over seeds
    means: dict[str, float]  # by measure, as the following
    deviations: dict[str, float]  # sample standard deviation over seeds; 0 for one seed
    intervals: dict[str, Interval]
    comparisons: dict[str, Comparison]  # with the baseline; empty for the baseline


class CollectionResults(NamedTuple):
    """Results of all systems on one collection."""

    name: str  # in the table of experiments
    collection: CollectionFiles
    split: str
    questions: int
    measures: tuple[str, ...]
    baseline: str
    systems: list[SystemResults]


def evaluate_systems(
    name: str,
    collection: CollectionFiles,
    systems: dict[str, list[RunEntry]],
    measures: tuple[str, ...],
    baseline: str | None,
) -> CollectionResults:
    """Evaluate every run on a collection and test every system against the baseline.

    ``name`` is that of the collection in the table of experiments. The first measure is the main measure.
    The baseline None is BM25 if it was run, otherwise the first system.
    """
    if baseline is None:
        baseline = DEFAULT_BASELINE if DEFAULT_BASELINE in systems else next(iter(systems))
    split = next(iter(systems.values()))[0].split
    path = collection.qrels(split)
    qrels = read_qrels(path)
    evaluated = tuple(dict.fromkeys((*measures, ACCURACY)))
    results = []
    for system, entries in systems.items():
        logger.info(f"{name}: {system}")
        frames = [
            evaluate(
                qrels, read_run(entry.run).frame, evaluated, run_name=str(entry.run), qrels_name=str(path)
            ).per_question
            for entry in entries
        ]
        seeds = [averages(frame.select("question_id", *measures)) for frame in frames]
        mean = mean_over_runs(frames).drop("candidates")
        spreads = {measure: mean_and_sd([seed[measure] for seed in seeds]) for measure in measures}
        results.append(
            SystemResults(
                name=system,
                entries=entries,
                configs=[config for entry in entries if (config := entry.config) is not None],
                per_question=mean,
                means={measure: spread.mean for measure, spread in spreads.items()},
                deviations={measure: spread.sd for measure, spread in spreads.items()},
                intervals=mean_intervals(mean.select("question_id", *measures)),
                comparisons={},
            )
        )
    logger.info(f"{name}: tests against {baseline}")
    tables = {system.name: system.per_question for system in results}
    reference = tables.pop(baseline)
    by_name = {system.name: system for system in results}
    for comparison in compare(reference, tables, [measure for measure in measures if is_mean(measure)]):
        by_name[comparison.system].comparisons[comparison.measure] = comparison
    return CollectionResults(name, collection, split, reference.height, measures, baseline, results)
