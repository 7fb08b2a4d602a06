"""Conversion of Ray's errors to one line, and checks of a worker's node."""

import contextlib
import os
import socket
from collections.abc import Iterator
from pathlib import Path

import ray
import ray.data.exceptions

from aptool.cluster.resources import Cluster
from aptool.environment import versions_of
from aptool.errors import AptoolError, error_with, first_line
from aptool.paths import Location
from aptool.plugins import hash_file, load_plugins

MEMORY_HINT = "a smaller --tokens-per-batch takes less memory, and so do fewer --workers on a node"
RESUME = "finished work is kept: run the same command again to resume"

# The user's limit for an execution of Ray Data without a completed batch.
NO_PROGRESS_VARIABLE = "RAY_DATA_EXECUTION_NO_PROGRESS_TIMEOUT_S"

# Packages with versions, and files of plugins with hashes, which must agree on all nodes.
Versions = tuple[tuple[str, str], ...]

# Ray Data's own errors are not RayErrors.
_RAY_ERRORS = (ray.exceptions.RayError, ray.data.exceptions.SystemException, SystemError)


@contextlib.contextmanager
def ray_failures(cluster: Cluster) -> Iterator[None]:
    """Convert errors of Ray to an ``AptoolError`` of one line; errors of aptool keep exit code and text."""
    try:
        yield
    except AptoolError:
        raise
    except Exception as error:
        raised = innermost(error)
        if isinstance(raised, AptoolError):
            raise error_with(raised.exit_code, str(raised)) from error
        if isinstance(error, ray.data.exceptions.ExecutionTimeoutError):
            expected = f"a higher {NO_PROGRESS_VARIABLE}, or -1 for no limit"
            reason = f"no progress within Ray Data's limit: expected {expected}"
        elif isinstance(error, ray.exceptions.WorkerCrashedError):
            reason = (
                f"a worker process cannot start ({last_log_line(cluster.logs)}): expected `python -c 'import "
                f"ray, aptool'` to work there; logs in {cluster.logs}"
            )
        elif isinstance(error, ray.exceptions.ActorDiedError):
            reason = f"{cause(error)} If it was out of memory: {MEMORY_HINT}"
        # Ray Data raises its own errors with a SystemException as their cause.
        elif isinstance(error, _RAY_ERRORS) or isinstance(error.__cause__, _RAY_ERRORS):
            reason = cause(error)
        else:
            raise
        raise AptoolError(f"--cluster {cluster.address}: {reason}; {RESUME}") from error


def innermost(error: BaseException) -> BaseException:
    """The exception that Ray's exceptions wrap."""
    while isinstance(getattr(error, "cause", None), BaseException):
        error = error.cause  # type: ignore[attr-defined]
    return error


def cause(error: BaseException) -> str:
    """The line of the innermost exception in a long message of Ray."""
    if lost := getattr(error, "worker_failures", None):  # of a training, by rank
        return f"worker {min(lost)}: {cause(lost[min(lost)])}"
    error = innermost(error)
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    raised = [line for line in lines if line.split(":")[0].endswith(("Error", "Exception"))]
    return raised[-1] if raised else first_line(error)


def last_log_line(folder: str) -> str:
    """The last line in the logs of the worker processes of this node."""
    logs = [file for pattern in ("worker-*.err", "worker-*.out") for file in Path(folder).glob(pattern)]
    for file in sorted(logs, key=lambda file: file.stat().st_mtime, reverse=True):
        lines = file.read_text(errors="replace").split("\n")
        if text := next((line.strip() for line in reversed(lines) if line.strip(": \n")), ""):
            return f"{file.name}: {text}"
    return "its log is empty"


def host() -> str:
    """The address of this node and the first digits of its id, as in ``ray list nodes``."""
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


def check_shared(folder: Location) -> None:
    """Raise unless this node sees an output folder of the driver; a URL is not checked."""
    if isinstance(folder, Path) and not folder.is_dir():
        raise AptoolError(
            f"{folder}: not found on node {host()}: expected an output on storage that all nodes share"
        )


def change_folder(start: Path) -> None:
    """Set the current folder of a worker to that of the driver, the base of relative paths."""
    with contextlib.suppress(OSError):  # absolute paths need no current folder
        os.chdir(start)
