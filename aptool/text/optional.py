"""The ``transformers`` package, an extra: how it is imported, and how it is asked for what others publish."""

import logging
from importlib import import_module
from typing import Any

from aptool.errors import AptoolError

# Without a word from us it would ask the user whether to run code that comes with a network.
SAFELY = {"trust_remote_code": False}


def library(purpose: str, install: str) -> Any:
    """The package, told to keep silent.

    Args:
        purpose: what needs it.
        install: the command that installs it.

    Raises:
        AptoolError: it is not installed.
    """
    try:
        transformers: Any = import_module("transformers")  # an extra, so not there to be type-checked
    except ImportError as error:
        raise AptoolError(f"{purpose} needs transformers: {install}") from error
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    logging.getLogger("huggingface_hub").setLevel(logging.ERROR)  # a line for each time that it tries again
    return transformers
