"""The nodes of a Ray cluster, and the resources of a worker."""

import logging
import time
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

from aptool.errors import AptoolError, UsageError, counted

logger = logging.getLogger(__name__)

# Seconds between two log lines about missing resources, and before the first one if other work uses them:
# workers of a killed driver end in this time.
LINE_SECONDS = 30.0
SILENT_SECONDS = 15.0
POLL_SECONDS = 0.3

# Number of workers of a training: fixed, or (minimum, maximum), or None for as many as fit.
Workers: TypeAlias = int | tuple[int, int] | None


class Resources(NamedTuple):
    """The resources of a worker or a node."""

    cpus: float = 1
    gpus: float = 0
    memory: float = 0  # bytes that Ray reserves; 0 reserves none

    @property
    def options(self) -> dict[str, float]:
        """The resources as options of Ray's tasks and actors."""
        memory = {"memory": self.memory} if self.memory else {}
        return {"num_cpus": self.cpus, "num_gpus": self.gpus, **memory}

    def __str__(self) -> str:
        return f"{counted(self.cpus, 'CPU')} and {counted(self.gpus, 'GPU')}"


class Node(NamedTuple):
    """A machine of the cluster."""

    node_id: str
    total: Resources


def capacity(node: Resources, each: Resources) -> int:
    """Number of workers with the resources ``each`` that fit on a node."""
    pairs = ((node.cpus, each.cpus), (node.gpus, each.gpus), (node.memory, each.memory))
    ratios = [amount / needed for amount, needed in pairs if needed > 0]
    return int(min(ratios) + 1e-6) if ratios else 0


@dataclass(frozen=True)
class Cluster:
    """A cluster that this process is connected to."""

    address: str
    logs: str  # folder of Ray's own logs
    wait: float | None = None  # seconds to wait for resources; None means no limit

    def describe(self, workers: str, each: Resources) -> str:
        """A log line with the number of workers and their resources."""
        return f"cluster {self.address}: {workers} with {each} each; Ray's logs are in {self.logs}"

    def nodes(self) -> list[Node]:
        """The nodes that are alive."""
        import ray

        return [Node(node["NodeID"], _resources(node["Resources"])) for node in ray.nodes() if node["Alive"]]

    def total(self) -> Resources:
        """The sum of the resources of all nodes."""
        totals = [Resources(0), *(node.total for node in self.nodes())]
        return Resources(*(sum(amounts) for amounts in zip(*totals, strict=True)))

    def free(self) -> Resources:
        """The sum of the free resources of all nodes."""
        import ray

        return _resources(ray.available_resources())

    def capacity(self, each: Resources) -> int:
        """Number of workers that fit if nothing else runs."""
        return sum(capacity(node.total, each) for node in self.nodes())

    def room(self, each: Resources) -> int:
        """Number of workers that fit now, at most: free resources may be spread over several nodes."""
        return min(self.capacity(each), capacity(self.free(), each))

    def memory(self, each: Resources) -> int:
        """Bytes of memory per worker if each node has as many workers as fit; the minimum of all nodes."""
        nodes = ((node.total.memory, capacity(node.total, each)) for node in self.nodes())
        return int(min((memory / workers for memory, workers in nodes if workers), default=0))


class Wait:
    """A wait until the nodes of a cluster have room for some workers, or until it is free.

    ``is_over`` is polled. While it returns False, it logs the missing resources every half minute, and raises
    after ``cluster.wait`` seconds.
    """

    def __init__(self, cluster: Cluster, workers: int, each: Resources, *, free: bool = False) -> None:
        self._cluster, self._workers, self._each = cluster, workers, each
        self._room = cluster.room if free else cluster.capacity
        self._start: float | None = None
        self._line_at = 0.0

    def is_over(self) -> bool:
        """Whether the workers fit."""
        cluster, room, now = self._cluster, self._room(self._each), time.monotonic()
        if room >= self._workers:
            self._start = None
            return True
        is_lacking = cluster.capacity(self._each) < self._workers
        if self._start is None:
            self._start = now
            self._line_at = now + (0 if is_lacking else SILENT_SECONDS)
        needs = f"{counted(self._workers, 'worker')} with {self._each} each"
        if cluster.capacity(self._each._replace(memory=0)) > cluster.capacity(self._each):
            needs += f", {self._each.memory / 1e9:.1f} GB of memory"
        if cluster.wait is not None and now - self._start >= cluster.wait:
            within = f" within {cluster.wait:g} s" if cluster.wait else ""
            raise AptoolError(
                f"--cluster {cluster.address}: {cluster.free()} free, of {cluster.total()}, on "
                f"{counted(len(cluster.nodes()), 'node')}: room for {room}; expected room for {needs}{within}"
            )
        if now >= self._line_at:
            self._line_at = now + LINE_SECONDS
            reason = f"the cluster has {cluster.total()}" if is_lacking else f"{cluster.free()} free"
            logger.info(f"waiting for {needs}; {reason}")
        return False


def wait_until_free(cluster: Cluster, workers: int, each: Resources) -> None:
    """Wait for resources that other work uses; what the nodes lack, an autoscaler adds for Ray's own wait."""
    wait = Wait(cluster, workers, each, free=True)
    while cluster.capacity(each) >= workers and not wait.is_over():
        time.sleep(POLL_SECONDS)


def worker_resources(cluster: Cluster, device: str = "auto", gpus: float | None = None) -> Resources:
    """The resources of a worker: one core, and ``gpus``, by default one if ``device`` means a GPU."""
    if device not in ("auto", "cpu", "cuda"):
        raise UsageError(f"--device {device!r}: expected auto, cpu or cuda with --cluster")
    if device == "cpu" and gpus:
        raise UsageError(f"--device cpu with --gpus-per-worker {gpus:g}: expected one of the two")
    if gpus is None:
        gpus = 1.0 if device == "cuda" or (device == "auto" and cluster.total().gpus) else 0.0
    return Resources(1, gpus)


def _resources(resources: dict[str, Any]) -> Resources:
    return Resources(*(resources.get(name, 0.0) for name in ("CPU", "GPU", "memory")))
