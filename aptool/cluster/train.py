"""Training on a Ray cluster: ``fit`` in each worker of Ray Train, together one ``ProcessGroup``.

The recipe's minibatch is that of all workers together: each computes the gradient of its shard, and the sum
is the gradient of one process. So the learning rate does not depend on the number of workers, and neither do
the sampled pairs and negatives.

The first worker writes the training checkpoint when and where one process does. After the loss of a worker,
a node or the driver training resumes from there; Ray's part is to start the workers again.
"""

import contextlib
import logging
import os
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

import ray
import ray.train
from ray.train.torch import TorchConfig, TorchTrainer, get_device
from ray.util import metrics

from aptool.cluster.messages import POLL_SECONDS, BoardPost, listening, start_board
from aptool.cluster.resources import Cluster, Resources, count, fitting
from aptool.cluster.waiting import said_while_missing
from aptool.config import CHECKPOINT_MINUTES, Recipe
from aptool.errors import AptoolError, UsageError, first_line
from aptool.formats.atomic import remove_tree
from aptool.formats.claim import DRIVER, Claim, SupersededError, claimed_folder, holds
from aptool.formats.collection import Collection
from aptool.formats.location import Location, PathOrUrl, location
from aptool.formats.storage import stat
from aptool.progress import get_progress
from aptool.relay import WorkerError, relayed_to
from aptool.training.checkpoint import STATE, trained_key, training_folder
from aptool.training.fit import Fit, already_trained, check_training, fit
from aptool.training.process_group import SINGLE_PROCESS, TorchProcessGroup
from aptool.version import __version__

logger = logging.getLogger(__name__)

# How often lost workers are started again, from the last checkpoint, while no new one is written: on nodes
# that come and go any number of workers may be lost in a long training.
RESTARTS = 8

# Seconds that as many workers as before may take to start again, while a lost node is replaced; without a
# number of workers training goes on with fewer after the first, with one it waits as long as it may.
START_SECONDS = 180
LONGEST_START_SECONDS = 7 * 24 * 3600

# Seconds that workers wait for each other: the first one may be training word vectors meanwhile.
TIMEOUT_SECONDS = 6 * 3600

# Seconds that workers may take to release their resources: those of a driver that was killed, and those of a
# training that has just ended, as in a matrix of several systems.
RELEASE_SECONDS = 20
HANDOVER_SECONDS = 5

RUN = "ray"  # the folder of Ray Train's own state


@dataclass(frozen=True)
class TrainingJob:
    """The same job for every worker.

    Attributes:
        start: the folder that relative paths start from.
        owner: the token of the driver's claim on the output.
        versions: the driver's versions by package name.
        gpu: whether a worker has a GPU.
        checkpoint_minutes: see ``fit``.
    """

    start: Path
    collection: Location
    recipe: Recipe
    output: Location
    seed: int
    owner: str
    versions: tuple[tuple[str, str], ...]
    gpu: bool
    checkpoint_minutes: float = CHECKPOINT_MINUTES


def fit_on_cluster(
    collection: Collection,
    recipe: Recipe,
    output: PathOrUrl,
    *,
    cluster: Cluster,
    seed: int = 0,
    workers: int | None = None,
    each: Resources | None = None,
    checkpoint_minutes: float = CHECKPOINT_MINUTES,
) -> Fit:
    """Trains as ``fit`` does, on a cluster.

    Args:
        collection: in a folder that all nodes see.
        recipe: the system and the procedure.
        output: the model folder, on storage that all nodes share.
        cluster: where.
        seed: random seed.
        workers: number of training processes; None is one per GPU, or one per node without GPUs, and fewer
            when there is no longer room for them.
        each: the least that one worker gets; the remaining cores are shared out.
        checkpoint_minutes: see ``fit``.

    Raises:
        InputError, UsageError: as for ``fit``.
        AptoolError: there is no room, a node does not see a file, or workers were lost too often.
    """
    if cluster.through_client:
        raise UsageError(
            f"--cluster {cluster.address}: training cannot be driven through Ray's client: expected "
            "host:port, or `ray job submit -- aptool train ... --cluster`"
        )
    each = each if each is not None else Resources()
    device = "cuda" if each.gpus else "cpu"
    _, key = check_training(collection, recipe, output, seed, device=device)
    folder = training_folder(output)
    # Where a driver was killed, its workers are about to end.
    release_seconds = RELEASE_SECONDS if folder.exists() else HANDOVER_SECONDS
    with claimed_folder(folder, output) as claim:
        done = already_trained(output, key)
        if done is not None:
            return done
        job = TrainingJob(
            *(Path.cwd(), collection.path, recipe, location(output), seed),
            owner=claim.token,
            versions=tuple(_versions().items()),
            gpu=bool(each.gpus),
            checkpoint_minutes=checkpoint_minutes,
        )
        _train(job, key, claim, cluster, workers, each, release_seconds)
        result = already_trained(output, trained_key(output) or "", log=False)
    if result is None:
        raise AptoolError(
            f"{output}: the workers wrote a model that is not visible here: "
            "expected an output on storage that all nodes share"
        )
    return result


def _train(
    job: TrainingJob,
    key: str,
    claim: Claim,
    cluster: Cluster,
    workers: int | None,
    least: Resources,
    release_seconds: float,
) -> None:
    """Trains until the model is saved, also with fewer workers than at first where no number is given.

    Args:
        job: with the token of the claim.
        key: of the training.
        claim: changed before workers are started anew, so that those before write nothing any more.
        cluster: see ``fit_on_cluster``.
        workers: see ``fit_on_cluster``.
        least: what one worker gets at least.
        release_seconds: time that workers of an earlier training may take to release their resources.
    """
    folder = training_folder(job.output)
    checkpoint = _checkpoint_version(folder)
    while True:
        number, each = shared_out(cluster, workers, least, release_seconds)
        release_seconds = RELEASE_SECONDS
        if number > job.recipe.training.minibatch:
            wanted = f"no more than the {job.recipe.training.minibatch} questions of a minibatch"
            raise UsageError(f"--workers {number}: expected {wanted} (training.minibatch)")
        many = count(number, "worker")
        logger.info(f"cluster {cluster.address}: {many} with {each} each; Ray's logs are in {cluster.logs}")
        try:
            start_seconds = START_SECONDS
            if workers is not None:
                start_seconds = int(cluster.wait) if cluster.wait is not None else LONGEST_START_SECONDS
            with said_while_missing(partial(cluster.missing, number, each)):
                error_found = _attempt(job, f"{key}-{job.owner}", number, each, start_seconds)
            break
        except (ray.train.TrainingFailedError, ray.exceptions.RayError) as error:
            if isinstance(error, ray.train.ControllerError) and workers is None and number > 1:
                logger.info(f"no longer room for {number} workers")
                job = _of_new_workers(job, claim)
                continue
            before, checkpoint = checkpoint, _checkpoint_version(folder)
            if checkpoint != before:
                logger.info(f"training stopped: {_cause(error)}; going on from the last checkpoint")
                job = _of_new_workers(job, claim)
                continue
            raise AptoolError(
                f"--cluster {cluster.address}: training stopped: {_cause(error)}; its last checkpoint "
                f"is kept in {folder}: run the same command again"
            ) from error
        finally:
            remove_tree(folder / RUN)
    if error_found is not None:
        raise error_found.error()


def _of_new_workers(job: TrainingJob, claim: Claim) -> TrainingJob:
    claim.reissue()
    return replace(job, owner=claim.token)


def _attempt(
    job: TrainingJob, name: str, number: int, each: Resources, start_seconds: int
) -> WorkerError | None:
    """Trains with a number of workers, which are started again when one of them is lost."""
    os.environ.setdefault("RAY_TRAIN_HEALTH_CHECK_INTERVAL_S", "0.5")
    os.environ["RAY_TRAIN_WORKER_GROUP_START_TIMEOUT_S"] = str(max(1, start_seconds))
    logging.getLogger("ray.train").setLevel(logging.ERROR)
    board = start_board()
    trainer = TorchTrainer(
        _train_worker,
        train_loop_config={"job": job, "board": board},
        # NCCL does not support two workers on one GPU.
        torch_config=TorchConfig("nccl" if each.gpus >= 1 else "gloo", timeout_s=TIMEOUT_SECONDS),
        # Ray's elastic training waits minutes for the resources of a driver that was killed.
        scaling_config=ray.train.ScalingConfig(
            num_workers=number,
            use_gpu=bool(each.gpus),
            resources_per_worker=each.bundle,
            # GPUs of one node exchange gradients much faster; cores of several nodes are more memory.
            placement_strategy="PACK" if each.gpus else "SPREAD",
        ),
        run_config=ray.train.RunConfig(
            # A new name each time: training resumes from our checkpoint, not from Ray's.
            name=name,
            storage_path=str((training_folder(job.output) / RUN).resolve()),
            failure_config=ray.train.FailureConfig(max_failures=RESTARTS, controller_failure_limit=0),  # type: ignore[call-arg]
        ),
    )
    errors: list[WorkerError] = []
    loss = metrics.Gauge("aptool_training_loss", "Mean loss of the last epoch.")
    dev = metrics.Gauge("aptool_training_dev", "Dev figure of the last epoch.", tag_keys=("measure",))

    def epoch(entry: dict[str, Any]) -> None:
        loss.set(entry["loss"])
        for name, value in entry["dev"].items():
            dev.set(value, {"measure": name})
        get_progress().epoch(entry)

    with get_progress().task("train") as update:
        receive: dict[str, Callable[[Any], None]] = {
            "log": logger.info,
            "progress": lambda state: update(*state[1:]),
            "epoch": epoch,
            "error": errors.append,
            "end": lambda _: None,
        }
        with listening(board, lambda kind, value: receive[kind](value)):
            trainer.fit()
    return errors[0] if errors else None


def _checkpoint_version(folder: Location) -> str | None:
    """Changes with each checkpoint; None if there is none."""
    path = folder / STATE
    return stat(path).version if path.is_file() else None


def shared_out(
    cluster: Cluster, workers: int | None, each: Resources, timeout: float = 0
) -> tuple[int, Resources]:
    """The number of workers and what each gets: the free cores are shared out among them.

    Args:
        cluster: where.
        workers: number of workers; None is one per GPU, or one per node where they get no GPU.
        each: the least that one needs.
        timeout: seconds to wait for resources that are taken, where no number is given.

    Raises:
        AptoolError: there is no room for them.
    """
    number = workers
    if number is None:
        most = _default_workers([fitting(node.total, each) for node in cluster.nodes()], each)
        until = time.monotonic() + timeout
        while (found := _default_workers(cluster.room(each), each)) < most and time.monotonic() < until:
            time.sleep(POLL_SECONDS)
        number = max(1, found)
    cluster.check_room(number, each)
    # The most cores with which all of them fit, by bisection: each step takes a second on a cluster that is
    # partly taken.
    low, high = int(each.cpus), int(cluster.total().cpus / number)
    while low < high:
        middle = (low + high + 1) // 2
        if sum(cluster.room(each._replace(cpus=middle))) >= number:
            low = middle
        else:
            high = middle - 1
    return number, each._replace(cpus=max(low, each.cpus))


def _default_workers(room: list[int], each: Resources) -> int:
    """One worker per GPU or, without GPUs, one per node, given how many fit on each node."""
    return sum(room) if each.gpus else sum(fit > 0 for fit in room)


def _train_worker(config: dict[str, Any]) -> None:
    """Runs on each worker."""
    job: TrainingJob = config["job"]
    context = ray.train.get_context()
    rank, size = context.get_world_rank(), context.get_world_size()
    group = TorchProcessGroup(rank, size) if size > 1 else SINGLE_PROCESS
    post = BoardPost(config["board"]) if rank == 0 else None
    try:
        with group.together():
            collection = _opened(job)
        device = get_device() if job.gpu else "cpu"
        with relayed_to(post):
            fit(
                *(collection, job.recipe, job.output),
                seed=job.seed,
                device=device,
                checkpoint_minutes=job.checkpoint_minutes,
                group=group,
                check_claim=partial(_check_claim, job),
            )
    except AptoolError as error:
        # Not raised: Ray would start the workers again, into the same error.
        if post is not None:
            post("error", WorkerError.of(error))
    if post is not None:
        post.flush()


def _opened(job: TrainingJob) -> Collection:
    """The collection, after a check that this node sees the driver's files.

    Raises:
        AptoolError: it does not, or has other versions.
    """
    # Where the folder does not exist absolute paths still work.
    with contextlib.suppress(OSError):
        os.chdir(job.start)
    if not _is_current(job):
        raise AptoolError(
            f"{training_folder(job.output).absolute()}: not found, or not the driver's folder: "
            "expected an output on storage that all nodes share"
        )
    here = _versions()
    differ = [
        f"{name} {here[name]} there, {wanted} here" for name, wanted in job.versions if here[name] != wanted
    ]
    if differ:
        raise AptoolError(f"{'; '.join(differ)}: expected the same versions")
    return Collection(job.collection)


def _is_current(job: TrainingJob) -> bool:
    """Whether the driver that started this worker still holds its claim on the output."""
    return holds(training_folder(job.output) / DRIVER, job.owner)


def _check_claim(job: TrainingJob) -> None:
    if not _is_current(job):
        raise SupersededError(job.output)


def _versions() -> dict[str, str]:
    return {"aptool": __version__, "torch": version("torch")}


def _cause(error: BaseException) -> str:
    """The reason why the workers failed, in one line."""
    failures = getattr(error, "worker_failures", None)
    if failures:
        rank = min(failures)
        return f"worker {rank}: {first_line(failures[rank])}"
    return first_line(error)
