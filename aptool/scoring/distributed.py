"""Scoring on a Ray cluster: the units of ``shards``, mapped by Ray Data over a pool of ``workers``.

Ray tries a unit again when its worker or node is lost, so a unit may be scored more than once; it counts once
all the same (see ``workers``). Only a few numbers a unit come back here: texts and scores go from file to
file.
"""

import contextlib
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import ray

from aptool.cluster.connection import connect
from aptool.cluster.nodes import Cluster, Share, count, worker_share
from aptool.errors import AptoolError
from aptool.formats.atomic import check_writable
from aptool.formats.pools import Answers, Unit, pool_sizes, read_answers, read_pools
from aptool.formats.storage import is_remote
from aptool.models.checkpoint import load_model
from aptool.scoring.parts import Part, is_done, merge, parts_folder, read_index
from aptool.scoring.precision import pick_precision
from aptool.scoring.ray_data import cause, map_units
from aptool.scoring.scorer import Precision
from aptool.scoring.shards import System, plan
from aptool.scoring.systems import STORE_BYTES, ModelSystem, default_tag, fingerprint
from aptool.scoring.workers import Job, Outcome, own, sweep

# Units that may be at fault, each by itself, before the rest is given up.
FAULTS = 10

# Seconds that a shared file system may take to show what a worker has written.
PATIENCE = 60.0

CORE = Share(cpus=1)

Say = Callable[[str], None]
Report = Callable[[int, int, bool], None]


@dataclass(frozen=True)
class Scored:
    """How a run was made."""

    pairs: int
    truncated: int  # answers that were cut at the model's limit, counted in each unit
    units: int
    resumed: int  # units whose parts were there already
    retried: int  # units that were begun more than once, a worker having been lost
    workers: int  # processes that scored


@dataclass(frozen=True)
class ModelOn:
    """A trained model by its folder, opened on whatever worker it is sent to."""

    folder: str
    precision: Precision
    tokens_per_batch: int | None
    store_bytes: int | None

    def __call__(self, device: str) -> ModelSystem:
        """The model on a device.

        Raises:
            AptoolError: the folder is not there, or not whole.
        """
        return ModelSystem(
            load_model(self.folder, device),
            device,
            precision=self.precision,
            tokens_per_batch=self.tokens_per_batch,
            store_bytes=self.store_bytes,
        )


class Elsewhere(System):
    """A system that only workers have; here it is no more than its fingerprint."""

    def __init__(self, fingerprint: str) -> None:
        self.fingerprint = fingerprint

    def score(self, prepared: Any) -> np.ndarray:
        """Not here."""
        raise NotImplementedError


def score_model(
    units: Sequence[Unit],
    folder: str | Path,
    output: str | Path,
    *,
    cluster: Cluster,
    tag: str | None = None,
    answers: str | Path | None = None,
    device: str = "auto",
    precision: Literal["auto", "fp32", "bf16"] = "auto",
    tokens_per_batch: int | None = None,
    workers: int | None = None,
    gpus_per_worker: float | None = None,
    debug: bool = False,
    say: Say = lambda line: None,
    report: Report = lambda done, pairs, fresh: None,
) -> Scored:
    """Scores pools with a trained model: what ``aptool score --cluster`` does.

    Args:
        units: the row groups to score.
        folder: of the model, where every node sees it.
        output: the run file, in a folder that all nodes share.
        cluster: where to.
        tag: the run's name; None is the model's.
        answers: the file of the answers that pools share.
        device: ``cpu``, ``cuda``, or ``auto`` for a GPU where the cluster has any.
        precision: see ``scoring.precision``; decided once, on one worker, for all of them.
        tokens_per_batch: see ``ModelSystem``.
        workers: see ``score_pools``.
        gpus_per_worker: GPUs a worker, or a fraction of one; None is one where the cluster has any.
        debug: see ``score_pools``.
        say: see ``score_pools``.
        report: see ``score_pools``.

    Raises:
        AptoolError: see ``score_pools``; or the model cannot be read.
    """
    folder, output = everywhere(folder), everywhere(output)
    shared = everywhere(answers) if answers is not None else None
    units = [unit._replace(path=everywhere(unit.path)) for unit in units]
    if cluster.through_client:
        say(f"cluster {cluster.address}: the work is led from there; Ray's logs are in {cluster.logs}")
        return _led_from_there(
            cluster,
            partial(
                score_model,
                units,
                folder,
                output,
                tag=tag,
                answers=shared,
                device=device,
                precision=precision,
                tokens_per_batch=tokens_per_batch,
                workers=workers,
                gpus_per_worker=gpus_per_worker,
            ),
        )
    each = worker_share(cluster, device, gpus_per_worker)
    cluster.check_room(workers, each)
    model = load_model(folder)
    where = "cuda" if each.gpus else "cpu"
    if precision == "auto" and each.gpus:
        trial = ray.remote(num_cpus=each.cpus, num_gpus=each.gpus)(_tried_precision)
        try:
            chosen: Precision = ray.get(trial.remote(folder, units[0], shared))
        except ray.exceptions.RayError as error:
            raise AptoolError(f"--cluster {cluster.address}: {cause(error)}") from error
    else:
        chosen = "fp32" if precision == "auto" else precision
    # On a GPU the store is in its memory, of which each worker sees for itself what is free.
    store = None if each.gpus else min(STORE_BYTES, cluster.memory(each) // 3)
    opener = ModelOn(folder, chosen, tokens_per_batch, store)
    scored = score_pools(
        units,
        fingerprint(model.fingerprint, where, chosen, tokens_per_batch),
        opener,
        output,
        cluster=cluster,
        tag=tag if tag is not None else default_tag(model.recipe),
        answers=shared,
        workers=workers,
        each=each,
        paths=[folder],
        debug=debug,
        say=say,
        report=report,
    )
    if scored.truncated:
        say(f"{scored.truncated} answers were cut at {model.recipe.text.max_answer_tokens} tokens")
    return scored


def _led_from_there(cluster: Cluster, work: Callable[..., Scored]) -> Scored:
    """Runs a driver in the cluster: Ray Data cannot be led through Ray's client."""
    try:
        scored: Scored = ray.get(ray.remote(num_cpus=0, max_retries=0)(_led).remote(work))
    except ray.exceptions.RayTaskError as error:
        if isinstance(error.cause, AptoolError):
            raise AptoolError(str(error.cause)) from error
        raise
    return scored


def _led(work: Callable[..., Scored]) -> Scored:
    with connect("auto") as cluster:
        return work(cluster=cluster)


def score_pools(
    units: Sequence[Unit],
    fingerprint: str,
    opener: Callable[[str], System],
    output: str | Path,
    *,
    cluster: Cluster,
    tag: str,
    answers: str | None = None,
    workers: int | None = None,
    each: Share = CORE,
    paths: Sequence[str] = (),
    debug: bool = False,
    say: Say = lambda line: None,
    report: Report = lambda done, pairs, fresh: None,
) -> Scored:
    """Scores pools into a run file, the same to the byte as ``scoring.local`` writes.

    Goes on from the parts that an earlier call left, wherever that was stopped, also if it was killed.

    Args:
        units: the row groups to score.
        fingerprint: of the system.
        opener: makes the system on a worker, given the worker's device; it is sent there by pickle.
        output: the run file, in a folder that all nodes share.
        cluster: where to.
        tag: the run's name, one word.
        answers: the file where texts that are not in the pools are looked up.
        workers: how many processes score; None is as many as there is room for, more as nodes come.
        each: what one of them gets. With a GPU it only scores, and others read and tokenise for it; without,
            it does all of it, as nothing would be gained by handing texts from one core to another.
        paths: further files and folders that every node must see.
        debug: leave Ray's own progress bars and messages on.
        say: told in a line what the work is done with.
        report: told the units done, the pairs that the last of them had, and whether it was scored now.

    Raises:
        InputError: an input or the output is not what it should be.
        AptoolError: the cluster has no room, a node does not see what it needs, or units could not be scored;
            the parts of all others stay.
    """
    check_writable(output)
    room = cluster.check_room(workers, each)
    many = count(workers, "worker") if workers is not None else f"room for {count(room, 'worker')}"
    say(f"cluster {cluster.address}: {many} with {each} each; Ray's logs are in {cluster.logs}")
    output = Path(output).absolute()
    units = [unit._replace(path=everywhere(unit.path)) for unit in units]
    parts = plan(units, Elsewhere(fingerprint), output, tag, _unread(answers))
    folder = parts_folder(output)
    folder.mkdir(exist_ok=True)
    owner = own(folder)
    sweep(output)
    inputs = dict.fromkeys([unit.path for unit in units] + ([answers] if answers is not None else []))
    needed = (*paths, *(path for path in inputs if not is_remote(path)))
    job = Job(opener, "cuda" if each.gpus else "cpu", fingerprint, folder, owner, answers, needed)

    todo: list[Part] = []
    for part in parts:
        if is_done(part):
            report(len(parts) - len(todo), part.pairs, False)
        else:
            todo.append(part)
    resumed = done = len(parts) - len(todo)
    outcomes: list[Outcome] = []
    faults: list[str] = []
    with contextlib.closing(map_units(todo, job, workers, room, each, cluster, debug)) as found:
        for outcome in found:
            if outcome.fatal:
                raise AptoolError(f"--cluster {cluster.address}: {outcome.error}")
            if outcome.error:
                faults.append(outcome.error)
                if len(faults) == FAULTS:
                    break
                continue
            done += 1
            outcomes.append(outcome)
            report(done, outcome.pairs, True)
    if faults:
        more = f" (and {len(faults) - 1} more like it)" if len(faults) > 1 else ""
        raise AptoolError(
            f"{faults[0]}{more}; {done} of {len(parts)} row groups are scored and kept: "
            "run the same command again when it is mended"
        )
    _await(todo)
    check_counts(parts)
    own(folder)  # workers that a killed driver has left behind write nothing from here on
    merged = merge(parts, output)
    return Scored(
        merged.pairs,
        merged.truncated,
        len(parts),
        resumed,
        sum(outcome.tries > 1 for outcome in outcomes),
        len({outcome.worker for outcome in outcomes}),
    )


def everywhere(path: str | Path) -> str:
    """A path that means the same in whatever folder a worker is."""
    return str(path) if is_remote(path) else str(Path(path).absolute())


def _unread(path: str | None) -> Answers | None:
    """Answers by their file alone: the driver looks up no text."""
    none = pa.array([], pa.large_string())
    return Answers(path, none, none) if path is not None else None


def _tried_precision(folder: str, unit: Unit, answers: str | None) -> Precision:
    """The precision to encode in, found out on a worker with a GPU."""
    import torch

    device = torch.device("cuda")
    texts = read_answers(answers) if answers is not None else None
    return pick_precision("auto", load_model(folder, device), device, lambda: read_pools(unit, texts))


def _await(parts: list[Part]) -> None:
    """Waits until parts that workers have written are seen here: shared file systems take a moment."""
    until = time.monotonic() + PATIENCE
    for part in parts:
        while not part.path.is_file():
            if time.monotonic() > until:
                raise AptoolError(
                    f"{part.path}: a worker has written it and it is not here: "
                    "expected an output on storage that all nodes share"
                )
            time.sleep(0.2)


def check_counts(parts: Sequence[Part]) -> None:
    """Holds parts against their inputs: every pool there, with every candidate.

    Raises:
        AptoolError: they differ.
    """
    for path, some in groupby(parts, key=lambda part: part.unit.path):
        these = list(some)
        for part, sizes in zip(these, pool_sizes(path, [one.unit.row_group for one in these]), strict=True):
            written = read_index(part).questions
            found = dict(zip(written["question_id"], written["pairs"], strict=True))
            for question, size in sizes.items():
                if found.get(question, 0) != size:
                    raise AptoolError(
                        f"{part.path}: question {question!r}: {found.get(question, 0)} scores: "
                        f"expected {size}, as in {path}; remove it and run again"
                    )
