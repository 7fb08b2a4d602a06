"""What all workers share: their start, errors of Ray as one line, and checks of a worker's node."""

import contextlib
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import ray
import ray.data.exceptions

from aptool.cluster.connection import Cluster, Resources, Wait
from aptool.environment import versions_of
from aptool.errors import AptoolError, error_with, first_line
from aptool.paths import Location
from aptool.plugins import hash_file, load_plugins

T = TypeVar("T")

MEMORY_HINT = "a smaller --tokens-per-batch, or fewer --workers on a node"
RESUME = "finished work is kept: run the same command again to resume"

# The user's limit for an execution of Ray Data without a completed batch.
NO_PROGRESS_VARIABLE = "RAY_DATA_EXECUTION_NO_PROGRESS_TIMEOUT_S"

# Ray Data's own errors are not RayErrors.
_RAY_ERRORS = (ray.exceptions.RayError, ray.data.exceptions.SystemException, SystemError)


def first_task(cluster: Cluster, each: Resources, function: Callable[..., T], *arguments: Any) -> T:
    """Run a function on a worker, before all others start: raise at once if workers cannot start."""
    wait = Wait(cluster, 1, each)
    wait.poll(has_begun=False)
    needs: dict[str, Any] = {"num_cpus": each.cpus, "num_gpus": each.gpus, "memory": each.memory or None}
    remote: Any = ray.remote(max_retries=0, **needs)(function)
    task = remote.remote(*arguments)
    while not ray.wait([task], timeout=1.0)[0]:  # signals interrupt only a wait with a timeout
        wait.poll(has_begun=False)
    with ray_failures(cluster):
        result: T = ray.get(task)
    return result


@contextlib.contextmanager
def ray_failures(cluster: Cluster, *more: type[Exception]) -> Iterator[None]:
    """Convert errors of Ray to an ``AptoolError`` of one line; errors of aptool keep exit code and text.

    ``more`` are further types of Ray's errors.
    """
    try:
        yield
    except Exception as error:
        inner = innermost(error)
        if isinstance(inner, AptoolError):  # Ray adds lines to its text
            raise error_with(inner.exit_code, first_line(inner)) from error
        if isinstance(error, ray.data.exceptions.ExecutionTimeoutError):
            expected = f"a higher {NO_PROGRESS_VARIABLE}, or -1 for no limit"
            reason = f"no progress within Ray Data's limit: expected {expected}"
        elif isinstance(error, ray.exceptions.WorkerCrashedError):
            logs = Path(cluster.logs).glob("python-core-worker-*.log")  # of workers on this machine
            newest_first = sorted(logs, key=os.path.getmtime, reverse=True)
            raised = (_raised(log.read_text(errors="replace")) for log in newest_first)
            reason = f"a worker process cannot start: {next(filter(None, raised), f'see {cluster.logs}')}"
        elif isinstance(error, ray.exceptions.ActorDiedError):
            module, _, text = cause(error).partition("Error: ")
            if module.startswith("aptool.errors."):  # raised by the constructor
                raise AptoolError(text) from error
            reason = f"{cause(error)} If it was out of memory: expected {MEMORY_HINT}"
        # Ray Data raises its own errors with a SystemException as their cause.
        elif isinstance(error, (*_RAY_ERRORS, *more)) or isinstance(error.__cause__, _RAY_ERRORS):
            reason = cause(error)
        else:
            raise
        raise AptoolError(f"--cluster {cluster.address}: {reason}; {RESUME}") from error


def innermost(error: BaseException) -> BaseException:
    """The exception that Ray's exceptions wrap."""
    wrapped = getattr(error, "cause", None) or getattr(error, "controller_failure", None)
    return innermost(wrapped) if isinstance(wrapped, BaseException) else error


def cause(error: BaseException) -> str:
    """The line of the innermost exception in a long message of Ray."""
    if lost := getattr(error, "worker_failures", None):  # of a training, by rank
        return f"worker {min(lost)}: {cause(lost[min(lost)])}"
    error = innermost(error)
    return _raised(str(error)) or first_line(error)


def _raised(text: str) -> str:
    """The last line of an exception in a text, such as ``ValueError: ...``, or an empty text."""
    lines = [line.strip() for line in reversed(text.splitlines())]
    return next((line for line in lines if line.split(":")[0].endswith(("Error", "Exception"))), "")


def host() -> str:
    """The address of this node and the first digits of its id, as in ``ray list nodes``."""
    return f"{ray.util.get_node_ip_address()} ({ray.get_runtime_context().get_node_id()[:8]})"


def check_worker(start: Path, versions: dict[str, str], folder: Location) -> None:
    """Set the current folder to that of the driver, the base of relative paths, and check this node.

    Raises:
        AptoolError: versions of packages or hashes of plugins differ from those of the driver, or this node
            does not see ``folder``, the driver's folder of unfinished work. A URL is not checked.
    """
    with contextlib.suppress(OSError):  # absolute paths need no current folder
        os.chdir(start)
    load_plugins()
    differ = []
    for name, here in versions.items():
        there = hash_file(name) if name.endswith(".py") else versions_of(name).get(name)
        if there != here:
            differ.append(f"{name} {there or 'none'} there, {here} here")
    if differ:
        raise AptoolError(f"{'; '.join(differ)}: expected the same versions and plugins")
    if isinstance(folder, Path) and not folder.is_dir():
        raise AptoolError(f"{folder}: not found: expected an output on storage that all nodes share")
