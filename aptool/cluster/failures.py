"""Errors of Ray as one line."""

import contextlib
from collections.abc import Iterator

import ray
import ray.data.exceptions

from aptool.errors import AptoolError, error_with, first_line

RESUME = "what is done is kept: run the same command again to resume"

# Ray Data's own errors are not RayErrors; Ray before 2.60 has no ExecutionTimeoutError.
_TIMEOUT: type[Exception] | tuple[()] = getattr(ray.data.exceptions, "ExecutionTimeoutError", ())
_RAY_ERRORS = (ray.exceptions.RayError, ray.data.exceptions.SystemException, SystemError)


@contextlib.contextmanager
def ray_failures(address: str) -> Iterator[None]:
    """Raise errors of Ray in this block as an ``AptoolError`` of one line.

    An ``AptoolError`` of a worker keeps its exit code and text.

    Args:
        address: the cluster's, for the line.
    """
    try:
        yield
    except AptoolError:
        raise
    except Exception as error:
        if isinstance(error, _TIMEOUT):
            raise AptoolError(
                f"--cluster {address}: no progress within Ray Data's limit: expected a higher "
                f"RAY_DATA_EXECUTION_NO_PROGRESS_TIMEOUT_S, or -1 for no limit; {RESUME}"
            ) from error
        raised = getattr(error, "cause", None)
        if isinstance(raised, AptoolError):
            raise error_with(raised.exit_code, str(raised)) from error
        # Ray Data raises errors of its own code with a SystemException as their cause.
        if isinstance(error, _RAY_ERRORS) or isinstance(error.__cause__, ray.data.exceptions.SystemException):
            raise AptoolError(f"--cluster {address}: {cause(error)}") from error
        raise


def cause(error: BaseException) -> str:
    """The line of Ray's long messages that gives the reason: that of the innermost exception."""
    while isinstance(getattr(error, "cause", None), BaseException):
        error = error.cause  # type: ignore[attr-defined]
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    raised = [line for line in lines if line.split(":")[0].endswith(("Error", "Exception"))]
    return raised[-1] if raised else first_line(error)
