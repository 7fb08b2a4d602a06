"""Where a job runs: on a device of this machine, or on a Ray cluster."""

import logging
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Literal, TypeAlias

from aptool.arguments import LONGEST_SECONDS, check_integer, check_number, check_text
from aptool.config import CHECKPOINT_MINUTES
from aptool.errors import UsageError

if TYPE_CHECKING:
    from aptool.cluster.resources import Cluster, Resources, Workers
    from aptool.experiments.side_by_side import Processes
    from aptool.experiments.trial import Train
    from aptool.scoring.run import Executor

# Address of a cluster; True for RAY_ADDRESS (auto if unset), None for this process.
Address: TypeAlias = str | bool | None

# Trials of a matrix at the same time.
Jobs: TypeAlias = int | Literal["auto"] | None


@dataclass(frozen=True)
class Where:
    """Where a job runs: a device of this machine, or workers of a Ray cluster."""

    device: str = "auto"
    cluster: Address = None
    workers: "Workers" = None  # a number, or the minimum and maximum of an elastic training
    gpus_per_worker: float | None = None  # may be fractional
    wait: float | None = None  # seconds to wait for nodes with room; None means no limit
    connection: "Cluster | None" = None  # the connected cluster, within ``connected``

    def __post_init__(self) -> None:
        workers = self.workers if isinstance(self.workers, tuple) else (self.workers,)
        for number in workers:
            if number is not None:
                check_integer("workers", number, 1)
        if isinstance(self.workers, tuple) and (len(workers) != 2 or self.workers[0] > self.workers[1]):
            value = ":".join(map(str, workers))
            raise UsageError(f"workers {value}: expected a minimum, and a maximum of at least the minimum")
        gpus = self.gpus_per_worker
        if gpus is not None:
            check_number("gpus_per_worker", gpus, 0, 1 << 20)
            if gpus > 1 and gpus != int(gpus):
                raise UsageError(f"gpus_per_worker {gpus:g}: expected at most 1, or a whole number")
        if self.wait is not None:
            check_number("wait", self.wait, 0, LONGEST_SECONDS)
        if not self.on_cluster:
            for argument in ("workers", "gpus_per_worker", "wait"):
                if getattr(self, argument) is not None:
                    raise UsageError(f"{argument}: requires cluster")

    @property
    def on_cluster(self) -> bool:
        """Whether the job runs on a cluster."""
        return self.cluster is not None and self.cluster is not False

    @contextmanager
    def connected(self) -> "Iterator[Where]":
        """Connect to the cluster, if any, while the block runs; yield a copy with the connection."""
        if not self.on_cluster:
            yield self
            return
        address = ""
        if self.cluster is not True:
            address = check_text("cluster", self.cluster, expected="True or an address (str)")

        from aptool.cluster.connection import connect

        with connect(address, debug=_shows_ray(), wait=self.wait) as cluster:
            yield replace(self, connection=cluster)

    def executor(self) -> "Executor | None":
        """The executor that scores on the cluster, or None for this process."""
        if self.connection is None:
            return None
        from aptool.cluster.score import ClusterExecutor

        if isinstance(self.workers, tuple):
            raise UsageError("workers: expected one number; only training accepts a minimum and a maximum")
        return ClusterExecutor(
            self.connection,
            workers=self.workers,
            gpus_per_worker=self.gpus_per_worker,
            debug=_shows_ray(),
        )

    def trainer(self, checkpoint_minutes: float = CHECKPOINT_MINUTES) -> "Train":
        """The function that trains a model, on the cluster or in this process."""
        if self.connection is None:
            from aptool.models.device import pick_device
            from aptool.training.fit import fit

            return partial(fit, device=pick_device(self.device), checkpoint_minutes=checkpoint_minutes)
        from aptool.cluster.train import fit_on_cluster

        return partial(
            fit_on_cluster,
            cluster=self.connection,
            workers=self.workers,
            each=self._resources(self.connection),
            checkpoint_minutes=checkpoint_minutes,
        )

    def processes(self, jobs: Jobs) -> "Callable[[], AbstractContextManager[Processes]] | None":
        """The function that starts the processes of parallel trials, or None for serial trials.

        ``auto`` is one trial per core or GPU of this machine, None is one. On a cluster both are as many as
        fit.
        """
        if self.connection is None:
            if jobs is None or jobs == 1:
                return None
            from aptool.experiments.side_by_side import LocalProcesses, automatic_jobs

            return partial(LocalProcesses, automatic_jobs(self.device) if jobs == "auto" else jobs)
        from aptool.cluster.tasks import ClusterProcesses

        each = self._resources(self.connection)
        return partial(ClusterProcesses, self.connection, each, None if jobs == "auto" else jobs)

    def _resources(self, cluster: "Cluster") -> "Resources":
        from aptool.cluster.resources import worker_resources

        return worker_resources(cluster, self.device, self.gpus_per_worker)


def _shows_ray() -> bool:
    """Whether to show Ray's messages: with the level DEBUG, as of ``aptool --debug``."""
    return logging.getLogger("aptool").isEnabledFor(logging.DEBUG)
