"""The connection to a Ray cluster, with errors of one line."""

import contextlib
import importlib
import logging
import os
import re
import secrets
import signal
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from aptool.cluster.resources import Cluster
from aptool.errors import AptoolError, UsageError, one_line
from aptool.plugins import VARIABLE
from aptool.version import install_command

ADDRESS = re.compile(r"(\[[0-9a-fA-F:]+\]|[\w.-]+):\d{1,5}")

# The token of the clusters that this process starts: Ray reads a token once per process.
TOKEN = secrets.token_hex(16)
TOKEN_HINT = "set RAY_AUTH_MODE=token, and RAY_AUTH_TOKEN to the token"


@contextlib.contextmanager
def connect(address: str = "", *, debug: bool = False, wait: float | None = None) -> Iterator[Cluster]:
    """Connect this process to a cluster, and disconnect when the block ends.

    An existing connection of this process (a worker, a test, a notebook) is used and stays open.

    Args:
        address: ``host:port``; ``auto`` for the cluster of this machine; or ``local`` for a new cluster on
            this machine, until the block ends. Default: the environment variable ``RAY_ADDRESS``, or
            ``auto``.
        debug: show Ray's own messages.
        wait: limit of seconds to wait for nodes with room.
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
            if not debug:
                opened.enter_context(_without_rays_output())
            opened.callback(ray.shutdown)
            _init(ray, address, debug)
        context = ray.get_runtime_context()
        logs = Path(context.get_temp_dir()) / context.get_session_name() / "logs"
        yield Cluster(context.gcs_address if address in ("auto", "local") else address, str(logs), wait)


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


@contextlib.contextmanager
def _variables(address: str) -> Iterator[None]:
    """Set variables of Ray in the environment while the block runs, unless the user has set them."""
    variables = {"RAY_USAGE_STATS_ENABLED": "0"}  # opt-in, also of a cluster that is started here
    if address != "local":
        variables["RAY_NUM_REDIS_GET_RETRIES"] = "5"  # attempts to reach the head; one takes a second
    else:
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


def _init(ray: Any, address: str, debug: bool) -> None:
    """Connect to a cluster, or start one."""
    options: dict[str, Any] = {"log_to_driver": debug}
    if not debug:
        options["logging_level"] = logging.CRITICAL
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
    expected = f"the head of a Ray cluster to answer there; if it requires a token, {TOKEN_HINT}"
    if address == "auto":
        expected = (
            "a cluster on this machine, or RAY_ADDRESS; `ray start --head` starts one, `--cluster local` one "
            f"for this command alone; if it requires a token, {TOKEN_HINT}"
        )
    elif address == "local":
        expected = "Ray to start; RAY_TMPDIR names a writable folder with a short path for its files"
    return AptoolError(f"--cluster {address}: {one_line(str(error))}: expected {expected}")
