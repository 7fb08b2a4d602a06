"""Where work is done: in this process, or on a Ray cluster."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from typing import TYPE_CHECKING, TypeAlias

from aptool.config import CHECKPOINT_MINUTES
from aptool.errors import UsageError
from aptool.library.arguments import LONGEST_SECONDS, check_integer, check_number, check_text

if TYPE_CHECKING:
    from aptool.cluster.resources import Cluster, Workers
    from aptool.experiments.side_by_side import Processes
    from aptool.scoring.encode import Run
    from aptool.scoring.score import Executor
    from aptool.training.fit import Fit

# An address, True for that of RAY_ADDRESS (else auto), None for this process.
Address: TypeAlias = str | bool | None

# Fits a recipe to a collection into a model folder, given ``seed``.
Trainer: TypeAlias = "Callable[..., Fit]"


def check_workers(
    cluster: Address,
    workers: "Workers",
    gpus_per_worker: float | None,
    wait: float | None = None,
    *,
    options: bool = False,
) -> None:
    """Checks what is asked of a cluster against whether one is asked for.

    Args:
        cluster: see ``Address``.
        workers: number of worker processes, or the least and the most.
        gpus_per_worker: GPUs per worker.
        wait: seconds to wait for resources.
        options: whether errors name options of a command in place of arguments.

    Raises:
        UsageError: numbers without a cluster, or that no worker can have.
        InputError: an argument is no number.
    """

    def named(argument: str) -> str:
        return f"--{argument.replace('_', '-')}" if options else argument

    several = workers if isinstance(workers, tuple) else (workers,)
    for number in several:
        if number is not None:
            check_integer(named("workers"), number, 1)
    if isinstance(workers, tuple) and (len(workers) != 2 or workers[0] > workers[1]):
        asked = ":".join(map(str, workers))
        raise UsageError(f"{named('workers')} {asked}: expected the least number, and one not below it")
    if gpus_per_worker is not None:
        check_number(named("gpus_per_worker"), gpus_per_worker, 0, 1 << 20)
        if gpus_per_worker > 1 and gpus_per_worker != int(gpus_per_worker):
            wanted = "at most 1, or a whole number"
            raise UsageError(f"{named('gpus_per_worker')} {gpus_per_worker:g}: expected {wanted}")
    if wait is not None:
        check_number(named("wait"), wait, 0, LONGEST_SECONDS)
    if cluster is None or cluster is False:
        given = {"workers": workers, "gpus_per_worker": gpus_per_worker, "wait": wait}
        for argument, value in given.items():
            if value is not None:
                raise UsageError(f"{named(argument)}: requires {'--cluster' if options else 'cluster'}")


@contextmanager
def connected(
    cluster: Address, *, debug: bool = False, wait: float | None = None
) -> "Iterator[Cluster | None]":
    """A cluster that is connected to while the block runs; None for this process.

    Args:
        cluster: see ``Address``.
        debug: let Ray's own messages through.
        wait: seconds for which work waits for resources of the cluster; None is without end.

    Raises:
        AptoolError: there is no such cluster.
    """
    if cluster is None or cluster is False:
        yield None
        return
    address = "" if cluster is True else check_text("cluster", cluster, expected="True or an address (str)")

    from aptool.cluster.connection import connect

    with connect(address, debug=debug, wait=wait) as found:
        yield found


def executor_on(
    cluster: "Cluster | None",
    workers: int | None = None,
    gpus_per_worker: float | None = None,
    *,
    debug: bool = False,
) -> "Executor | None":
    """What scores row groups: workers of a cluster; None is this process."""
    if cluster is None:
        return None
    from aptool.cluster.score import ClusterExecutor

    return ClusterExecutor(cluster, workers=workers, gpus_per_worker=gpus_per_worker, debug=debug)


def encoding_on(
    cluster: "Cluster | None",
    device: str = "auto",
    workers: int | None = None,
    gpus_per_worker: float | None = None,
) -> "Run | None":
    """What encodes answers: workers of a cluster; None is this process.

    Raises:
        UsageError: the cluster cannot give the device.
    """
    if cluster is None:
        return None
    from aptool.cluster.encode import ClusterEncoding
    from aptool.cluster.resources import worker_resources

    return ClusterEncoding(cluster, worker_resources(cluster, device, gpus_per_worker), workers)


def trainer_on(
    cluster: "Cluster | None",
    device: str = "auto",
    workers: "Workers" = None,
    gpus_per_worker: float | None = None,
    checkpoint_minutes: float = CHECKPOINT_MINUTES,
) -> Trainer:
    """What trains: workers of a cluster, or this process on a device.

    Args:
        cluster: where; None is this process.
        device: of a model.
        workers: number of worker processes of the cluster, or the least and the most.
        gpus_per_worker: GPUs per worker.
        checkpoint_minutes: see ``fit``.

    Raises:
        AptoolError: there is no such device, or the cluster cannot give it.
    """
    if cluster is None:
        from aptool.models.device import pick_device
        from aptool.training.fit import fit

        return partial(fit, device=pick_device(device), checkpoint_minutes=checkpoint_minutes)
    from aptool.cluster.resources import worker_resources
    from aptool.cluster.train import fit_on_cluster

    each = worker_resources(cluster, device, gpus_per_worker)
    return partial(
        fit_on_cluster, cluster=cluster, workers=workers, each=each, checkpoint_minutes=checkpoint_minutes
    )


def processes_on(
    cluster: "Cluster | None", jobs: int | None, device: str = "auto", gpus_per_worker: float | None = None
) -> "Callable[[], AbstractContextManager[Processes]] | None":
    """What opens the processes that run trials of a matrix side by side; None is one trial after the other.

    Args:
        cluster: where; None is this machine.
        jobs: trials at a time; None is one on this machine, on a cluster as many as there is room for.
        device: of a trial.
        gpus_per_worker: GPUs of a trial on a cluster; None is one where it has any.
    """
    if cluster is None:
        if jobs is None or jobs == 1:
            return None
        from aptool.experiments.processes import LocalProcesses

        return partial(LocalProcesses, jobs)
    from aptool.cluster.resources import worker_resources
    from aptool.cluster.trials import ClusterProcesses

    return partial(ClusterProcesses, cluster, worker_resources(cluster, device, gpus_per_worker), jobs)
