"""Where work is done: in this process, or on a Ray cluster."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, TypeAlias

from aptool.errors import UsageError
from aptool.library.arguments import check_integer, check_number, check_text

if TYPE_CHECKING:
    from aptool.cluster.resources import Cluster
    from aptool.scoring.score import Executor

# An address, True for that of RAY_ADDRESS (else auto), None for this process.
Address: TypeAlias = str | bool | None


@contextmanager
def connected(
    cluster: Address, workers: int | None, gpus_per_worker: float | None
) -> "Iterator[Cluster | None]":
    """A cluster that is connected to while the block runs; None for this process.

    Raises:
        UsageError: numbers of workers or GPUs that no cluster is given for, or that none can have.
        AptoolError: there is no such cluster.
    """
    if workers is not None:
        check_integer("workers", workers, 1)
    if gpus_per_worker is not None:
        check_number("gpus_per_worker", gpus_per_worker, 0, 1 << 20)
        if gpus_per_worker > 1 and gpus_per_worker != int(gpus_per_worker):
            raise UsageError(f"gpus_per_worker {gpus_per_worker:g}: expected at most 1, or a whole number")
    if cluster is None or cluster is False:
        if workers is not None or gpus_per_worker is not None:
            name = "workers" if workers is not None else "gpus_per_worker"
            raise UsageError(f"{name}: expected a cluster with it, such as cluster=True")
        yield None
        return
    address = "" if cluster is True else check_text("cluster", cluster, expected="True or an address (str)")
    from aptool.cluster.connection import connect

    with connect(address) as found:
        yield found


@contextmanager
def executor_on(
    cluster: Address, workers: int | None, gpus_per_worker: float | None
) -> "Iterator[Executor | None]":
    """What scores: on a cluster, or None for this process; errors as in ``connected``."""
    with connected(cluster, workers, gpus_per_worker) as found:
        if found is None:
            yield None
            return
        from aptool.cluster.score import ClusterExecutor

        yield ClusterExecutor(found, workers=workers, gpus_per_worker=gpus_per_worker)
