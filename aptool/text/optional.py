"""Packages that only some features need: they come with an extra of aptool and are imported on first use."""

import logging
from importlib import import_module
from importlib.util import find_spec
from typing import Any

from aptool.errors import AptoolError
from aptool.version import install_command

# Otherwise transformers asks the user whether to run code that comes with a network.
SAFELY = {"trust_remote_code": False}


def require(package: str, *, purpose: str, extra: str) -> Any:
    """Imports an optional package; progress bars and retry messages of the Hugging Face libraries are off.

    Args:
        package: its import name, such as ``transformers``.
        purpose: what needs it, the subject of the error.
        extra: the extra of aptool that installs it.

    Raises:
        AptoolError: it is not installed; the message says how to install it.
    """
    try:
        module: Any = import_module(package)  # an extra, so perhaps not there to be type-checked
    except ImportError as error:
        raise AptoolError(_missing(package, purpose, extra)) from error
    if package == "transformers":
        module.logging.set_verbosity_error()
        module.logging.disable_progress_bar()
    logging.getLogger("huggingface_hub").setLevel(logging.ERROR)  # one line for each retry
    return module


def check_installed(package: str, *, purpose: str, extra: str) -> None:
    """Checks that an optional package is installed, without importing it.

    Raises:
        AptoolError: it is not; the message is that of ``require``.
    """
    if find_spec(package) is None:
        raise AptoolError(_missing(package, purpose, extra))


def _missing(package: str, purpose: str, extra: str) -> str:
    return f"{purpose} needs {package}: {install_command(extra)}"
