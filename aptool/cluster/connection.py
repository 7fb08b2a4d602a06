"""The connection to a Ray cluster: address, token, versions, and Ray's own output.

    with connect("auto") as cluster:
        cluster.check_room(4, Resources(cpus=1))
        ...

Ray itself retries an address without a cluster or a wrong token for up to 30 seconds, and reports it in many
lines. ``connect`` checks the port first, shortens Ray's retries, and raises an error of one line.
"""

import contextlib
import importlib
import logging
import os
import re
import signal
import socket
import sys
import tempfile
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, TextIO, cast

from aptool.cluster.resources import Cluster
from aptool.errors import AptoolError, UsageError, first_line
from aptool.plugins import VARIABLE
from aptool.version import install_command

# Connection timeout for the head's port.
TIMEOUT_SECONDS = 5.0

# Limit of Ray's retries: a retry takes about a second.
RETRIES = {"RAY_NUM_REDIS_GET_RETRIES": "5"}

# The first bytes of an HTTP/2 connection, as of gRPC (RFC 9113): a fixed text and an empty SETTINGS frame.
# The server responds with a SETTINGS frame, whose fourth byte is its type.
HTTP2_PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\0\0\0\4\0\0\0\0\0"
HTTP2_SETTINGS = b"\4"

ADDRESS = re.compile(r"(\[[0-9a-fA-F:]+\]|[\w.-]+):\d{1,5}")
TOKEN_HINT = "set RAY_AUTH_MODE=token and RAY_AUTH_TOKEN (or RAY_AUTH_TOKEN_PATH) to the cluster's token"


@contextlib.contextmanager
def connect(address: str = "", *, debug: bool = False, wait: float | None = None) -> Iterator[Cluster]:
    """Connect this process to a cluster, and disconnect when the block ends.

    An existing connection of this process (a worker, a test, a notebook) is used and stays open.

    Args:
        address: ``host:port``; ``auto`` for the cluster of this machine; or ``local`` for a new cluster on
            this machine, until the block ends. Default: the environment variable ``RAY_ADDRESS``, or
            ``auto``.
        debug: show Ray's own messages.
        wait: limit of seconds to wait for resources.
    """
    if not address and (default := os.environ.get("RAY_ADDRESS", "")):
        address = check_address(default, "RAY_ADDRESS")
    else:
        address = check_address(address or "auto")
    # Usage statistics are opt-in, also of a cluster that is started here.
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    with contextlib.nullcontext() if address == "local" else _defaults(RETRIES):
        if address != "local":
            _use_token()  # before the import of Ray, which reads the environment
        try:
            ray: Any = importlib.import_module("ray")
        except ImportError as error:
            raise AptoolError(f"--cluster needs Ray: {install_command('cluster')} ({error})") from error
        if ray.is_initialized():
            yield replace(_connected(ray, address), wait=wait)
            return
        if address == "auto":
            _check_last_head()
        elif address != "local":
            _check_port(address)
        with contextlib.nullcontext() if debug else _without_rays_stderr():
            silent = _init(ray, address, debug)
            with contextlib.nullcontext() if debug else _without_rays_stdout(silent):
                try:
                    yield replace(_connected(ray, address), wait=wait)
                finally:
                    # During shutdown, Ray prints its deduplicated messages on this thread.
                    silent.add(threading.current_thread())
                    ray.shutdown()


def check_address(address: str, source: str = "--cluster") -> str:
    """Return a valid address; ``source`` is the option or variable that errors name."""
    if address in ("auto", "local") or ADDRESS.fullmatch(address):
        return address
    if address.startswith(("http://", "https://", "ray://")):
        server = "client" if address.startswith("ray://") else "jobs"
        raise UsageError(
            f"{source} {address!r}: the address of Ray's {server} server; expected host:port of the head, or "
            "`ray job submit -- aptool ... --cluster`, which runs the command there"
        )
    remedy = "; to use the default address, put --cluster last" if source == "--cluster" else ""
    raise UsageError(f"{source} {address!r}: expected host:port, auto or local{remedy}")


def _connected(ray: Any, address: str) -> Cluster:
    context = ray.get_runtime_context()
    logs = Path(context.get_temp_dir()) / context.get_session_name() / "logs"
    return Cluster(context.gcs_address if address in ("auto", "local") else address, str(logs))


def _init(ray: Any, address: str, debug: bool) -> set[threading.Thread]:
    """Connect to a cluster, or start one; return the threads that Ray started in this process."""
    options: dict[str, Any] = {"log_to_driver": debug}
    if not debug:
        options["logging_level"] = logging.CRITICAL
    if address == "local":
        options["include_dashboard"] = False
    if plugins := os.environ.get(VARIABLE):  # the workers import the same plugins
        options["runtime_env"] = {"env_vars": {VARIABLE: plugins}}
    before = set(threading.enumerate())
    with tempfile.TemporaryFile("w+", errors="replace") as messages:
        try:
            with contextlib.nullcontext() if debug else _descriptor(2, messages), _same_sigterm():
                ray.init(address=address, **options)
        except Exception as error:
            messages.seek(0)
            token_missing = isinstance(error, ray.exceptions.AuthenticationError)
            raise connection_error(address, error, messages.read(), token_missing) from error
    return set(threading.enumerate()) - before


def connection_error(
    address: str, error: Exception, messages: str = "", token_missing: bool = False
) -> AptoolError:
    """Convert an error of ``ray.init`` to one line; Ray's stderr (``messages``) may contain the reason."""
    text = str(error)
    # "The cluster was started with: Ray: A Python: B This process ... was started with: Ray: C Python: D"
    versions = re.findall(r"^\s*(Ray|Python): (\S+)", text, re.MULTILINE)
    if len(versions) == 4:
        return _other_versions(address, dict(versions[:2]), dict(versions[2:]))
    if token_missing:
        return AptoolError(f"--cluster {address}: RAY_AUTH_MODE is token and there is no token: {TOKEN_HINT}")
    if re.search("unauthenticated|permission.?denied|invalidauthtoken", text + messages, re.IGNORECASE):
        return AptoolError(f"--cluster {address}: the token was refused: {TOKEN_HINT}")
    if address == "auto" and isinstance(error, ConnectionError):
        return AptoolError(
            "--cluster: no Ray cluster runs on this machine and RAY_ADDRESS is not set: expected one; "
            "`ray start --head` starts one, `--cluster local` uses this machine for this command alone"
        )
    if "home directory" in text:
        return AptoolError(
            f"--cluster {address}: the user has no home folder: expected HOME to name a folder"
        )
    if address == "local":
        expected = "Ray to start on this machine"
        if isinstance(error, OSError) or "AF_UNIX" in text:
            expected = "RAY_TMPDIR to name a writable folder with a short path, for the files of Ray"
        return AptoolError(f"--cluster local: {first_line(error)}: expected {expected}")
    return _unreachable(address, first_line(error))


def _other_versions(address: str, cluster: dict[str, str], local: dict[str, str]) -> AptoolError:
    """The error for a cluster with another Ray or Python, with the change to make on this machine."""
    differ, remedies = [], []
    if cluster["Ray"] != local["Ray"]:
        differ.append(f"Ray {cluster['Ray']} there, {local['Ray']} here")
        remedies.append(f"`python -m pip install ray=={cluster['Ray']}`")
    python = cluster["Python"].rpartition(".")[0]  # Ray accepts another patch version
    if python != local["Python"].rpartition(".")[0]:
        differ.append(f"Python {cluster['Python']} there, {local['Python']} here")
        remedies.append(f"an environment of Python {python}")
    return AptoolError(
        f"--cluster {address}: {'; '.join(differ)}: expected the same versions; "
        f"to match the cluster, use {' and '.join(remedies)} here"
    )


def _unreachable(address: str, reason: str) -> AptoolError:
    return AptoolError(f"--cluster {address}: {reason}: expected the head of a Ray cluster to answer there")


def _check_port(address: str) -> None:
    """Raise unless a gRPC server responds. Ray itself would wait long."""
    host, _, port = address.rpartition(":")
    try:
        with socket.create_connection((host.strip("[]"), int(port)), TIMEOUT_SECONDS) as connection:
            if os.environ.get("RAY_USE_TLS", "0") not in ("", "0"):
                return
            connection.sendall(HTTP2_PREFACE)
            with connection.makefile("rb") as stream:
                response = stream.read(4)  # waits for all of them
    except TimeoutError as error:
        raise _unreachable(address, "no answer") from error
    except (OSError, OverflowError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise _unreachable(address, reason.lower()) from error
    if response[3:4] != HTTP2_SETTINGS:
        raise _unreachable(address, "something other than Ray answers")


def _check_last_head() -> None:
    """Raise if the head that Ray started last on this machine has ended without `ray stop`.

    Ray itself would wait minutes for it, unless another head runs.
    """
    file = Path(os.environ.get("RAY_TMPDIR") or tempfile.gettempdir()) / "ray" / "ray_current_cluster"
    with contextlib.suppress(OSError):
        address = file.read_text(encoding="utf-8").strip()
        if ADDRESS.fullmatch(address) and not _runs_head():
            try:
                _check_port(address)
            except AptoolError as error:
                raise AptoolError(
                    f"--cluster: the cluster of this machine, {address}, does not answer (from {file}): "
                    "expected a running head; `ray stop` removes it, `ray start --head` starts another"
                ) from error


def _runs_head() -> bool:
    """Whether the head of a Ray cluster runs on this machine."""
    for entry in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            if entry.read_bytes().partition(b"\0")[0].endswith(b"/gcs_server"):
                return True
    return False


def _use_token() -> None:
    """Enable authentication if a token exists. Ray does so only for the address ``auto``."""
    path = os.environ.get("RAY_AUTH_TOKEN_PATH") or "~/.ray/auth_token"
    # Unlike Path.expanduser, this accepts a user without a home folder.
    if "RAY_AUTH_TOKEN" in os.environ or Path(os.path.expanduser(path)).is_file():  # noqa: PTH111
        os.environ.setdefault("RAY_AUTH_MODE", "token")


@contextlib.contextmanager
def _defaults(variables: dict[str, str]) -> Iterator[None]:
    """Set environment variables that are not set, while the block runs."""
    added = {name: value for name, value in variables.items() if name not in os.environ}
    os.environ.update(added)
    try:
        yield
    finally:
        for name in added:
            os.environ.pop(name, None)


@contextlib.contextmanager
def _same_sigterm() -> Iterator[None]:
    """Restore the handler of SIGTERM, which Ray replaces by an exit with code 15."""
    handler = signal.getsignal(signal.SIGTERM)
    try:
        yield
    finally:
        if threading.current_thread() is threading.main_thread() and handler is not None:
            signal.signal(signal.SIGTERM, handler)


@contextlib.contextmanager
def _without_rays_stderr() -> Iterator[None]:
    """Drop messages of Ray's C++ code on descriptor 2; ``sys.stderr`` still writes to the terminal."""
    sys.stderr.flush()
    before = sys.stderr
    with (
        os.fdopen(os.dup(2), "w", buffering=1, encoding=before.encoding) as terminal,
        Path(os.devnull).open("w") as nowhere,
        _descriptor(2, nowhere),
    ):
        if before is sys.__stderr__:  # a replacement does not write to descriptor 2
            sys.stderr = terminal
        try:
            yield
        finally:
            sys.stderr.flush()
            sys.stderr = before


@contextlib.contextmanager
def _descriptor(number: int, target: TextIO) -> Iterator[None]:
    """Redirect a file descriptor while the block runs."""
    saved = os.dup(number)
    try:
        os.dup2(target.fileno(), number)
        yield
    finally:
        os.dup2(saved, number)
        os.close(saved)


def _without_rays_stdout(dropped: set[threading.Thread]) -> contextlib.redirect_stdout[TextIO]:
    """Drop the output of Ray's threads on stdout, such as warnings about nodes."""
    return contextlib.redirect_stdout(cast(TextIO, _StreamWithout(sys.stdout, dropped)))


class _StreamWithout:
    """A stream without the output of some threads."""

    def __init__(self, stream: TextIO, dropped: set[threading.Thread]) -> None:
        self._stream = stream
        self._dropped = dropped

    def write(self, text: str) -> int:
        """Write text, unless the output of the calling thread is dropped."""
        if threading.current_thread() in self._dropped:
            return len(text)
        return self._stream.write(text)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)
