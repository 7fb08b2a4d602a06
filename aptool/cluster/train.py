"""Data-parallel training on a Ray cluster: Ray Train runs ``fit`` on each worker, in one ``ProcessGroup``.

A minibatch is split over the workers, and their gradients are summed. The learning rate, the sampled pairs
and the negatives do not depend on the number of workers.

The first worker writes the checkpoints. After the loss of a worker or a node, Ray restarts the workers, and
they resume from the last checkpoint. After the loss of the driver, the same command does.
"""

import logging
import os
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, wait
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import ray
import ray.train
from pyarrow import ArrowException
from pyarrow.fs import FileSystem
from ray.train.torch import TorchConfig, TorchTrainer

from aptool.cluster.messages import POLL_SECONDS, Board
from aptool.cluster.resources import Cluster, Resources, Workers, capacity, log_missing_resources
from aptool.cluster.train_worker import TrainingJob, train_worker
from aptool.config import CHECKPOINT_MINUTES, Recipe
from aptool.errors import AptoolError, UsageError, counted, first_line
from aptool.formats.atomic import remove_tree
from aptool.formats.claim import Claim, claimed_folder
from aptool.formats.collection import CollectionFiles
from aptool.formats.inputs import stat
from aptool.formats.location import Location, PathOrUrl, is_remote, location
from aptool.models.build import code_of
from aptool.training.checkpoint import STATE, trained_key, training_folder
from aptool.training.fit import Fit, already_trained, check_training

logger = logging.getLogger(__name__)

# Maximum restarts of lost workers; after a new checkpoint, the count starts again.
RESTARTS = 8

# Timeout to restart the same number of workers after the loss of a node. Then an elastic training continues
# with fewer workers; a fixed number of workers waits longer.
START_SECONDS = 180
LONGEST_START_SECONDS = 7 * 24 * 3600

# Timeout of the process group: the other workers wait while the first worker trains word vectors.
TIMEOUT_SECONDS = 6 * 3600

# Seconds until workers release their resources: workers of a killed driver, and of a completed training.
RELEASE_SECONDS = 20
HANDOVER_SECONDS = 5

RUN = "ray"  # the folder of Ray Train's own state


def fit_on_cluster(
    collection: CollectionFiles,
    recipe: Recipe,
    output: PathOrUrl,
    *,
    cluster: Cluster,
    seed: int = 0,
    workers: Workers = None,
    each: Resources | None = None,
    checkpoint_minutes: float = CHECKPOINT_MINUTES,
) -> Fit:
    """Train on a cluster, as ``fit`` does in one process; all nodes see the collection and the output.

    ``workers`` is the number of training processes, or (minimum, maximum): fewer if a lost node is not
    replaced, more if a node joins. Default: one per GPU, or per node without GPUs, and fewer after a loss.
    ``each`` are the minimum resources of a worker; the remaining cores are divided among the workers.
    """
    _check_known_to_ray(output)
    each = each if each is not None else Resources()
    device = "cuda" if each.gpus else "cpu"
    recipe, key = check_training(collection, recipe, output, seed, device)
    folder = training_folder(output)
    # After a killed driver, its workers may need more time to end.
    release_seconds = RELEASE_SECONDS if folder.exists() else HANDOVER_SECONDS
    with claimed_folder(folder, output) as claim:
        done = already_trained(output, key)
        if done is not None:
            return done
        job = TrainingJob(
            *(Path.cwd(), collection.path, recipe, location(output), seed, key),
            owner=claim.token,
            versions=tuple(code_of(recipe).items()),
            gpu=bool(each.gpus),
            checkpoint_minutes=checkpoint_minutes,
        )
        _train(job, claim, cluster, workers, each, release_seconds)
        result = already_trained(output, trained_key(output) or "", log=False)
    if result is None:
        raise AptoolError(
            f"{output}: the workers wrote a model that is not visible here: "
            "expected an output on storage that all nodes share"
        )
    return result


def _check_known_to_ray(output: PathOrUrl) -> None:
    """Raise unless Ray Train can write its state next to the model: it opens URLs with Arrow."""
    if not is_remote(output) or str(output).startswith(("s3://", "gs://")):
        return
    try:
        FileSystem.from_uri(str(output))
    except (ArrowException, ValueError) as error:
        expected = "a folder, s3://, gs:// or abfss://CONTAINER@ACCOUNT... of storage that all nodes share"
        raise UsageError(f"--output {output}: Ray has no access to such URLs; expected {expected}") from error


def _train(
    job: TrainingJob,
    claim: Claim,
    cluster: Cluster,
    workers: Workers,
    least: Resources,
    release_seconds: float,
) -> None:
    """Train until the model is saved, with a new number of workers after a loss or a new node.

    ``least`` are the minimum resources of a worker. ``release_seconds`` is the time until workers of an
    earlier training release their resources.
    """
    folder = training_folder(job.output)
    checkpoint = _checkpoint_version(folder)
    minimum, maximum = workers if isinstance(workers, tuple) else (workers or 1, workers)
    minibatch = job.recipe.training.minibatch
    if maximum is not None and maximum > minibatch:
        expected = f"no more than the {counted(minibatch, 'question')} of a minibatch"
        raise UsageError(f"--workers {maximum}: expected {expected} (training.minibatch)")
    while True:
        job = replace(job, owner=claim.token)  # workers with an older token write nothing
        number, each = allocate_workers(cluster, workers, least, release_seconds, minibatch)
        release_seconds = RELEASE_SECONDS
        workers_text = counted(number, "worker")
        logger.info(cluster.describe(workers_text, each))
        try:
            start_seconds = START_SECONDS
            if workers is not None and number == minimum:
                start_seconds = int(cluster.wait) if cluster.wait is not None else LONGEST_START_SECONDS
            can_grow = maximum is not None and number < maximum
            has_room = partial(cluster.has_room, each) if can_grow else None
            with log_missing_resources(partial(cluster.missing, number, each)):
                has_grown = _attempt(job, number, each, start_seconds, has_room)
        except (ray.train.TrainingFailedError, ray.exceptions.RayError) as error:
            if isinstance(error, ray.train.ControllerError) and number > minimum:
                logger.info(f"no longer room for {number} workers")
                claim.reissue()
                continue
            previous, checkpoint = checkpoint, _checkpoint_version(folder)
            if checkpoint != previous:
                logger.info(f"training stopped: {_cause(error)}; going on from the last checkpoint")
                claim.reissue()
                continue
            raise AptoolError(
                f"--cluster {cluster.address}: training stopped: {_cause(error)}; its last checkpoint "
                f"is kept in {folder}: run the same command again"
            ) from error
        finally:
            remove_tree(folder / RUN)
        if not has_grown:
            return
        logger.info(f"room for more than {workers_text}: going on from the last checkpoint")
        claim.reissue()


def _attempt(
    job: TrainingJob,
    number: int,
    each: Resources,
    start_seconds: int,
    has_room: Callable[[], bool] | None,
) -> bool:
    """Train with a fixed number of workers; return whether training ended early, to continue with more.

    ``has_room`` says whether one more worker fits; None never ends early.
    """
    os.environ.setdefault("RAY_TRAIN_HEALTH_CHECK_INTERVAL_S", "0.5")
    os.environ["RAY_TRAIN_WORKER_GROUP_START_TIMEOUT_S"] = str(max(1, start_seconds))
    logging.getLogger("ray.train").setLevel(logging.ERROR)
    board = Board()
    trainer = TorchTrainer(
        train_worker,
        train_loop_config={"job": job, "board": board, "has_room": has_room},
        # NCCL does not support two workers on one GPU.
        torch_config=TorchConfig("nccl" if each.gpus >= 1 else "gloo", timeout_s=TIMEOUT_SECONDS),
        # Not Ray's elastic training: it stops workers within an epoch, and waits minutes for resources.
        scaling_config=ray.train.ScalingConfig(
            num_workers=number,
            use_gpu=bool(each.gpus),
            resources_per_worker=each.bundle,
            # GPUs of one node exchange gradients faster; several nodes have more memory per core.
            placement_strategy="PACK" if each.gpus else "SPREAD",
        ),
        run_config=ray.train.RunConfig(
            # A new name per attempt, so that Ray does not resume: aptool has its own checkpoints.
            name=f"{job.key}-{job.owner}",
            storage_path=str((training_folder(job.output) / RUN).resolve()),
            failure_config=ray.train.FailureConfig(max_failures=RESTARTS, controller_failure_limit=0),  # type: ignore[call-arg]
        ),
    )
    errors: list[AptoolError] = []
    room: list[None] = []
    receive: dict[str, Callable[[Any], None]] = {
        "log": logger.info,
        "error": errors.append,
        "growth": room.append,
        "end": lambda _: None,
    }
    try:
        with board.listening(lambda kind, value: receive[kind](value)):
            _in_thread(trainer.fit)
    except (ray.train.TrainingFailedError, ray.exceptions.RayError):
        if not errors:  # a worker's own error is clearer than Ray's
            raise
    if errors:
        raise errors[0]
    return bool(room)


def _in_thread(work: Callable[[], Any]) -> None:
    """Run ``work`` in another thread: in the main thread, Ray would swallow Ctrl-C."""
    ended: Future[None] = Future()

    def run() -> None:
        try:
            work()
        except BaseException as error:
            ended.set_exception(error)
        else:
            ended.set_result(None)

    threading.Thread(target=run, name="aptool training", daemon=True).start()
    while not ended.done():  # signals interrupt only a wait with a timeout
        wait([ended], timeout=POLL_SECONDS)
    ended.result()


def _checkpoint_version(folder: Location) -> str | None:
    """The version of the last checkpoint, or None."""
    path = folder / STATE
    return stat(path).version if path.is_file() else None


def allocate_workers(
    cluster: Cluster, workers: Workers, each: Resources, timeout: float = 0, minibatch: int | None = None
) -> tuple[int, Resources]:
    """Decide the number of workers, as for ``fit_on_cluster``, and divide the free cores among them.

    ``timeout`` is the wait for used resources, and ``minibatch`` the maximum of workers, where none is given.
    """
    maximum: int | None
    if isinstance(workers, int):
        number = maximum = workers
    else:
        minimum, maximum = workers or (1, None)

        def workers_that_fit(room: list[int]) -> int:
            if maximum is not None:
                return min(maximum, sum(room))
            # One worker per GPU, or one per node without GPUs, and at most one per question of a minibatch.
            number = sum(room) if each.gpus else sum(fit > 0 for fit in room)
            return min(number, minibatch) if minibatch is not None else number

        goal = workers_that_fit([capacity(node.total, each) for node in cluster.nodes()])
        deadline = time.monotonic() + timeout
        while (fit := workers_that_fit(cluster.room(each))) < goal and time.monotonic() < deadline:
            time.sleep(POLL_SECONDS)
        number = max(minimum, fit)
    cluster.check_room(number, each, maximum)
    # The maximum of cores per worker, by bisection: each step takes a second on a partly used cluster.
    low, high = int(each.cpus), int(cluster.total().cpus / number)
    while low < high:
        middle = (low + high + 1) // 2
        if sum(cluster.room(each._replace(cpus=middle))) >= number:
            low = middle
        else:
            high = middle - 1
    return number, each._replace(cpus=max(low, each.cpus))


def _cause(error: BaseException) -> str:
    """The reason why workers failed, in one line."""
    failures = getattr(error, "worker_failures", None)
    if failures:
        rank = min(failures)
        return f"worker {rank}: {first_line(failures[rank])}"
    return first_line(error)
