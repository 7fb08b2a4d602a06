"""Features of Ray that not every supported version has: see ``cluster`` in ``pyproject.toml``."""

import os

import ray.data
import ray.data.exceptions

# Ray Data's limit for an execution without a completed unit, and its error. Ray before 2.58 has neither.
NO_PROGRESS = "execution_no_progress_timeout_s"
NO_PROGRESS_VARIABLE = "RAY_DATA_EXECUTION_NO_PROGRESS_TIMEOUT_S"
NO_PROGRESS_ERROR: type[Exception] | tuple[()] = getattr(ray.data.exceptions, "ExecutionTimeoutError", ())


def lift_time_limit(context: ray.data.DataContext) -> None:
    """Lift Ray Data's limit of 30 minutes without progress, unless the user has set one."""
    default = getattr(ray.data.DataContext, NO_PROGRESS, None)
    is_default = getattr(context, NO_PROGRESS, None) == default and NO_PROGRESS_VARIABLE not in os.environ
    if default is not None and is_default:
        setattr(context, NO_PROGRESS, -1)


def is_preempted() -> bool:
    """Whether a node of this training is about to be taken away; False with Ray before 2.58."""
    import ray.train

    get_info = getattr(ray.train, "get_preemption_info", None)
    return get_info is not None and get_info() is not None
