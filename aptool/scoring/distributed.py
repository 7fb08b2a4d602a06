"""Scoring on a Ray cluster: the units of ``shards``, mapped by Ray Data over a pool of workers.

Ray tries a unit again when its worker or node is lost, so a unit may be scored more than once. It counts once
all the same: whoever scores it writes the same bytes under the same name. A driver that was killed leaves
workers behind that go on for some seconds; they stop when they see that the parts folder is another driver's.
"""

import contextlib
import logging
import os
import pickle
import secrets
import socket
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import ray
import ray.data
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from aptool import __version__
from aptool.errors import AptoolError, InputError
from aptool.formats.atomic import check_writable
from aptool.formats.pools import Answers, Unit, read_answers
from aptool.scoring.cluster import Cluster, Share, first_line
from aptool.scoring.shards import Part, System, is_done, merge, parts_folder, plan, score_unit

# How often a unit is tried again whose worker was lost. A lost node costs one try; a unit that kills every
# worker, by its size, must not go round for ever.
TRIES = 4

# Units that may fail, each by itself, before the rest is given up.
FAILURES = 10

# Seconds that a shared file system may take to show a part that a worker has written.
PATIENCE = 60.0

LEASE = "driver"


class Job(NamedTuple):
    """All that a worker is told."""

    open: Callable[[str], System]  # makes the system on a device
    device: str
    fingerprint: str  # of the system, as the driver has it
    folder: Path  # of the parts
    lease: str  # what the folder's driver file says as long as this run has it
    answers: str | None  # path of the answers that pools share


class Outcome(NamedTuple):
    """What a worker says about a unit."""

    number: int
    pairs: int
    worker: str  # host and process
    error: str  # what is wrong with the unit, in one line; empty if nothing is
    fatal: bool  # the same would be wrong with every unit


@dataclass(frozen=True)
class Scored:
    """How a run was made."""

    pairs: int
    units: int
    resumed: int  # units whose parts were there already
    workers: int  # processes that scored; more than the pool had if some were replaced
    logs: str  # where Ray's own logs are


def score_pools(
    units: Sequence[Unit],
    system: System,
    opener: Callable[[str], System],
    output: str | Path,
    *,
    cluster: Cluster,
    tag: str,
    answers: Answers | None = None,
    workers: int | None = None,
    each: Share = Share(),
    paths: Sequence[str] = (),
    debug: bool = False,
    say: Callable[[str], None] = lambda line: None,
    report: Callable[[int, int, bool], None] = lambda done, pairs, fresh: None,
) -> Scored:
    """Scores pools into a run file, the same to the byte as ``scoring.local`` writes.

    Goes on from the parts that an earlier call left, wherever that was stopped.

    Args:
        units: the row groups to score.
        system: what scores them; of it the driver needs only the fingerprint.
        opener: makes that system on a worker, given the worker's device; it is sent there by pickle.
        output: the run file, in a folder that all nodes share.
        cluster: where to.
        tag: the run's name, one word.
        answers: where texts that are not in the pools are looked up.
        workers: how many processes score; None is as many as there is room for, growing and shrinking.
        each: what one of them gets.
        paths: further files and folders that every node must see.
        debug: leave Ray's own progress bars and messages on.
        say: told in a line what the work is done with.
        report: told the units done, the pairs that the last of them had, and whether it was scored now.

    Raises:
        InputError: an input or the output is not what it should be.
        AptoolError: the cluster has no room, a node does not see what it needs, or workers were lost.
    """
    check_writable(output)
    room = cluster.check_room(workers, each)
    say(
        f"cluster {cluster.address}: {workers if workers is not None else f'{room} or more'} workers with {each} "
        f"each; Ray's logs are in {cluster.logs}"
    )
    parts = plan(units, system, output, answers)
    folder = parts_folder(output)
    folder.mkdir(exist_ok=True)
    lease = _take(folder)
    device = "cuda" if each.gpus else "cpu"
    shared = answers.path if answers is not None else None
    job = Job(opener, device, system.fingerprint, folder.resolve(), lease, shared)
    local = {unit.path for unit in units if "://" not in unit.path}
    _check_nodes(cluster, job, each, [*sorted(local), *paths, *([shared] if shared else [])])

    todo = []
    done = 0
    for number, part in enumerate(parts):
        if is_done(part):
            done += 1
            report(done, part.pairs, False)
        else:
            todo.append(number)
    resumed = done
    seen: set[str] = set()
    failures: list[str] = []
    if todo:
        for outcome in _outcomes(parts, todo, job, workers, room, each, debug):
            if outcome.fatal:
                raise AptoolError(outcome.error)
            if outcome.error:
                failures.append(outcome.error)
                if len(failures) == FAILURES:
                    break
                continue
            seen.add(outcome.worker)
            done += 1
            report(done, outcome.pairs, True)
    if failures:
        more = f" (and {len(failures) - 1} more like it)" if len(failures) > 1 else ""
        raise AptoolError(
            f"{failures[0]}{more}; {done} of {len(parts)} row groups are scored and kept: "
            "mend the input and run the same command again"
        )
    for number in todo:
        _await(parts[number])
    _take(folder)  # whoever of an earlier driver is still at work writes nothing from here on
    pairs = merge(parts, output, tag)
    return Scored(pairs, len(parts), resumed, len(seen), cluster.logs)


def _outcomes(
    parts: list[Part],
    todo: list[int],
    job: Job,
    workers: int | None,
    room: int,
    each: Share,
    debug: bool,
) -> Iterator[Outcome]:
    _quiet(debug)
    rows = [{"number": number, "part": pickle.dumps(parts[number])} for number in todo]
    most = len(todo)
    if workers is not None:
        pool = ray.data.ActorPoolStrategy(size=min(workers, most), max_tasks_in_flight_per_actor=2)
    else:
        begin = max(1, min(room, most))
        pool = ray.data.ActorPoolStrategy(
            min_size=1, max_size=most, initial_size=begin, max_tasks_in_flight_per_actor=2
        )
    dataset = ray.data.from_items(rows, override_num_blocks=len(rows)).map_batches(
        Scorer,
        batch_size=1,
        fn_constructor_args=(job,),
        compute=pool,
        num_cpus=each.cpus,
        num_gpus=each.gpus or None,
        max_task_retries=TRIES,
        max_restarts=-1,
    )
    try:
        for row in dataset.iter_rows():
            yield Outcome(**row)
    except (ray.exceptions.RayError, SystemError) as error:
        raise _lost(error) from error


class Scorer:
    """What runs on a worker: the system opened once, then units in turn."""

    def __init__(self, job: Job) -> None:
        self._job = job
        self._failure = ""
        self._worker = f"{socket.gethostname()}:{os.getpid()}"
        try:
            self._system = job.open(job.device)
            _check_system(job, self._system)
            self._answers = read_answers(job.answers) if job.answers is not None else None
        except AptoolError as error:
            self._failure = f"node {_node()}: {error}"

    def __call__(self, batch: dict[str, Any]) -> dict[str, list[Any]]:
        """Scores the one unit of a batch."""
        number, part = int(batch["number"][0]), pickle.loads(batch["part"][0])
        outcome = self._outcome(number, part)
        return {name: [value] for name, value in outcome._asdict().items()}

    def _outcome(self, number: int, part: Part) -> Outcome:
        if self._failure:
            return Outcome(number, 0, self._worker, self._failure, True)
        if not _holds(self._job.folder, self._job.lease):
            return Outcome(number, 0, self._worker, _taken_over(self._job), True)
        try:
            pairs = score_unit(part, self._system, self._answers)
        except AptoolError as error:
            return Outcome(number, 0, self._worker, str(error), False)
        return Outcome(number, pairs, self._worker, "", False)


def _take(folder: Path) -> str:
    """Makes the parts folder this process's own; whoever had it before loses it."""
    lease = secrets.token_hex(8)
    temporary = folder / f".{LEASE}.{lease}"
    temporary.write_text(lease, encoding="ascii")
    os.replace(temporary, folder / LEASE)
    return lease


def _holds(folder: Path, lease: str) -> bool:
    try:
        return (folder / LEASE).read_text(encoding="ascii") == lease
    except OSError:
        return False


def _taken_over(job: Job) -> str:
    return f"{job.folder}: another run of the same output has taken over: expected one at a time"


def _check_nodes(cluster: Cluster, job: Job, each: Share, paths: Sequence[str]) -> None:
    """Has every node that could score look at what it will need.

    Raises:
        AptoolError: the first node that misses something.
    """
    check = ray.remote(num_cpus=0, max_retries=1)(_complaint)
    asked = {}
    for node in cluster.nodes():
        if node.fits(each):
            stay = NodeAffinitySchedulingStrategy(node.node_id, soft=False)
            asked[check.options(scheduling_strategy=stay).remote(job, list(paths))] = node.host
    for reference, host in asked.items():
        try:
            complaint = ray.get(reference, timeout=PATIENCE)
        except ray.exceptions.RayError as error:
            raise AptoolError(
                f"--cluster {cluster.address}: node {host}: {_cause(error)}: expected aptool {__version__} there"
            ) from error
        if complaint:
            raise AptoolError(f"--cluster {cluster.address}: {complaint}")


def _complaint(job: Job, paths: Sequence[str]) -> str:
    """What the node that this runs on misses, in one line; empty if it has everything."""
    missing = [path for path in paths if not Path(path).exists()]
    if missing:
        return f"node {_node()}: {missing[0]}: no such file there: expected a path that every node sees"
    if not _holds(job.folder, job.lease):
        return (
            f"node {_node()}: {job.folder}: not there, or another folder than the driver's: "
            "expected an output on storage that all nodes share"
        )
    try:
        check_writable(job.folder / f"node-{_node()}-{os.getpid()}")
    except InputError as error:
        return f"node {_node()}: {error}"
    return ""


def _check_system(job: Job, system: System) -> None:
    if system.fingerprint != job.fingerprint:
        raise AptoolError("the model there is not the driver's: expected the same model folder on every node")


def _await(part: Part) -> None:
    """Waits until a part that a worker has written is to be seen here: shared file systems take a moment."""
    end = time.monotonic() + PATIENCE
    while not is_done(part):
        if time.monotonic() > end:
            raise AptoolError(
                f"{part.path}: a worker wrote it and it is not here: expected an output on storage that all share"
            )
        time.sleep(0.2)


def _quiet(debug: bool) -> None:
    context = ray.data.DataContext.get_current()
    context.enable_progress_bars = debug
    context.print_on_execution_start = debug
    for handler in logging.getLogger("ray.data").handlers:
        # The handler of the log file is left as it is.
        if not debug and not hasattr(handler, "baseFilename") and "File" not in type(handler).__name__:
            handler.setLevel(logging.CRITICAL)


def _lost(error: BaseException) -> AptoolError:
    return AptoolError(f"--cluster: {_cause(error)}")


def _cause(error: BaseException) -> str:
    return first_line(error)


def _node() -> str:
    with contextlib.suppress(Exception):
        return str(ray.util.get_node_ip_address())
    return socket.gethostname()
