"""The version of aptool, and the command to install its extras."""

import contextlib
from collections.abc import Iterator

from aptool.errors import AptoolError

__version__ = "0.3.0"

# Set to True with the first release on PyPI; tests/package/test_install_lines.py then lists the lines of the
# README and the docs to change.
RELEASED = False


def install_command(extra: str) -> str:
    """The command that installs an extra of aptool, for error messages."""
    if RELEASED:
        return f'`python -m pip install "aptool[{extra}]"`'
    return f'`python -m pip install ".[{extra}]"` in a copy of the aptool repository'


@contextlib.contextmanager
def requiring_torch(subject: str) -> Iterator[None]:
    """Convert a failed import of PyTorch to an error that names its extra.

    Args:
        subject: the command or function that needs PyTorch.
    """
    try:
        yield
    except ModuleNotFoundError as error:
        if error.name != "torch":
            raise
        raise AptoolError(f"{subject} needs PyTorch: {install_command('torch')}") from error
