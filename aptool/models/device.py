"""Which device a network runs on: the one place where a device is chosen."""

import torch

from aptool.errors import UsageError, first_line


def pick_device(name: str) -> torch.device:
    """The device of a name; ``auto`` is a GPU where there is one.

    Raises:
        UsageError: there is no such device here.
    """
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
        torch.empty(1, device=device)
    except (RuntimeError, AssertionError) as error:
        reason = first_line(error)
        raise UsageError(f"--device {name!r}: {reason}: expected auto, cpu or a GPU such as cuda") from error
    return device
