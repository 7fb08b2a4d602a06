"""The nodes of a Ray cluster, what is free on them, and what a worker gets of it."""

import time
from dataclasses import dataclass
from typing import Any, NamedTuple

from aptool.errors import AptoolError, UsageError

# Seconds to wait for room that others have taken: the workers of a driver that was killed take some to go.
PATIENCE_FOR_ROOM = 15.0


class Resources(NamedTuple):
    """What one worker needs of a node."""

    cpus: float = 1
    gpus: float = 0

    def __str__(self) -> str:
        return _amounts(self.cpus, self.gpus)


class Node(NamedTuple):
    """A machine of the cluster."""

    node_id: str
    host: str
    free: Resources  # now
    all: Resources
    memory: float  # bytes that Ray counts on there

    @property
    def cpus(self) -> float:
        """Cores that are free."""
        return self.free.cpus

    @property
    def gpus(self) -> float:
        """GPUs that are free."""
        return self.free.gpus

    def fits(self, each: Resources) -> int:
        """How many workers there is room for now."""
        return fitting(self.free, each)


def fitting(there: Resources, each: Resources) -> int:
    """How many workers fit beside each other."""
    pairs = ((there.cpus, each.cpus), (there.gpus, each.gpus))
    shares = [amount / needed for amount, needed in pairs if needed > 0]
    return int(min(shares) + 1e-6) if shares else 0


@dataclass(frozen=True)
class Cluster:
    """A cluster that this process is connected to."""

    address: str
    logs: str  # where Ray's own logs are

    @property
    def through_client(self) -> bool:
        """Whether this process is outside the cluster, and reaches it through Ray's client alone."""
        return self.address.startswith("ray://")

    def nodes(self) -> list[Node]:
        """The nodes that are alive."""
        nodes, free, _ = self._state()
        return [
            Node(
                node["NodeID"],
                node["NodeManagerAddress"],
                _resources(free.get(node["NodeID"], {})),
                _resources(node["Resources"]),
                node["Resources"].get("memory", 0.0),
            )
            for node in nodes
            if node["Alive"]
        ]

    def gpus(self) -> float:
        """All GPUs that the cluster has or, where it grows by itself, can have."""
        nodes, _, limit = self._state()
        there = sum(node["Resources"].get("GPU", 0.0) for node in nodes if node["Alive"])
        return float(max(there, (limit or {}).get("GPU", 0)))

    def memory(self, each: Resources) -> int:
        """Bytes that a worker can count on where most of them share a node."""
        many = ((node.memory, fitting(node.all, each)) for node in self.nodes())
        return int(min((memory / workers for memory, workers in many if workers), default=0))

    def grows(self) -> bool:
        """Whether an autoscaler adds nodes when there is work for them."""
        return self._state()[2] is not None

    def check_room(self, workers: int | None, each: Resources, patience: float = PATIENCE_FOR_ROOM) -> int:
        """How many workers fit.

        What is taken now may be free in a moment, as it is after a driver was killed. What the cluster does
        not have at all is said at once.

        Args:
            workers: how many are wanted; None takes what there is, at least one.
            each: what one of them needs.
            patience: seconds to wait for what is taken.

        Raises:
            AptoolError: they do not fit, and the cluster does not grow by itself.
        """
        wanted = workers if workers is not None else 1
        until = time.monotonic() + patience
        while True:
            nodes = self.nodes()
            fit = sum(node.fits(each) for node in nodes)
            if fit >= wanted or self.grows():
                return fit
            possible = sum(fitting(node.all, each) for node in nodes)
            if possible < wanted or time.monotonic() > until:
                break
            time.sleep(0.2)
        free, there = _sum([node.free for node in nodes]), _sum([node.all for node in nodes])
        raise AptoolError(
            f"--cluster {self.address}: {free} free, of {there}, on {count(len(nodes), 'node')}: "
            f"{count(wanted, 'worker')} with {each} each asked for, expected room for them, not for {fit}"
        )

    def _state(self) -> "State":
        """What the head knows; through Ray's client it can only be asked over there."""
        if not self.through_client:
            return _state()
        import ray

        state: State = ray.get(ray.remote(num_cpus=0)(_state).remote())
        return state


# All nodes, what is free on each by its id, and the most that an autoscaler may add up to.
State = tuple[list[dict[str, Any]], dict[str, dict[str, float]], dict[str, int] | None]


def _state() -> State:
    import ray
    from ray._private.state import available_resources_per_node, state

    return ray.nodes(), available_resources_per_node(), state.get_max_resources_from_cluster_config()


def worker_resources(cluster: Cluster, device: str = "auto", gpus: float | None = None) -> Resources:
    """What a worker gets: a core, and a GPU where there are any.

    Args:
        cluster: where it will run.
        device: ``cpu`` takes no GPU, ``cuda`` must have one, ``auto`` takes one if the cluster has one.
        gpus: GPUs a worker; None is one.

    Raises:
        UsageError: a device was asked for that a cluster cannot give, or is at odds with the number of GPUs.
        AptoolError: the cluster has no GPU and one was asked for.
    """
    if device not in ("auto", "cpu", "cuda"):
        raise UsageError(f"--device {device!r}: expected auto, cpu or cuda with --cluster")
    if device == "cpu" and gpus:
        raise UsageError(f"--device cpu with --gpus-per-worker {gpus:g}: expected one of the two")
    there = cluster.gpus()
    if gpus is None:
        gpus = 1.0 if device == "cuda" or (device == "auto" and there) else 0.0
    if gpus and not there:
        raise AptoolError(
            f"--cluster {cluster.address}: no GPU in the cluster, {count(gpus, 'GPU')} a worker asked for: "
            "expected --device cpu, or nodes with GPUs"
        )
    return Resources(1, gpus)


def _sum(shares: list[Resources]) -> Resources:
    return Resources(sum(share.cpus for share in shares), sum(share.gpus for share in shares))


def _resources(resources: dict[str, float]) -> Resources:
    return Resources(resources.get("CPU", 0.0), resources.get("GPU", 0.0))


def _amounts(cpus: float, gpus: float) -> str:
    return f"{count(cpus, 'CPU')} and {count(gpus, 'GPU')}"


def count(number: float, noun: str) -> str:
    """``1 CPU``, ``2 CPUs``, ``0.5 CPUs``."""
    return f"{number:g} {noun}{'' if number == 1 else 's'}"
