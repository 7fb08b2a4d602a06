"""Options of commands that evaluate runs: qrels, pools, measures and confidence."""

from __future__ import annotations

import logging
import re
from pathlib import Path
from typing import TYPE_CHECKING

import click

from aptool.cli.parameters import Bounded, Count
from aptool.errors import MOST_EXAMPLES, UsageError, first_few, printable

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from aptool.data.pools import Pools
    from aptool.evaluation.evaluation import Evaluation
    from aptool.paths import Location

logger = logging.getLogger(__name__)

# With more unjudged candidates, the qrels list only relevant answers, and examples do not help.
_MOST_UNJUDGED = 1000


# `significance.LOWEST_CONFIDENCE` to `HIGHEST_CONFIDENCE`.
CONFIDENCE_RANGE = Bounded(click.FloatRange(0.5, 0.999))

qrels_option = click.option(
    "--qrels", metavar="QRELS", help="Qrels of TREC, or a Parquet table.  [default: X.qrels next to X.run]"
)
pools_option = click.option(
    "--pools",
    metavar="POOLS",
    multiple=True,
    help="Pools files, folders, globs or URLs with the texts; repeatable.  [default: X.pools.parquet "
    "next to X.qrels]",
)
measures_option = click.option(
    "--measures",
    metavar="NAMES",
    help="Comma-separated names of ir_measures: MAP, MRR@10, nDCG@10, MAP(rel=2).  [default: MAP,MRR,P@1]",
)
level_option = click.option(
    "--level",
    metavar="N",
    type=Count(1, 1_000_000),
    default=1,
    help="Minimum relevant grade (trec_eval -l); nDCG uses all grades.",
)


def check_distinct(runs: Sequence[str]) -> None:
    """Raise if a run is given more than once."""
    repeated = sorted({run for run in runs if runs.count(run) > 1})
    if repeated:
        raise UsageError(f"{', '.join(repeated)}: given more than once; expected different runs")


def parse_measures(measures: str | None) -> tuple[str, ...]:
    """Return the printed names of comma-separated measures; None is the default measures."""
    from aptool.evaluation.names import DEFAULT_MEASURES, measure_names

    if measures is None:
        return DEFAULT_MEASURES
    return measure_names(measures.replace(",", " ").split())


def qrels_of(runs: Sequence[str], given: str | None) -> str:
    """Return the given file, or the qrels of the runs in the given folder, else in theirs or the matrix's."""
    from aptool.paths import location

    folder = location(given) if given is not None else None
    if given is not None and not (folder is not None and folder.is_dir()):
        return given
    qrels = set()
    for run in runs:
        candidates = _possible_qrels(run, folder)
        path = next((path for path in candidates if path.is_file()), None)
        if path is None and folder is None and (collection := _collection_of_matrix(run)) is not None:
            path = next((path for path in _possible_qrels(run, collection) if path.is_file()), None)
        if path is None:
            names = " or ".join(path.name for path in candidates[::2]) or "qrels"
            if folder is not None:
                files = sorted(file.name for file in folder.iterdir() if ".qrels" in file.name)
                expected = f"one of its files: {', '.join(files) or 'none is named .qrels'}"
                raise UsageError(f"--qrels {given}: no {names} for {run} in it; expected {expected}")
            raise UsageError(f"{run}: no {names} in its folder; pass --qrels FILE")
        qrels.add(str(path))
    if len(qrels) > 1:
        raise UsageError(f"the runs have different qrels, {', '.join(sorted(qrels))}; pass --qrels FILE")
    logger.info(f"--qrels {min(qrels)} (default)" if given is None else f"--qrels {given}: {min(qrels)}")
    return qrels.pop()


def report_gaps(evaluations: Mapping[str, Evaluation]) -> None:
    """Log what is only in a run or only in the qrels, one line for all runs with the same gap."""
    runs_of: dict[str, list[str]] = {}
    for run, evaluation in evaluations.items():
        for gap in _gaps(evaluation):
            runs_of.setdefault(gap, []).append(run)
    for gap, runs in runs_of.items():
        logger.info(f"{first_few(runs)}: {gap}")


def _gaps(evaluation: Evaluation) -> list[str]:
    """Return a message for the missing questions, the extra questions and the unjudged candidates."""
    missing, extra = evaluation.missing, evaluation.extra
    unjudged = evaluation.unjudged.height
    sample = evaluation.unjudged.head(MOST_EXAMPLES if unjudged <= _MOST_UNJUDGED else 0)
    pairs = [" ".join(pair) for pair in sample.iter_rows()]
    of_questions = f" of {evaluation.per_question.height}"
    gaps = (
        ("questions missing from the run, counted as 0", len(missing), of_questions, missing),
        ("questions not in the qrels, left out", len(extra), "", extra),
        ("candidates not judged or judged below 0, counted as not relevant", unjudged, "", pairs),
    )
    return [
        f"{gap}: {count}{total}" + (f" ({first_few(names, count)})" if names else "")
        for gap, count, total, names in gaps
        if count
    ]


def named_runs(arguments: Sequence[str]) -> tuple[list[str], list[str]]:
    """Split ``[NAME=]RUN`` arguments into paths and names; see `short_names` for runs without a name.

    A ``=`` after a slash, or in the name of a file that exists, is part of the path.
    """
    from aptool.paths import location

    paths, names = [], []
    for argument in arguments:
        name, equals, path = argument.partition("=")
        if not (equals and name and path) or "/" in name or location(argument).exists():
            name, path = "", argument
        paths.append(path)
        names.append(name)
    unnamed = [path for path, name in zip(paths, names, strict=True) if not name]
    shown = short_names(unnamed) if unnamed else {}
    return paths, [printable(name) or shown[path] for path, name in zip(paths, names, strict=True)]


def short_names(runs: Sequence[str]) -> dict[str, str]:
    """Name each run by the part in which the paths differ: ``qa-cnn`` for ``runs/qa-cnn/test.run``.

    A single run is named by its file name.
    """
    if len(runs) == 1:
        return {runs[0]: printable(Path(runs[0]).name)}
    words = [re.split(r"([/.])", run) for run in runs]
    for end in (-1, 0):
        while len({parts[end] for parts in words}) == 1 and min(map(len, words)) > 1:
            for parts in words:
                del parts[end]
    names = ["".join(parts).strip("/.") for parts in words]
    return dict(zip(runs, map(printable, names if all(names) else runs), strict=True))


def pools_given(pools: tuple[str, ...], qrels: str) -> Pools | None:
    """Load ``--pools``, else the pools in the folder of the qrels; return None if there are none."""
    from aptool.data.pools import Pools

    found = pools or pools_beside(qrels)
    return Pools.load(found) if found else None


def pools_beside(qrels: str) -> tuple[str, ...]:
    """The pools in the folder of the qrels, if there are any."""
    default = location_of_pools(qrels)
    if not default.is_file():
        return ()
    logger.info(f"--pools {default} (default)")
    return (str(default),)


def location_of_pools(qrels: str) -> Location:
    """Return the path of the pools in the folder of the qrels."""
    from aptool.paths import location

    stem = qrels.removesuffix(".gz").removesuffix(".parquet").removesuffix(".qrels")
    return location(f"{stem}.pools.parquet")


def _collection_of_matrix(run: str) -> Location | None:
    """The collection of COLLECTION/SYSTEM/SEED/SPLIT.run, in the output folder of `aptool matrix`."""
    from aptool.documents import read_json
    from aptool.paths import location
    from aptool.reporting.runs import TABLE, recorded_folder

    folder = location(run).parent.parent.parent
    if not (folder.parent / TABLE).is_file():
        return None
    recorded = read_json(folder.parent / TABLE).get("collections", {}).get(folder.name)
    return None if recorded is None else recorded_folder(folder.parent, recorded["path"])


def _possible_qrels(run: str, folder: Location | None = None) -> list[Location]:
    """Return ``test.ap-cnn.qrels``, then ``test.qrels``, each plain and gzipped, for ``test.ap-cnn.run``.

    A ``folder`` of None is that of the run.
    """
    from aptool.files import unpacked_name
    from aptool.paths import location

    path = location(run)
    parts = unpacked_name(path.name).removesuffix(".run").split(".")
    stems = [".".join(parts[:length]) for length in range(len(parts), 0, -1)]
    folder = path.parent if folder is None else folder
    return [folder / (stem + suffix) for stem in stems if stem for suffix in (".qrels", ".qrels.gz")]
