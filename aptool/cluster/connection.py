"""The connection to a Ray cluster, with errors of one line; its nodes, and the resources of a worker."""

import contextlib
import importlib
import logging
import os
import re
import secrets
import signal
import socket
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

from aptool.environment import install_command
from aptool.errors import AptoolError, UsageError, counted, one_line
from aptool.plugins import VARIABLE

logger = logging.getLogger(__name__)

# Seconds between two log lines about missing resources.
LINE_SECONDS = 30.0

# Number of workers: fixed, or (minimum, maximum), or None for the default.
Workers: TypeAlias = int | tuple[int, int] | None

ADDRESS = re.compile(r"(\[[0-9a-fA-F:]+\]|[\w.-]+):\d{1,5}")

# The token of the clusters that this process starts: Ray reads a token once per process.
TOKEN = secrets.token_hex(16)
TOKEN_HINT = "if it requires a token, set RAY_AUTH_MODE=token, and RAY_AUTH_TOKEN to the token"


class Resources(NamedTuple):
    """The resources of a worker or a node."""

    cpus: float = 1
    gpus: float = 0
    memory: float = 0  # bytes that Ray reserves; 0 reserves none

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

    def describe(self, workers: str, each: Resources) -> str:
        """A log line with the number of workers and their resources."""
        return f"cluster {self.address}: {workers} with {each} each; Ray's logs are in {self.logs}"

    def nodes(self) -> list[Resources]:
        """The resources of the nodes that are alive."""
        import ray

        alive = [node["Resources"] for node in ray.nodes() if node["Alive"]]
        return [Resources(*(node.get(name, 0.0) for name in ("CPU", "GPU", "memory"))) for node in alive]

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
        self._next_line = time.monotonic()

    def poll(self, *, has_begun: bool = True) -> None:
        """Log every half minute that the workers do not fit, or have not begun: other work may run."""
        cluster, each, now = self._cluster, self._each, time.monotonic()
        has_room = cluster.capacity(each) >= self._workers
        if has_room and has_begun:
            self._next_line = now
        elif now >= self._next_line + LINE_SECONDS * has_room:
            self._next_line = now + LINE_SECONDS * (not has_room)
            memory = f", {each.memory / 1e9:.1f} GB of memory" if each.memory else ""
            logger.info(
                f"waiting for {counted(self._workers, 'worker')} with {each} each{memory}; "
                f"the cluster has {cluster.total()}, on {counted(len(cluster.nodes()), 'node')}"
            )


def worker_resources(cluster: Cluster, device: str = "auto", gpus: float | None = None) -> Resources:
    """The resources of a worker: one core, and ``gpus``, by default one if ``device`` means a GPU."""
    if device not in ("auto", "cpu", "cuda"):
        raise UsageError(f"--device {device!r}: expected auto, cpu or cuda with --cluster")
    if device == "cpu" and gpus:
        raise UsageError(f"--device cpu with --gpus-per-worker {gpus:g}: expected one of the two")
    if gpus is None:
        gpus = 1.0 if device == "cuda" or (device == "auto" and cluster.total().gpus) else 0.0
    return Resources(1, gpus)


@contextlib.contextmanager
def connect(address: str = "") -> Iterator[Cluster]:
    """Connect this process to a cluster, and disconnect when the block ends.

    An existing connection of this process (a worker, a test, a notebook) is used and stays open.

    Args:
        address: ``host:port``; ``auto`` for the cluster of this machine; or ``local`` for a new cluster on
            this machine, until the block ends. Default: the environment variable ``RAY_ADDRESS``, or
            ``auto``.
    """
    source = "--cluster"
    if not address:
        source, address = "RAY_ADDRESS", os.environ.get("RAY_ADDRESS") or "auto"
    check_address(address, source)
    with _variables(address), contextlib.ExitStack() as opened:
        try:
            ray: Any = importlib.import_module("ray")  # reads the environment
        except ImportError as error:
            raise AptoolError(f"--cluster needs Ray: {install_command('cluster')} ({error})") from error
        if not ray.is_initialized():
            _check_head(address)
            opened.enter_context(_without_rays_output())
            opened.callback(ray.shutdown)
            _init(ray, address)
        context = ray.get_runtime_context()
        logs = Path(context.get_temp_dir()) / context.get_session_name() / "logs"
        yield Cluster(context.gcs_address if address in ("auto", "local") else address, str(logs))


@contextlib.contextmanager
def _without_rays_output() -> Iterator[None]:
    """Drop what Ray's threads print on stdout, and its C++ code on descriptor 2, but not ``sys.stderr``."""
    saved = os.dup(2)
    with (
        Path(os.devnull).open("w") as nowhere,
        os.fdopen(saved, "w", buffering=1, encoding=sys.stderr.encoding) as terminal,
        contextlib.redirect_stdout(nowhere),
        # A replacement of sys.stderr, as in a notebook, does not write to descriptor 2.
        contextlib.redirect_stderr(terminal if sys.stderr is sys.__stderr__ else sys.stderr),
    ):
        os.dup2(nowhere.fileno(), 2)
        try:
            yield
        finally:
            os.dup2(saved, 2)


def check_address(address: str, source: str = "--cluster") -> None:
    """Raise unless an address is valid; ``source`` is the option or variable that errors name."""
    if address not in ("auto", "local") and not ADDRESS.fullmatch(address):
        remedy = "; to use the default address, put --cluster last" if source == "--cluster" else ""
        raise UsageError(f"{source} {address!r}: expected host:port of the head, auto or local{remedy}")


def _check_head(address: str) -> None:
    """Raise unless something listens at the address of a head: Ray itself would try for minutes."""
    shown, head, remedy = address, address, "the head of a Ray cluster to answer there"
    if address == "auto":
        folder = os.environ.get("RAY_TMPDIR") or tempfile.gettempdir()
        note = Path(folder) / "ray" / "ray_current_cluster"  # of the last `ray start`
        head = note.read_text(encoding="utf-8").strip() if note.is_file() else ""
        shown = f"auto: {head}"
        remedy = f"a head there, as {note} says; `ray stop` removes the address of one that has ended"
    if ADDRESS.fullmatch(head):
        host, _, port = head.rpartition(":")
        try:
            socket.create_connection((host.strip("[]"), int(port)), timeout=5.0).close()
        except (OSError, UnicodeError) as error:  # UnicodeError: not the name of a host
            reason = getattr(error, "strerror", None) or str(error)
            raise AptoolError(f"--cluster {shown}: {reason.lower()}: expected {remedy}") from error


@contextlib.contextmanager
def _variables(address: str) -> Iterator[None]:
    """Set variables of Ray in the environment while the block runs, unless the user has set them."""
    variables = {"RAY_USAGE_STATS_ENABLED": "0"}  # opt-in, also of a cluster that is started here
    if address == "local":
        variables["RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"] = "0"  # Ray listens on the loopback interface only
        if "RAY_AUTH_TOKEN_PATH" not in os.environ:
            # Without one, Ray writes a token to the home folder, which clusters without a token would refuse.
            variables["RAY_AUTH_TOKEN"] = TOKEN
    before = dict(os.environ)
    os.environ.update(variables | before)
    try:
        yield
    finally:
        for name in (*variables, "RAY_AUTH_MODE"):  # Ray sets the mode
            if name not in before:
                os.environ.pop(name, None)


def _init(ray: Any, address: str) -> None:
    """Connect to a cluster, or start one."""
    options: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.CRITICAL}
    if address == "local":
        options["include_dashboard"] = False
    if plugins := os.environ.get(VARIABLE):  # the workers import the same plugins
        options["runtime_env"] = {"env_vars": {VARIABLE: plugins}}
    handler = signal.getsignal(signal.SIGTERM)
    try:
        ray.init(address=address, **options)
    except Exception as error:
        raise connection_error(address, error) from error
    finally:
        # Ray's own handler of SIGTERM would exit with code 15.
        if threading.current_thread() is threading.main_thread() and handler is not None:
            signal.signal(signal.SIGTERM, handler)


def connection_error(address: str, error: Exception) -> AptoolError:
    """Convert an error of ``ray.init`` to one line."""
    expected = f"the head of a Ray cluster to answer there; {TOKEN_HINT}"
    if address == "auto":
        expected = f"a cluster on this machine, or RAY_ADDRESS; `--cluster local` starts one; {TOKEN_HINT}"
    elif address == "local":
        expected = "Ray to start; RAY_TMPDIR names a writable folder with a short path for its files"
    return AptoolError(f"--cluster {address}: {one_line(str(error))}: expected {expected}")
