"""The nodes of a Ray cluster, how many workers they have room for, and what a worker gets.

Ray publishes what each node has, and what is free in the cluster as a whole. What is free on one node is
private to its scheduler, so on a cluster that is partly taken the scheduler is asked: placement groups are
reserved for a moment, and those that could be placed are counted.
"""

import contextlib
import logging
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

from aptool.errors import AptoolError, UsageError

logger = logging.getLogger(__name__)

# Seconds for which taken resources are waited for without a word: the workers of a driver that was killed
# need some to end.
SILENT_SECONDS = 15.0

# Seconds in which the scheduler places a reservation that there is room for, many times what it needs.
PLACEMENT_SECONDS = 1.0

# The most reservations at one time; on a larger cluster that is partly taken no more workers are counted.
MAX_RESERVATIONS = 256


# How many workers train: a number, or the least and the most; None is what the cluster has.
Workers: TypeAlias = int | tuple[int, int] | None


class Resources(NamedTuple):
    """What one worker needs of a node."""

    cpus: float = 1
    gpus: float = 0
    memory: float = 0  # bytes that Ray counts on; 0 asks for none in particular

    @property
    def options(self) -> dict[str, float]:
        """As Ray's tasks and actors take them."""
        memory = {"memory": self.memory} if self.memory else {}
        return {"num_cpus": self.cpus, "num_gpus": self.gpus, **memory}

    @property
    def bundle(self) -> dict[str, float]:
        """As Ray's placement groups take them."""
        amounts = {"CPU": float(self.cpus), "GPU": float(self.gpus), "memory": float(self.memory)}
        return {name: amount for name, amount in amounts.items() if amount}

    def __str__(self) -> str:
        return f"{count(self.cpus, 'CPU')} and {count(self.gpus, 'GPU')}"


NOTHING = Resources(0, 0)


class Node(NamedTuple):
    """A machine of the cluster."""

    node_id: str
    host: str
    total: Resources


def fitting(there: Resources, each: Resources) -> int:
    """How many workers fit on a node with these resources."""
    pairs = ((there.cpus, each.cpus), (there.gpus, each.gpus), (there.memory, each.memory))
    ratios = [amount / needed for amount, needed in pairs if needed > 0]
    return int(min(ratios) + 1e-6) if ratios else 0


@dataclass(frozen=True)
class Cluster:
    """A cluster that this process is connected to."""

    address: str
    logs: str  # where Ray's own logs are
    wait: float | None = None  # seconds to wait for resources; None is without end

    @property
    def through_client(self) -> bool:
        """Whether this process is outside the cluster and connected through Ray's client."""
        return self.address.startswith("ray://")

    def nodes(self) -> list[Node]:
        """The nodes that are alive."""
        import ray

        return [
            Node(
                node["NodeID"],
                node["NodeManagerAddress"],
                _resources(node["Resources"]),
            )
            for node in ray.nodes()
            if node["Alive"]
        ]

    def total(self) -> Resources:
        """What all nodes have together."""
        totals = [node.total for node in self.nodes()]
        return Resources(*(sum(amounts) for amounts in zip(*totals, strict=True))) if totals else NOTHING

    def free(self) -> Resources:
        """What is free now on all nodes together."""
        import ray

        return _resources(ray.available_resources())

    def memory(self, each: Resources) -> int:
        """Bytes that a worker can count on where most of them share a node."""
        many = ((node.total.memory, fitting(node.total, each)) for node in self.nodes())
        return int(min((memory / workers for memory, workers in many if workers), default=0))

    def room(self, each: Resources) -> list[int]:
        """How many workers fit on each node now."""
        nodes, free, total = self.nodes(), self.free(), self.total()
        most = [fitting(node.total, each) for node in nodes]
        if free.cpus >= total.cpus and free.gpus >= total.gpus:
            return most
        wanted = [node.node_id for node, number in zip(nodes, most, strict=True) for _ in range(number)]
        placed = self.placed(wanted[:MAX_RESERVATIONS], each)
        return [placed.count(node.node_id) for node in nodes]

    def has_room(self, each: Resources) -> bool:
        """Whether one more worker fits now; the scheduler is asked only where enough is free in all."""
        return fitting(self.free(), each) > 0 and sum(self.room(each)) > 0

    def placed(self, wanted: list[str], each: Resources) -> list[str]:
        """Try to reserve resources on nodes, and gives them back.

        Args:
            wanted: ids of nodes; one that is there twice is asked for two workers.
            each: what one worker needs.

        Returns:
            The ids of those that could be placed.
        """
        from ray.util import placement_group, placement_group_table, remove_placement_group

        groups = [
            placement_group([each.bundle], bundle_label_selector=[{"ray.io/node-id": node_id}])
            for node_id in wanted
        ]
        try:
            until = time.monotonic() + PLACEMENT_SECONDS
            while True:
                states = [placement_group_table(group)["state"] for group in groups]
                if all(state == "CREATED" for state in states) or time.monotonic() > until:
                    break
                time.sleep(0.05)
            return [node_id for node_id, state in zip(wanted, states, strict=True) if state == "CREATED"]
        finally:
            for group in groups:
                remove_placement_group(group)

    def check_room(self, workers: int | None, each: Resources, request: int | None = None) -> int:
        """How many workers fit; waits until they do.

        Resources that the cluster lacks are requested, so that its autoscaler adds nodes.

        Args:
            workers: number of workers; None is as many as fit, at least one.
            each: what one of them needs.
            request: for how many an autoscaler is asked; None is ``workers``.
        """
        wanted = workers if workers is not None else 1
        fit = sum(self.room(each))
        if fit >= wanted:
            return fit

        def error() -> AptoolError:
            within = f" within {self.wait:g} s" if self.wait else ""
            return AptoolError(
                f"--cluster {self.address}: {self.free()} free, of {self.total()}, on "
                f"{count(len(self.nodes()), 'node')}: room for {fit}; expected room for "
                f"{count(wanted, 'worker')} with {self._lacking(wanted, each)} each{within}"
            )

        wait = Wait(self.wait, silent=0.0 if self.missing(wanted, each) else SILENT_SECONDS)
        while (fit := sum(self.room(each))) < wanted:
            if not self.missing(wanted, each):
                wait.sleep(
                    f"waiting for {count(wanted, 'worker')} with {each} each; {self.free()} free", error
                )
                continue
            with self.requested(max(wanted, request or 1), each):
                while line := self.missing(wanted, each):
                    wait.sleep(line, error)
        return fit

    def missing(self, workers: int, each: Resources) -> str:
        """What the cluster lacks for so many workers, in a line; empty if its nodes have room for them."""
        if sum(fitting(node.total, each) for node in self.nodes()) >= workers:
            return ""
        total = self.total()
        needed = Resources(*(workers * amount for amount in each))
        lack = f"{count(needed.cpus, 'CPU')}; the cluster has {total.cpus:g}"
        if needed.gpus > total.gpus:
            lack = f"{count(needed.gpus, 'GPU')}; the cluster has {total.gpus:g}"
        elif needed.cpus <= total.cpus:
            lack = f"nodes with room for {count(workers, 'worker')} with {self._lacking(workers, each)} each"
        return f"waiting for {lack}, its autoscaler may add nodes"

    def _lacking(self, workers: int, each: Resources) -> str:
        """What a worker needs; its memory is named where the nodes have too little of that alone."""
        nodes, without = self.nodes(), each._replace(memory=0)
        fit, enough = (sum(fitting(node.total, one) for node in nodes) for one in (each, without))
        return f"{each}, {each.memory / 1e9:.1f} GB of memory" if fit < workers <= enough else str(each)

    @contextlib.contextmanager
    def requested(self, workers: int, each: Resources) -> Iterator[None]:
        """Request resources for workers while the block runs: an autoscaler adds nodes for them."""
        from ray.util import placement_group, remove_placement_group

        group = placement_group([each.bundle] * workers)
        try:
            yield
        finally:
            remove_placement_group(group)


def worker_resources(cluster: Cluster, device: str = "auto", gpus: float | None = None) -> Resources:
    """What a worker gets: a core, and a GPU where there are any.

    Args:
        cluster: where it will run.
        device: ``cpu`` takes no GPU, ``cuda`` requires one, ``auto`` takes one if the cluster has any now.
        gpus: GPUs per worker; None is one.
    """
    if device not in ("auto", "cpu", "cuda"):
        raise UsageError(f"--device {device!r}: expected auto, cpu or cuda with --cluster")
    if device == "cpu" and gpus:
        raise UsageError(f"--device cpu with --gpus-per-worker {gpus:g}: expected one of the two")
    if gpus is None:
        gpus = 1.0 if device == "cuda" or (device == "auto" and cluster.total().gpus) else 0.0
    return Resources(1, gpus)


def _resources(resources: dict[str, Any]) -> Resources:
    return Resources(*(resources.get(name, 0.0) for name in ("CPU", "GPU", "memory")))


def count(number: float, noun: str) -> str:
    """``1 CPU``, ``2 CPUs``, ``0.5 CPUs``."""
    return f"{number:g} {noun}{'' if number == 1 else 's'}"


# Seconds between two lines that say what is waited for.
LINE_SECONDS = 30.0

# Seconds between two looks at the cluster.
POLL_SECONDS = 0.2


class Wait:
    """A wait that has begun.

    Args:
        limit: seconds until it ends in an error; None is never.
        silent: seconds until the first line.
    """

    def __init__(self, limit: float | None, silent: float = 0.0) -> None:
        self._until = time.monotonic() + limit if limit is not None else float("inf")
        self._line_at = time.monotonic() + silent

    def sleep(self, missing: str, error: Callable[[], AptoolError]) -> None:
        """Wait a moment.

        Args:
            missing: what is waited for.
            error: makes the error in which the wait ends.
        """
        if time.monotonic() >= self._until:
            raise error()
        if time.monotonic() >= self._line_at:
            self._line_at = time.monotonic() + LINE_SECONDS
            logger.info(missing)
        time.sleep(POLL_SECONDS)


@contextlib.contextmanager
def repeated(seconds: float, act: Callable[[], None]) -> Iterator[None]:
    """Call a function every so many seconds while the block runs, on a thread."""
    over = threading.Event()

    def repeat() -> None:
        while not over.wait(seconds):
            act()

    thread = threading.Thread(target=repeat, daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


@contextlib.contextmanager
def said_while_missing(missing: Callable[[], str]) -> Iterator[None]:
    """Log what running work waits for every half minute while the block runs.

    Args:
        missing: what the work lacks now, such as the nodes that were lost; empty if nothing.
    """

    def say() -> None:
        if line := missing():
            logger.info(line)

    with repeated(LINE_SECONDS, say):
        yield
