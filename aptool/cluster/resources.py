"""The nodes of a Ray cluster, and the resources of a worker."""

import logging
import time
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

from aptool.errors import AptoolError, UsageError, counted

logger = logging.getLogger(__name__)

# Seconds between two log lines about missing resources.
LINE_SECONDS = 30.0

# Number of workers of a training: fixed, or (minimum, maximum), or None for one per GPU or node.
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

    def capacity(self, each: "Resources") -> int:
        """Number of workers with the resources ``each`` that fit on this node."""
        ratios = [amount / needed for amount, needed in zip(self, each, strict=True) if needed > 0]
        return int(min(ratios) + 1e-6) if ratios else 0

    def __str__(self) -> str:
        return f"{counted(self.cpus, 'CPU')} and {counted(self.gpus, 'GPU')}"


@dataclass(frozen=True)
class Cluster:
    """A cluster that this process is connected to."""

    address: str
    logs: str  # folder of Ray's own logs
    wait: float | None = None  # seconds to wait for nodes; None means no limit

    def describe(self, workers: str, each: Resources) -> str:
        """A log line with the number of workers and their resources."""
        return f"cluster {self.address}: {workers} with {each} each; Ray's logs are in {self.logs}"

    def nodes(self) -> list[Resources]:
        """The resources of the nodes that are alive."""
        import ray

        return [_resources(node["Resources"]) for node in ray.nodes() if node["Alive"]]

    def total(self) -> Resources:
        """The sum of the resources of all nodes."""
        return Resources(*(sum(amounts) for amounts in zip(Resources(0), *self.nodes(), strict=True)))

    def capacity(self, each: Resources) -> int:
        """Number of workers that fit if nothing else runs."""
        return sum(node.capacity(each) for node in self.nodes())

    def memory(self, each: Resources) -> int:
        """Bytes of memory per worker if each node has as many workers as fit; the minimum of all nodes."""
        nodes = ((node.memory, node.capacity(each)) for node in self.nodes())
        return int(min((memory / workers for memory, workers in nodes if workers), default=0))


class Wait:
    """Watches whether the nodes have room for some workers: a node may be lost, an autoscaler may add one."""

    def __init__(self, cluster: Cluster, workers: int, each: Resources) -> None:
        self._cluster, self._workers, self._each = cluster, workers, each
        self._start = self._line_at = time.monotonic()

    def poll(self, *, has_begun: bool = True) -> None:
        """Log every half minute that the workers do not fit, or have not begun.

        Raises:
            AptoolError: the nodes have had no room for ``cluster.wait`` seconds.
        """
        cluster, each, now = self._cluster, self._each, time.monotonic()
        room = cluster.capacity(each)
        needs = f"{counted(self._workers, 'worker')} with {each} each"
        if room >= self._workers:
            self._start = now
            if has_begun:
                self._line_at = now
            elif now >= self._line_at + LINE_SECONDS:
                self._line_at = now
                logger.info(f"waiting for {needs}, while other work uses the cluster")
            return
        if cluster.capacity(each._replace(memory=0)) > room:
            needs += f", {each.memory / 1e9:.1f} GB of memory"
        has = f"{cluster.total()}, on {counted(len(cluster.nodes()), 'node')}"
        if cluster.wait is not None and now - self._start >= cluster.wait:
            within = f" within {cluster.wait:g} s" if cluster.wait else ""
            raise AptoolError(
                f"--cluster {cluster.address}: {has}: room for {room}; expected room for {needs}{within}"
            )
        if now >= self._line_at:
            self._line_at = now + LINE_SECONDS
            logger.info(f"waiting for {needs}; the cluster has {has}")


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
