"""The nodes of a Ray cluster, their capacity for workers, and the resources of a worker.

Ray publishes the total resources of each node and the free resources of the cluster, but not the free
resources of each node. On a partly used cluster, the free capacity is found by reserving placement groups for
a moment.
"""

import contextlib
import logging
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeAlias

from aptool.errors import AptoolError, UsageError, counted

logger = logging.getLogger(__name__)

# Seconds before a wait for used resources is logged: workers of a killed driver end in this time.
SILENT_SECONDS = 15.0

# Timeout of a reservation; the scheduler needs a fraction of it.
PLACEMENT_SECONDS = 1.0

# Maximum number of reservations, and so of workers that are counted on a partly used cluster.
MAX_RESERVATIONS = 256

# Seconds between two log lines about missing resources, and between two polls of the cluster.
LINE_SECONDS = 30.0
POLL_SECONDS = 0.2

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

    @property
    def bundle(self) -> dict[str, float]:
        """The resources as a bundle of Ray's placement groups."""
        amounts = {"CPU": float(self.cpus), "GPU": float(self.gpus), "memory": float(self.memory)}
        return {name: amount for name, amount in amounts.items() if amount}

    def __str__(self) -> str:
        return f"{counted(self.cpus, 'CPU')} and {counted(self.gpus, 'GPU')}"


class Node(NamedTuple):
    """A machine of the cluster."""

    node_id: str
    total: Resources
    name: str = ""  # its address and the first digits of its id


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
    left_out: set[str] = field(default_factory=set, hash=False)  # ids of nodes that get no work
    labels: dict[str, str] = field(default_factory=dict, hash=False)  # Ray's selector of the other nodes

    def describe(self, workers: str, each: Resources) -> str:
        """A log line with the number of workers and their resources."""
        return f"cluster {self.address}: {workers} with {each} each; Ray's logs are in {self.logs}"

    def nodes(self) -> list[Node]:
        """The nodes that are alive and not left out."""
        import ray

        return [
            Node(
                node["NodeID"],
                _resources(node["Resources"]),
                f"{node['NodeManagerAddress']} ({node['NodeID'][:8]})",
            )
            for node in ray.nodes()
            if node["Alive"] and node["NodeID"] not in self.left_out
        ]

    def leave_out(self, node_ids: Iterable[str]) -> None:
        """Give no further work to some nodes."""
        self.left_out.update(node_ids)
        if self.left_out:
            self.labels["ray.io/node-id"] = f"!in({','.join(sorted(self.left_out))})"

    def total(self) -> Resources:
        """The sum of the resources of all nodes."""
        totals = [Resources(0), *(node.total for node in self.nodes())]
        return Resources(*(sum(amounts) for amounts in zip(*totals, strict=True)))

    def free(self) -> Resources:
        """The sum of the free resources of all nodes."""
        import ray

        return _resources(ray.available_resources())

    def memory(self, each: Resources) -> int:
        """Bytes of memory per worker if each node has as many workers as fit; the minimum of all nodes."""
        nodes = ((node.total.memory, capacity(node.total, each)) for node in self.nodes())
        return int(min((memory / workers for memory, workers in nodes if workers), default=0))

    def room(self, each: Resources) -> list[int]:
        """Number of workers that fit on each node now."""
        nodes, free, total = self.nodes(), self.free(), self.total()
        capacities = [capacity(node.total, each) for node in nodes]
        if not self.left_out and free.cpus >= total.cpus and free.gpus >= total.gpus:
            return capacities
        node_ids = [
            node.node_id for node, number in zip(nodes, capacities, strict=True) for _ in range(number)
        ]
        reserved = self.reserve(node_ids[:MAX_RESERVATIONS], each)
        return [reserved.count(node.node_id) for node in nodes]

    def has_room(self, each: Resources) -> bool:
        """Whether one more worker fits now."""
        return capacity(self.free(), each) > 0 and sum(self.room(each)) > 0

    def reserve(self, node_ids: list[str], each: Resources) -> list[str]:
        """Reserve resources for a moment on nodes, once per worker; return the ids of the nodes with room."""
        from ray.util import placement_group, placement_group_table, remove_placement_group

        groups = [
            placement_group([each.bundle], bundle_label_selector=[{"ray.io/node-id": node_id}])
            for node_id in node_ids
        ]
        try:
            deadline = time.monotonic() + PLACEMENT_SECONDS
            while True:
                states = [placement_group_table(group)["state"] for group in groups]
                if all(state == "CREATED" for state in states) or time.monotonic() > deadline:
                    break
                time.sleep(0.05)
            return [node_id for node_id, state in zip(node_ids, states, strict=True) if state == "CREATED"]
        finally:
            for group in groups:
                remove_placement_group(group)

    def check_room(self, workers: int, each: Resources, request: int | None = None) -> int:
        """Wait until ``workers`` fit or ``wait`` ends; return the number of workers that fit.

        If the nodes are too few, resources for ``request`` workers are requested from the autoscaler.
        """
        fit = sum(self.room(each))
        if fit >= workers:
            return fit

        def error() -> AptoolError:
            within = f" within {self.wait:g} s" if self.wait else ""
            return AptoolError(
                f"--cluster {self.address}: {self.free()} free, of {self.total()}, on "
                f"{counted(len(self.nodes()), 'node')}: room for {fit}; expected room for "
                f"{counted(workers, 'worker')} with {self._lacking(workers, each)} each{within}"
            )

        wait = Wait(self.wait, silent=0.0 if self.missing(workers, each) else SILENT_SECONDS)
        while (fit := sum(self.room(each))) < workers:
            if not self.missing(workers, each):
                wait.sleep(
                    f"waiting for {counted(workers, 'worker')} with {each} each; {self.free()} free", error
                )
                continue
            with self.requested(max(workers, request or 1), each):
                while line := self.missing(workers, each):
                    wait.sleep(line, error)
        return fit

    def missing(self, workers: int, each: Resources) -> str:
        """A log line about the resources that the cluster lacks for workers; empty if it has them."""
        if sum(capacity(node.total, each) for node in self.nodes()) >= workers:
            return ""
        total = self.total()
        needed = Resources(*(workers * amount for amount in each))
        lack = f"{counted(needed.cpus, 'CPU')}; the cluster has {total.cpus:g}"
        if needed.gpus > total.gpus:
            lack = f"{counted(needed.gpus, 'GPU')}; the cluster has {total.gpus:g}"
        elif needed.cpus <= total.cpus:
            with_each = f"with {self._lacking(workers, each)} each"
            lack = f"nodes with room for {counted(workers, 'worker')} {with_each}"
        return f"waiting for {lack}, its autoscaler may add nodes"

    def _lacking(self, workers: int, each: Resources) -> str:
        """The resources of a worker as text; with memory only if memory is the reason that too few fit."""
        nodes, without_memory = self.nodes(), each._replace(memory=0)
        fit, fit_without = (
            sum(capacity(node.total, resources) for node in nodes) for resources in (each, without_memory)
        )
        return f"{each}, {each.memory / 1e9:.1f} GB of memory" if fit < workers <= fit_without else str(each)

    @contextlib.contextmanager
    def requested(self, workers: int, each: Resources) -> Iterator[None]:
        """Request resources from the autoscaler while the block runs, then wait until they are free again."""
        from ray.util import placement_group, placement_group_table, remove_placement_group

        group = placement_group([each.bundle] * workers)
        try:
            yield
            is_held = placement_group_table(group)["state"] == "CREATED"
            before = self.free()
        finally:
            remove_placement_group(group)
        deadline = time.monotonic() + PLACEMENT_SECONDS
        while is_held and self.free() == before and time.monotonic() < deadline:
            time.sleep(0.05)


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


class Wait:
    """A wait with a limit in seconds (None means no limit), which is logged after ``silent`` seconds."""

    def __init__(self, limit: float | None, silent: float = 0.0) -> None:
        self._deadline = time.monotonic() + limit if limit is not None else float("inf")
        self._line_at = time.monotonic() + silent

    def sleep(self, missing: str, error: Callable[[], AptoolError]) -> None:
        """Sleep for a moment and log ``missing`` from time to time; raise ``error()`` after the limit."""
        if time.monotonic() >= self._deadline:
            raise error()
        if time.monotonic() >= self._line_at:
            self._line_at = time.monotonic() + LINE_SECONDS
            logger.info(missing)
        time.sleep(POLL_SECONDS)


@contextlib.contextmanager
def call_every(seconds: float, act: Callable[[], None]) -> Iterator[None]:
    """Call a function every few seconds on a thread while the block runs."""
    ended = threading.Event()

    def repeat() -> None:
        while not ended.wait(seconds):
            act()

    thread = threading.Thread(target=repeat, daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


@contextlib.contextmanager
def log_missing_resources(missing: Callable[[], str]) -> Iterator[None]:
    """Log the line of ``missing()`` every half minute while the block runs, unless it is empty."""

    def log() -> None:
        if line := missing():
            logger.info(line)

    with call_every(LINE_SECONDS, log):
        yield
