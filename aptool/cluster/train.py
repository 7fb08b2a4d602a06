"""Training on a Ray cluster: the loop of ``loop`` in each worker of Ray Train, as one ``ProcessGroup``.

The recipe's minibatch is that of all workers together: each takes the gradient of its share, and the sum is
the gradient that one process would have. So the learning rate stays as it is however many workers there are,
and what is drawn does not depend on their number.

The state after each epoch stands where one process keeps it. Whether a worker, a node or the driver was lost,
training goes on from there; Ray's part is to start the workers again.
"""

import contextlib
import logging
import os
import secrets
import shutil
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

import ray
import ray.train
from ray.train.torch import TorchConfig, TorchTrainer, get_device

from aptool import __version__
from aptool.cluster.resources import Cluster, Resources, count, fitting
from aptool.config import Recipe
from aptool.errors import AptoolError, UsageError, error_with, first_line
from aptool.formats.collection import Collection
from aptool.progress import Progress, Update, get_progress, use_progress
from aptool.training.checkpoint import trained_key, training_folder
from aptool.training.fit import Fit, already_trained, check_training, fit
from aptool.training.process_group import SINGLE_PROCESS, TorchProcessGroup

logger = logging.getLogger(__name__)

# How often workers that were lost are started again, from the last whole epoch.
RESTARTS = 8

# Seconds that as many workers as before may take to find room again.
START = 30

# Seconds that workers wait for each other: the first one may be learning word vectors meanwhile.
TIMEOUT_SECONDS = 6 * 3600

# Seconds that the workers of a driver that was killed may take to give back what they had, and those of a
# training that has just ended, as one after another does in a matrix.
RELEASE = 20
HANDOVER = 5

# Seconds between two looks at what the workers have to tell.
POLL_SECONDS = 0.3

LEASE = "driver"  # names the driver that the folder of the state belongs to
RUN = "ray"  # what Ray Train itself writes down


@dataclass(frozen=True)
class TrainingJob:
    """What every worker trains.

    Attributes:
        start: the folder that relative paths start from.
        lease: what the driver has written into the folder of the state.
        versions: what the driver runs, by name.
        gpu: whether a worker has one.
    """

    start: Path
    collection: Path
    recipe: Recipe
    output: Path
    seed: int
    lease: str
    versions: tuple[tuple[str, str], ...]
    gpu: bool


class WorkerError(NamedTuple):
    """A user's mistake that a worker found: the exit code and the line that the driver ends in."""

    exit_code: int
    line: str


def fit_on_cluster(
    collection: Collection,
    recipe: Recipe,
    output: str | Path,
    *,
    cluster: Cluster,
    seed: int = 0,
    workers: int | None = None,
    each: Resources | None = None,
) -> Fit:
    """Trains as ``fit`` does, on a cluster.

    Args:
        collection: in a folder that all nodes see.
        recipe: the system and the procedure.
        output: the model folder, on storage that all nodes share.
        cluster: where to.
        seed: of everything that is drawn.
        workers: how many processes train; None is one a GPU, or one a node where there are none, and fewer
            from then on when there is no more room for them.
        each: what one worker gets at least; cores that are left over are shared out.

    Raises:
        InputError, UsageError: as for ``fit``.
        AptoolError: there is no room, a node does not see what it needs, or workers were lost too often.
    """
    if cluster.through_client:
        raise UsageError(
            f"--cluster {cluster.address}: training cannot be led through Ray's client: expected host:port, "
            "or `ray job submit -- aptool train ... --cluster`"
        )
    each = each if each is not None else Resources()
    device = "cuda" if each.gpus else "cpu"
    _, key = check_training(collection, recipe, output, seed, device=device)
    done = already_trained(output, key)
    if done is not None:
        return done
    folder = training_folder(output)
    least = each
    while True:
        number, each = shared_out(cluster, workers, least, RELEASE if folder.exists() else HANDOVER)
        if number > recipe.training.minibatch:
            wanted = f"no more than the {recipe.training.minibatch} questions of a minibatch"
            raise UsageError(f"--workers {number}: expected {wanted} (training.minibatch)")
        many = count(number, "worker")
        logger.info(f"cluster {cluster.address}: {many} with {each} each; Ray's logs are in {cluster.logs}")
        folder.mkdir(exist_ok=True)
        lease = secrets.token_hex(8)
        (folder / LEASE).write_text(lease, encoding="ascii")
        versions = tuple(_versions().items())
        job = TrainingJob(
            Path.cwd(), collection.path, recipe, Path(output), seed, lease, versions, bool(each.gpus)
        )
        try:
            error_found = _attempt(job, f"{key}-{lease}", number, each)
            break
        except (ray.train.TrainingFailedError, ray.exceptions.RayError) as error:
            if isinstance(error, ray.train.ControllerError) and workers is None and number > 1:
                logger.info(f"no room for {number} workers any more")
                continue
            raise AptoolError(
                f"--cluster {cluster.address}: training stopped: {_cause(error)}; every whole epoch is kept "
                f"in {folder}: run the same command again"
            ) from error
        finally:
            shutil.rmtree(folder / RUN, ignore_errors=True)
            (folder / LEASE).unlink(missing_ok=True)
            with contextlib.suppress(OSError):  # not empty: training goes on from there
                folder.rmdir()
    if error_found is not None:
        raise error_with(*error_found)
    result = already_trained(output, trained_key(output) or "")
    if result is None:
        raise AptoolError(
            f"{output}: the workers wrote a model and it is not here: "
            "expected an output on storage that all nodes share"
        )
    return result


def _attempt(
    job: TrainingJob,
    name: str,
    number: int,
    each: Resources,
) -> WorkerError | None:
    """Trains with a number of workers, which are started again when one of them is lost."""
    os.environ.setdefault("RAY_TRAIN_HEALTH_CHECK_INTERVAL_S", "0.5")
    os.environ.setdefault("RAY_TRAIN_WORKER_GROUP_START_TIMEOUT_S", str(START))
    logging.getLogger("ray.train").setLevel(logging.ERROR)
    board = ray.remote(num_cpus=0)(MessageBoard).remote()
    trainer = TorchTrainer(
        _train_worker,
        train_loop_config={"job": job, "board": board},
        # NCCL takes no two workers on one GPU.
        torch_config=TorchConfig("nccl" if each.gpus >= 1 else "gloo", timeout_s=TIMEOUT_SECONDS),
        # Ray's own elastic numbers wait for minutes for what a driver that was killed had asked for.
        scaling_config=ray.train.ScalingConfig(
            num_workers=number,
            use_gpu=bool(each.gpus),
            resources_per_worker={"CPU": each.cpus, **({"GPU": each.gpus} if each.gpus else {})},
            placement_strategy="SPREAD",
        ),
        run_config=ray.train.RunConfig(
            # A name of its own each time: what training goes on from is our state, not Ray's.
            name=name,
            storage_path=str((training_folder(job.output) / RUN).resolve()),
            failure_config=ray.train.FailureConfig(max_failures=RESTARTS, controller_failure_limit=0),  # type: ignore[call-arg]
        ),
    )
    with _forwarded(board) as errors:
        trainer.fit()
    return errors[0] if errors else None


def shared_out(
    cluster: Cluster, workers: int | None, each: Resources, patience: float = 0
) -> tuple[int, Resources]:
    """How many workers train, and what each gets: the cores are shared out among them.

    Args:
        cluster: where.
        workers: how many are wanted; None is one a GPU, or one a node where they get no GPU.
        each: what one needs at least.
        patience: seconds to wait for what is taken, if no number is asked for.

    Raises:
        AptoolError: there is no room for them.
    """
    number = workers
    if number is None:
        until = time.monotonic() + patience
        while (found := _one_each(cluster, each, now=True)) < _one_each(cluster, each, now=False):
            if time.monotonic() > until:
                break
            time.sleep(POLL_SECONDS)
        number = max(1, found)
    cluster.check_room(number, each)
    nodes = [node.free for node in cluster.nodes() if fitting(node.free, each)]
    cpus = int(sum(free.cpus for free in nodes) / number)
    while cpus > each.cpus and sum(fitting(free, each._replace(cpus=cpus)) for free in nodes) < number:
        cpus -= 1
    return number, each._replace(cpus=max(cpus, each.cpus))


def _one_each(cluster: Cluster, each: Resources, now: bool) -> int:
    """Workers on all GPUs or, where they get none, one on each node: of what is free, or of all there is."""
    room = [fitting(node.free if now else node.all, each) for node in cluster.nodes()]
    return sum(room) if each.gpus else sum(fit > 0 for fit in room)


class MessageBoard:
    """An actor that holds the messages of the first worker until the driver takes them."""

    def __init__(self) -> None:
        self._messages: list[tuple[str, Any]] = []

    def post(self, kind: str, value: Any) -> None:
        """Adds a message; of progress only the last one counts."""
        if self._messages and kind == "progress" and self._messages[-1][0] == kind:
            self._messages.pop()
        self._messages.append((kind, value))

    def take(self) -> list[tuple[str, Any]]:
        """All messages since the last time."""
        messages, self._messages = self._messages, []
        return messages


@contextlib.contextmanager
def _forwarded(board: Any) -> Iterator[list[WorkerError]]:
    """Passes the workers' messages on to this process's log and progress while the block runs."""
    errors: list[WorkerError] = []
    over = threading.Event()

    def listen(update: Update) -> None:
        receive: dict[str, Callable[[Any], None]] = {
            "log": logger.info,
            "progress": lambda state: update(*state),
            "epoch": get_progress().epoch,
            "error": lambda error: errors.append(WorkerError(*error)),
        }
        last = False
        while not last:
            last = over.wait(POLL_SECONDS)
            try:
                messages = ray.get(board.take.remote(), timeout=30)
            except ray.exceptions.RayError:
                continue  # the board's node is lost: what the workers do does not hang on it
            for kind, value in messages:
                receive[kind](value)

    with get_progress().task("train") as update:
        listener = threading.Thread(target=listen, args=(update,), daemon=True)
        listener.start()
        try:
            yield errors
        finally:
            over.set()
            listener.join()


class _BoardProgress(Progress):
    """Posts the progress of the first worker to the board."""

    def __init__(self, board: Any) -> None:
        self._board = board

    @contextlib.contextmanager
    def task(self, name: str) -> Iterator[Update]:
        """See ``Progress.task``."""
        posted = 0.0

        def update(done: int, total: int, detail: str = "") -> None:
            nonlocal posted
            if time.monotonic() - posted > POLL_SECONDS:
                posted = time.monotonic()
                self._board.post.remote("progress", (done, total, detail))

        yield update

    def epoch(self, entry: dict[str, Any]) -> None:
        """See ``Progress.epoch``."""
        self._board.post.remote("epoch", entry)


class _BoardHandler(logging.Handler):
    """Posts log messages to the board."""

    def __init__(self, board: Any) -> None:
        super().__init__(logging.INFO)
        self._board = board

    def emit(self, record: logging.LogRecord) -> None:
        """Posts one message."""
        self._board.post.remote("log", record.getMessage())


@contextlib.contextmanager
def _reporting_to(board: Any) -> Iterator[None]:
    """Messages and progress of this process go to the board; to nobody where there is none."""
    if board is None:
        with use_progress(_Silence()):
            yield
        return
    root = logging.getLogger("aptool")
    handler, level = _BoardHandler(board), root.level
    root.addHandler(handler)
    root.setLevel(logging.INFO)
    try:
        with use_progress(_BoardProgress(board)):
            yield
    finally:
        root.removeHandler(handler)
        root.setLevel(level)


class _Silence(Progress):
    """Says nothing, not even of epochs: the first worker does."""

    def epoch(self, entry: dict[str, Any]) -> None:
        """See ``Progress.epoch``."""


def _train_worker(config: dict[str, Any]) -> None:
    """What runs on each worker."""
    job: TrainingJob = config["job"]
    context = ray.train.get_context()
    rank, size = context.get_world_rank(), context.get_world_size()
    group = TorchProcessGroup(rank, size) if size > 1 else SINGLE_PROCESS
    board = config["board"] if rank == 0 else None
    try:
        with group.together():
            collection = _opened(job)
        device = get_device() if job.gpu else "cpu"
        with _reporting_to(board):
            fit(collection, job.recipe, job.output, seed=job.seed, device=device, group=group)
    except AptoolError as error:
        # Not raised: Ray would start the workers again, into the same error.
        if board is not None:
            ray.get(board.post.remote("error", (error.exit_code, str(error))))


def _opened(job: TrainingJob) -> Collection:
    """The collection, once it is clear that this node sees what the driver sees."""
    # Where it is not there only absolute paths lead anywhere, and may be all there is.
    with contextlib.suppress(OSError):
        os.chdir(job.start)
    try:
        lease = (training_folder(job.output) / LEASE).read_text(encoding="ascii")
    except OSError:
        lease = ""
    if lease != job.lease:
        raise AptoolError(
            f"{job.start / training_folder(job.output)}: not there, or not the driver's folder: "
            "expected an output on storage that all nodes share"
        )
    here = _versions()
    differ = [
        f"{name} {here[name]} there, {wanted} here" for name, wanted in job.versions if here[name] != wanted
    ]
    if differ:
        raise AptoolError(f"{'; '.join(differ)}: expected the same versions")
    return Collection(job.collection)


def _versions() -> dict[str, str]:
    return {"aptool": __version__, "torch": version("torch")}


def _cause(error: BaseException) -> str:
    """Why workers failed for good, in one line."""
    failures = getattr(error, "worker_failures", None)
    if failures:
        rank = min(failures)
        return f"worker {rank}: {first_line(failures[rank])}"
    return first_line(error)
