"""The version of aptool, and the use of optional packages: errors name the command that installs them."""

import contextlib
import logging
from collections.abc import Iterator
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from aptool.errors import AptoolError

if TYPE_CHECKING:
    import pandas as pd
    import polars as pl

__version__ = "0.3.0"


def install_command(extra: str) -> str:
    """The command that installs an extra of aptool, for error messages; aptool is not on PyPI yet."""
    return f'`python -m pip install ".[{extra}]"` in a copy of the aptool repository'


@contextlib.contextmanager
def requiring_torch(subject: str) -> Iterator[None]:
    """Convert a failed import of PyTorch by ``subject`` to an error that names its extra."""
    try:
        yield
    except ModuleNotFoundError as error:
        if error.name != "torch":
            raise
        raise AptoolError(f"{subject} needs PyTorch: {install_command('torch')}") from error


def require(package: str, *, purpose: str, extra: str) -> Any:
    """Import a package of an extra, with the progress bars and retry messages of Hugging Face turned off.

    Without the package, the error says that ``purpose`` needs it.
    """
    try:
        module: Any = import_module(package)
    except ImportError as error:
        raise AptoolError(_missing(package, purpose, extra)) from error
    if package == "transformers":
        module.logging.set_verbosity_error()
        module.logging.disable_progress_bar()
    logging.getLogger("huggingface_hub").setLevel(logging.ERROR)  # a line per retry
    return module


def check_installed(package: str, *, purpose: str, extra: str) -> None:
    """Check that an optional package is installed, without importing it; see `require`."""
    if find_spec(package) is None:
        raise AptoolError(_missing(package, purpose, extra))


class Tabular:
    """A result with rows and columns."""

    def to_polars(self) -> "pl.DataFrame":
        """Return the rows as a polars frame."""
        raise NotImplementedError

    def to_pandas(self) -> "pd.DataFrame":
        """Convert the rows and columns of ``to_polars`` to a pandas frame; raise if pandas is missing."""
        try:
            return self.to_polars().to_pandas()
        except ModuleNotFoundError as error:
            raise AptoolError("pandas is not installed: `pip install pandas`") from error

    def _repr_html_(self) -> str:
        """The first and the last rows as a table, in a notebook."""
        return self.to_polars()._repr_html_()


def _missing(package: str, purpose: str, extra: str) -> str:
    return f"{purpose} needs {package}: {install_command(extra)}"
