"""Data-parallel training on a Ray cluster: Ray Train runs ``fit`` on each worker, in one ``ProcessGroup``.

A minibatch is split over the workers, and their gradients are summed. The learning rate, the sampled pairs
and the negatives do not depend on the number of workers.

The first worker writes the checkpoints. After the loss of a worker or a node, Ray Train restarts the workers,
and they resume from the last checkpoint. After the loss of the driver, the same command does.
"""

import contextlib
import logging.handlers
import os
import tempfile
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, wait
from pathlib import Path
from typing import Any, cast

import ray
import ray.train
from ray.train.torch import TorchConfig, TorchTrainer, get_device
from ray.util.queue import Queue
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy
from typing_extensions import override

from aptool.cluster.connection import Cluster, Resources, Wait, Workers
from aptool.cluster.workers import check_worker, first_task, host, ray_failures
from aptool.config import CHECKPOINT_MINUTES, Recipe
from aptool.data.collection import Collection
from aptool.errors import AptoolError, UsageError, counted, located
from aptool.models.build import code_of
from aptool.models.device import pick_device
from aptool.outputs import lock
from aptool.paths import PathOrUrl
from aptool.training.checkpoint import training_folder
from aptool.training.fit import Fit, TrainingTask, already_trained, check_training, fit_in_group
from aptool.training.process_group import SINGLE_PROCESS, TorchProcessGroup

logger = logging.getLogger(__name__)

# Restarts after lost workers; those of preempted nodes do not count.
MAX_FAILURES = 8

# Timeout of the process group: the other workers wait while the first worker trains word vectors.
TIMEOUT_SECONDS = 6 * 3600


def fit_on_cluster(
    collection: Collection,
    recipe: Recipe,
    output: PathOrUrl,
    *,
    cluster: Cluster,
    each: Resources,
    seed: int = 0,
    workers: Workers = None,
    checkpoint_minutes: float = CHECKPOINT_MINUTES,
    overwrite: bool = False,
) -> Fit:
    """Train on a cluster, as ``fit`` does in one process; all nodes see the collection and the output.

    ``workers`` is the number of training processes; or (minimum, maximum), as many as the cluster has room
    for. Default: one per GPU, or per node without GPUs. ``each`` are the minimum resources of a worker; the
    remaining cores are divided among the workers.
    """
    device = "cuda" if each.gpus else "cpu"
    task = check_training(collection, recipe, output, seed, device, overwrite=overwrite)
    folder = training_folder(output)
    with lock(folder):
        done = already_trained(output, task.key)
        if done is not None:
            return done
        config = {  # of ``train_worker``
            "task": task,
            "start": Path.cwd(),
            "folder": folder,
            "versions": code_of(task.recipe),
            "gpu": bool(each.gpus),
            "checkpoint_minutes": checkpoint_minutes,
        }
        return _train(config, cluster, workers, each)


def _train(config: dict[str, Any], cluster: Cluster, workers: Workers, least: Resources) -> Fit:
    """Train until the first worker has saved the model; ``least`` are the minimum resources of a worker."""
    minibatch = config["task"].recipe.training.minibatch
    workers = workers if workers is not None else default_workers(cluster, least, minibatch)
    minimum, maximum = workers if isinstance(workers, tuple) else (workers, workers)
    if maximum > minibatch:
        expected = f"no more than the {counted(minibatch, 'question')} of a minibatch"
        raise UsageError(f"--workers {maximum}: expected {expected} (training.minibatch)")
    each = with_cores(cluster, maximum, least)
    text = counted(maximum, "worker") if minimum == maximum else f"{minimum} to {maximum} workers"
    logger.info(cluster.describe(text, each))
    first_task(cluster, each, host)
    os.environ.setdefault("RAY_TRAIN_HEALTH_CHECK_INTERVAL_S", "0.5")
    logging.getLogger("ray.train").setLevel(logging.ERROR)
    with tempfile.TemporaryDirectory(prefix="aptool-") as folder, _relayed_logs() as queue:
        trainer: Any = TorchTrainer(
            cast(Any, train_worker),
            train_loop_config=config | {"log": queue},
            # NCCL does not support two workers on one GPU.
            torch_config=TorchConfig("nccl" if each.gpus >= 1 else "gloo", timeout_s=TIMEOUT_SECONDS),
            scaling_config=ray.train.ScalingConfig(
                num_workers=cast(Any, workers),
                use_gpu=bool(each.gpus),
                resources_per_worker={"CPU": each.cpus} | ({"GPU": each.gpus} if each.gpus else {}),
                # GPUs of one node exchange gradients faster; several nodes have more memory per core.
                placement_strategy="PACK" if each.gpus else "SPREAD",
            ),
            run_config=ray.train.RunConfig(
                name=config["task"].key,
                storage_path=folder,  # of Ray's controller, on this node: aptool has its own checkpoints
                failure_config=ray.train.FailureConfig(max_failures=MAX_FAILURES),
                callbacks=cast(Any, [_EndOnError()]),
            ),
        )
        with ray_failures(cluster, ray.train.TrainingFailedError):
            result: Fit = _in_thread(trainer.fit, Wait(cluster, minimum, each)).return_value
    return result


def default_workers(cluster: Cluster, each: Resources, minibatch: int) -> int:
    """One worker per GPU, or per node without GPUs, and at most one per question of a minibatch."""
    fit = [node.capacity(each) for node in cluster.nodes()]
    return max(1, min(sum(fit) if each.gpus else sum(number > 0 for number in fit), minibatch))


def with_cores(cluster: Cluster, workers: int, each: Resources) -> Resources:
    """The resources of a worker if the cores of the cluster are divided among the workers."""
    cpus = int(cluster.total().cpus / workers)
    while cpus > each.cpus and cluster.capacity(each._replace(cpus=cpus)) < workers:
        cpus -= 1
    return each._replace(cpus=max(cpus, each.cpus))


class _EndOnError(ray.train.UserCallback):
    """Ends a training after an error of aptool, which would occur again; Ray Train restarts lost workers."""

    @override
    def after_exception(self, run_context: Any, worker_exceptions: dict[int, Exception]) -> None:
        for error in worker_exceptions.values():
            if isinstance(error, AptoolError):
                raise error


def _in_thread(work: Callable[[], Any], room: Wait) -> Any:
    """Run ``work`` in another thread: in the main thread, Ray would swallow Ctrl-C."""
    ended: Future[Any] = Future()

    def run() -> None:
        try:
            ended.set_result(work())
        except BaseException as error:
            ended.set_exception(error)

    threading.Thread(target=run, name="aptool training", daemon=True).start()
    while not ended.done():  # signals interrupt only a wait with a timeout
        room.poll()
        wait([ended], timeout=0.5)
    return ended.result()


@contextlib.contextmanager
def _relayed_logs() -> Iterator[Queue]:
    """Yield a queue for log records of workers, which this process logs."""
    here = NodeAffinitySchedulingStrategy(ray.get_runtime_context().get_node_id(), soft=False)
    queue = Queue(actor_options={"num_cpus": 0, "scheduling_strategy": here})
    listener = logging.handlers.QueueListener(queue, cast(Any, logging.getLogger("aptool")))
    listener.start()
    try:
        yield queue
    finally:
        listener.stop()
        queue.shutdown()


def train_worker(config: dict[str, Any]) -> Fit:
    """Train on this worker; the first one logs to the driver."""
    task: TrainingTask = config["task"]
    context = ray.train.get_context()
    rank, size = context.get_world_rank(), context.get_world_size()
    group = TorchProcessGroup(rank, size) if size > 1 else SINGLE_PROCESS
    root, handler = logging.getLogger("aptool"), logging.handlers.QueueHandler(config["log"])
    root.setLevel(logging.INFO)
    if rank == 0:
        root.addHandler(handler)
    try:
        with group.together():
            check_worker(config["start"], config["versions"], config["folder"])
            task = task._replace(collection=Collection(task.collection.path))
            device = pick_device(str(get_device()) if config["gpu"] else "cpu")
        result = fit_in_group(
            task,
            device,
            group,
            checkpoint_minutes=config["checkpoint_minutes"],
            is_preempted=lambda: ray.train.get_preemption_info() is not None,  # all workers ask together
        )
    except AptoolError as error:
        if size > 1 and error is not group.raised:  # the other workers wait for this one
            raise located(error, f"node {host()}") from error
        raise
    finally:
        root.removeHandler(handler)
    return result
