"""Conversion of Ray's errors to one line, and checks of a worker's node."""

import contextlib
import logging
import os
import socket
from collections.abc import Iterator
from pathlib import Path

import ray
import ray.data.exceptions

from aptool.environment import versions_of
from aptool.errors import AptoolError, error_with, first_line
from aptool.paths import Location
from aptool.plugins import hash_file, load_plugins

RESUME = "finished work is kept: run the same command again to resume"

# The user's limit for an execution of Ray Data without a completed batch.
NO_PROGRESS_VARIABLE = "RAY_DATA_EXECUTION_NO_PROGRESS_TIMEOUT_S"

# Packages with versions, and files of plugins with hashes, which must agree on all nodes.
Versions = tuple[tuple[str, str], ...]

# Ray Data's own errors are not RayErrors.
_RAY_ERRORS = (ray.exceptions.RayError, ray.data.exceptions.SystemException, SystemError)


@contextlib.contextmanager
def ray_failures(address: str, hint: str = "") -> Iterator[None]:
    """Convert errors of Ray to an ``AptoolError`` of one line; errors of aptool keep exit code and text.

    ``hint`` is a remedy if a process has died, such as one that was out of memory.
    """
    try:
        yield
    except AptoolError:
        raise
    except Exception as error:
        if isinstance(error, ray.data.exceptions.ExecutionTimeoutError):
            raise AptoolError(
                f"--cluster {address}: no progress within Ray Data's limit: expected a higher "
                f"{NO_PROGRESS_VARIABLE}, or -1 for no limit; {RESUME}"
            ) from error
        raised = innermost(error)
        if isinstance(raised, AptoolError):
            raise error_with(raised.exit_code, str(raised)) from error
        # Ray Data raises its own errors with a SystemException as their cause.
        if isinstance(error, _RAY_ERRORS) or isinstance(error.__cause__, ray.data.exceptions.SystemException):
            text = cause(error)
            if hint and isinstance(error, ray.exceptions.ActorDiedError | ray.exceptions.WorkerCrashedError):
                text += f" ({hint})"
            raise AptoolError(f"--cluster {address}: {text}; {RESUME}") from error
        raise


def innermost(error: BaseException) -> BaseException:
    """The exception that Ray's exceptions wrap."""
    while isinstance(getattr(error, "cause", None), BaseException):
        error = error.cause  # type: ignore[attr-defined]
    return error


def cause(error: BaseException) -> str:
    """The line of the innermost exception in a long message of Ray."""
    error = innermost(error)
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    raised = [line for line in lines if line.split(":")[0].endswith(("Error", "Exception"))]
    return raised[-1] if raised else first_line(error)


def last_log_lines(folder: str) -> str:
    """The last line of the newest log of a worker process on this node, or a text that there is none."""
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


def set_up_worker(start: Path, debug: bool = False) -> None:
    """Set the current folder of a worker, the base of relative paths, and the level of its log."""
    with contextlib.suppress(OSError):  # absolute paths need no current folder
        os.chdir(start)
    logging.getLogger("aptool").setLevel(logging.DEBUG if debug else logging.INFO)
