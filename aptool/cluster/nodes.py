"""The nodes that may work: those with the driver's versions that see its files.

The driver checks the nodes before work starts, and nodes that join. A node that fails is left out, with one
warning. The check imports neither torch nor the code of the workers, which another version may lack.
"""

import contextlib
import logging
import pickle
import socket
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, NamedTuple

from aptool.cluster.resources import Cluster, Node, call_every
from aptool.environment import versions_of
from aptool.errors import AptoolError, InputError
from aptool.formats.atomic import check_writable
from aptool.formats.claim import DRIVER, holds
from aptool.formats.location import Location, location
from aptool.plugins import hash_file, load_plugins
from aptool.version import __version__

logger = logging.getLogger(__name__)

# Timeout of the check of a node, and interval of the checks for nodes that join.
CHECK_SECONDS = 60.0
JOIN_SECONDS = 2.0

# Packages with versions, and files of plugins with hashes, which must agree on all nodes.
Versions = tuple[tuple[str, str], ...]


class Requirements(NamedTuple):
    """Requirements on a node that scores the units of a run."""

    versions: Versions  # of the driver
    paths: tuple[str, ...]  # files and folders that every node must see
    folder: Location  # folder of the parts
    owner: str  # token of the driver's claim


def check_node(requirements: Requirements) -> None:
    """Raise unless this node has the driver's versions, sees its files and can write the parts."""
    check_versions(requirements.versions)
    for path in requirements.paths:
        if not location(path).exists():
            raise InputError(path, problem="file not found", expected="a path that every node sees")
    if not holds(requirements.folder / DRIVER, requirements.owner):
        raise InputError(
            str(requirements.folder),
            problem="not the driver's folder",
            expected="an output on storage that all nodes share",
        )
    check_writable(requirements.folder / "part")


def host() -> str:
    """The address of this node and the first digits of its id, as in ``ray list nodes``."""
    import ray

    if not ray.is_initialized():
        return socket.gethostname()
    return f"{ray.util.get_node_ip_address()} ({ray.get_runtime_context().get_node_id()[:8]})"


def check_versions(expected: Versions) -> None:
    """Raise if versions or plugins on this node differ from those of the driver."""
    load_plugins()
    files = [name for name, _ in expected if name.endswith(".py")]
    node = versions_of(*(name for name, _ in expected)) | {name: hash_file(name) or "none" for name in files}
    differ = [
        f"{name} {node.get(name, 'none')} there, {text} here"
        for name, text in expected
        if node.get(name) != text
    ]
    if differ:
        raise AptoolError(f"{'; '.join(differ)}: expected the same versions and plugins")


@contextlib.contextmanager
def leaving_out(cluster: Cluster, requirements: Requirements) -> Iterator[Cluster]:
    """Leave out nodes that do not meet the requirements, now and while the block runs.

    Yields:
        the cluster without these nodes.

    Raises:
        AptoolError: no node meets the requirements.
    """
    remaining = replace(cluster, left_out=set(), labels={})
    checked: set[str] = set()

    def check() -> dict[str, str]:
        joined = [node for node in cluster.nodes() if node.node_id not in checked]
        checked.update(node.node_id for node in joined)
        errors = _errors(joined, requirements)
        remaining.leave_out(errors)
        return errors

    def warn(errors: dict[str, str]) -> None:
        for error in errors.values():
            logger.warning(f"{error}; the node is left out")

    errors = check()
    if errors and not any(node.total.cpus or node.total.gpus for node in remaining.nodes()):
        raise AptoolError(f"--cluster {cluster.address}: {next(iter(errors.values()))}")
    warn(errors)
    with call_every(JOIN_SECONDS, lambda: warn(check())):
        yield remaining


def _errors(nodes: list[Node], requirements: Requirements) -> dict[str, str]:
    """Check nodes that have cores or GPUs; return an error by node id."""
    import ray
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    def check(packed: bytes, expected: str) -> str:  # a local function is sent as code, not by its name
        try:
            from aptool.version import __version__

            if __version__ != expected:
                return f"aptool {__version__} there, {expected} here: expected the same versions and plugins"
            from aptool.cluster.nodes import check_node

            check_node(pickle.loads(packed))
        except Exception as error:  # another version of aptool may raise anything
            return str(error) if type(error).__module__.startswith("aptool") else repr(error)
        return ""

    packed, task = pickle.dumps(requirements), ray.remote(check)
    tasks: dict[Any, Node] = {}
    for node in nodes:
        if node.total.cpus or node.total.gpus:
            here = NodeAffinitySchedulingStrategy(node.node_id, soft=False)
            tasks[task.options(num_cpus=0, scheduling_strategy=here).remote(packed, __version__)] = node
    ended, _ = ray.wait(list(tasks), num_returns=len(tasks), timeout=CHECK_SECONDS) if tasks else ([], [])
    errors = {}
    for reference in ended:
        with contextlib.suppress(ray.exceptions.RayError):  # the node was lost
            if error := ray.get(reference):
                errors[tasks[reference].node_id] = f"node {tasks[reference].name}: {error}"
    return errors
