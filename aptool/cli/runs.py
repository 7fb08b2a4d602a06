"""Options of commands that evaluate runs: qrels, pools, measures and groups of questions."""

from __future__ import annotations

import logging
import re
from pathlib import Path
from typing import TYPE_CHECKING

import click

from aptool.documents import read_json
from aptool.errors import MOST_EXAMPLES, UsageError, first_few, printable
from aptool.evaluation.names import DEFAULT_MEASURES, measure_names
from aptool.paths import Location, location

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    import polars as pl

    from aptool.data.pools import Pools
    from aptool.data.runs import Qrels
    from aptool.evaluation.measures import Evaluation

logger = logging.getLogger(__name__)

FEW_QUESTIONS = 10  # means of groups with fewer questions are unreliable

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

by_option = click.option(
    "--by",
    type=click.Choice(["length"]),
    metavar="length",
    help="Add results by length: over the questions whose relevant answer has at most N words (figures 3 and "
    "4 of the paper).",
)


def check_distinct(runs: Sequence[str]) -> None:
    """Raise if a run is given more than once."""
    repeated = sorted({run for run in runs if runs.count(run) > 1})
    if repeated:
        raise UsageError(f"{', '.join(repeated)}: given more than once; expected different runs")


def parse_measures(measures: str | None) -> tuple[str, ...]:
    """Return the printed names of comma-separated measures; None is the default measures."""
    if measures is None:
        return DEFAULT_MEASURES
    return measure_names(measures.replace(",", " ").split())


def qrels_of(runs: Sequence[str], given: str | None) -> str:
    """Return the given file, else the qrels in the folders of the runs or in the collection of a matrix."""
    if given is not None:
        return given
    qrels = set()
    for run in runs:
        path = next((path for path in _possible_qrels(run) if path.is_file()), None)
        if path is None:
            names = dict.fromkeys(path.name.removesuffix(".gz") for path in _possible_qrels(run))
            raise UsageError(f"{run}: no {' or '.join(names) or 'qrels'} in its folder; pass --qrels FILE")
        qrels.add(str(path))
    if len(qrels) > 1:
        raise UsageError(f"the runs have different qrels, {', '.join(sorted(qrels))}; pass --qrels FILE")
    logger.info(f"--qrels {min(qrels)} (default)")
    return qrels.pop()


def report_gaps(evaluations: Mapping[str, Evaluation]) -> None:
    """Log what is only in a run or only in the qrels, one line for all runs with the same gap."""
    runs_of: dict[str, list[str]] = {}
    for run, evaluation in evaluations.items():
        missing, extra, unjudged = evaluation.missing, evaluation.extra, evaluation.unjudged
        of_questions = f"{len(missing)} of {evaluation.per_question.height}"
        pairs = [" ".join(pair) for pair in unjudged.head(MOST_EXAMPLES + 1).iter_rows()]
        for gap, examples in (
            (f"questions missing from the run, counted as 0: {of_questions}", missing),
            (f"questions not in the qrels, left out: {len(extra)}", extra),
            (f"candidates not judged or judged below 0, counted as not relevant: {unjudged.height}", pairs),
        ):
            if examples:
                runs_of.setdefault(f"{gap} ({first_few(examples)})", []).append(run)
    for gap, runs in runs_of.items():
        logger.info(f"{first_few(runs)}: {gap}")


def named_runs(arguments: Sequence[str]) -> tuple[list[str], list[str]]:
    """Split ``[NAME=]RUN`` arguments into paths and names; see `short_names` for runs without a name.

    A ``=`` after a slash, or in the name of a file that exists, is part of the path.
    """
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


def groups_of(judgements: Qrels, qrels: str, texts: Pools | None) -> pl.DataFrame:
    """The groups of questions by the length of their relevant answers in the pools."""
    from aptool.evaluation.texts import length_groups

    if texts is None:
        name = location_of_pools(qrels).name
        raise UsageError(f"--by length: no {name} in the folder of the qrels; pass --pools")
    groups = length_groups(texts, judgements)
    if groups.is_empty():
        raise UsageError(f"--by length: no relevant answer of {qrels} is in the pools")
    return groups


def report_groups(evaluation: Evaluation, groups: pl.DataFrame) -> None:
    """Log the number of questions without a group, and of small groups."""
    without = evaluation.per_question.join(groups, on="question_id", how="anti", maintain_order="left")
    if without.height:
        examples = first_few(without["question_id"].to_list())
        logger.info(f"--by length: questions in no group: {without.height} ({examples})")
    few = int((groups.group_by("group").len()["len"] < FEW_QUESTIONS).sum())
    if few:
        logger.info(f"--by length: groups with under {FEW_QUESTIONS} questions, marked (few): {few}")


def pools_beside(qrels: str) -> tuple[str, ...]:
    """The pools in the folder of the qrels, if there are any."""
    default = location_of_pools(qrels)
    if not default.is_file():
        return ()
    logger.info(f"--pools {default} (default)")
    return (str(default),)


def location_of_pools(qrels: str) -> Location:
    """Return the path of the pools in the folder of the qrels."""
    stem = qrels.removesuffix(".gz").removesuffix(".parquet").removesuffix(".qrels")
    return location(f"{stem}.pools.parquet")


def _collection_of_matrix(run: str) -> Location | None:
    """The collection of COLLECTION/SYSTEM/SEED/SPLIT.run, in the output folder of `aptool matrix`."""
    from aptool.reporting.runs import TABLE, recorded_folder

    folder = location(run).parent.parent.parent
    if not (folder.parent / TABLE).is_file():
        return None
    recorded = read_json(folder.parent / TABLE).get("collections", {}).get(folder.name)
    return None if recorded is None else recorded_folder(folder.parent, recorded["path"])


def _possible_qrels(run: str) -> Iterator[Location]:
    """Yield ``test.ap-cnn.qrels``, then ``test.qrels``, each plain and gzipped, for ``test.ap-cnn.run``.

    They are in the folder of the run, then in its collection if `aptool matrix` wrote the run.
    """
    from aptool.files import unpacked_name

    path = location(run)
    parts = unpacked_name(path.name).removesuffix(".run").split(".")
    stems = [".".join(parts[:length]) for length in range(len(parts), 0, -1)]
    names = [stem + suffix for stem in stems if stem for suffix in (".qrels", ".qrels.gz")]
    yield from (path.parent / name for name in names)
    collection = _collection_of_matrix(run)
    if collection is not None:
        yield from (collection / name for name in names)
