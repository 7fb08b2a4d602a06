"""Messages of a training from workers to the driver, and conversion of Ray's errors to one line."""

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import ray
import ray.data.exceptions
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from aptool.cluster.board import MessageBoard
from aptool.cluster.resources import call_every
from aptool.errors import AptoolError, error_with, first_line

# Seconds between two polls of the board.
POLL_SECONDS = 0.3

RESUME = "finished work is kept: run the same command again to resume"

# The user's limit for an execution of Ray Data without a completed unit.
NO_PROGRESS_VARIABLE = "RAY_DATA_EXECUTION_NO_PROGRESS_TIMEOUT_S"

# Ray Data's own errors are not RayErrors.
_RAY_ERRORS = (ray.exceptions.RayError, ray.data.exceptions.SystemException, SystemError)


class Board:
    """A ``MessageBoard`` on the driver's node, where it lives as long as the driver."""

    def __init__(self) -> None:
        here = NodeAffinitySchedulingStrategy(ray.get_runtime_context().get_node_id(), soft=False)
        actor: Any = ray.remote(MessageBoard)
        self._actor = actor.options(num_cpus=0, scheduling_strategy=here).remote()

    def post(self, kind: str, value: Any) -> None:
        """Post a message without waiting."""
        self._actor.post.remote(kind, value)

    def has_error(self) -> bool:
        """Whether any worker has posted an error; False while the board does not respond."""
        try:
            return bool(ray.get(self._actor.has_error.remote(), timeout=30))
        except ray.exceptions.RayError:
            return False

    def flush(self) -> None:
        """Wait until the board has all messages of this process: it takes them in order."""
        with contextlib.suppress(ray.exceptions.RayError):
            ray.get(self._actor.post.remote("end", None), timeout=30)

    @contextlib.contextmanager
    def listening(self, receive: Callable[[str, Any], None]) -> Iterator[None]:
        """Poll while the block runs and once at its end; call ``receive`` with each kind and value."""

        def take() -> None:
            with contextlib.suppress(ray.exceptions.RayError):
                for kind, value in ray.get(self._actor.take.remote(), timeout=30):
                    receive(kind, value)

        try:
            with call_every(POLL_SECONDS, take):
                yield
        finally:
            take()


@contextlib.contextmanager
def ray_failures(address: str) -> Iterator[None]:
    """Convert errors of Ray to an ``AptoolError`` of one line; errors of aptool keep exit code and text."""
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
        raised = getattr(error, "cause", None)
        if isinstance(raised, AptoolError):
            raise error_with(raised.exit_code, str(raised)) from error
        # Ray Data raises its own errors with a SystemException as their cause.
        if isinstance(error, _RAY_ERRORS) or isinstance(error.__cause__, ray.data.exceptions.SystemException):
            raise AptoolError(f"--cluster {address}: {cause(error)}") from error
        raise


def cause(error: BaseException) -> str:
    """The line of the innermost exception in a long message of Ray."""
    while isinstance(getattr(error, "cause", None), BaseException):
        error = error.cause  # type: ignore[attr-defined]
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    raised = [line for line in lines if line.split(":")[0].endswith(("Error", "Exception"))]
    return raised[-1] if raised else first_line(error)
