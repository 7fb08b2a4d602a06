"""Results as tables: from polars to pandas."""

from typing import TYPE_CHECKING

import polars as pl

from aptool.errors import AptoolError

if TYPE_CHECKING:
    import pandas as pd


class Tabular:
    """A result with rows and columns."""

    def to_polars(self) -> pl.DataFrame:
        """Return the rows as a polars frame."""
        raise NotImplementedError

    def to_pandas(self) -> "pd.DataFrame":
        """Convert the rows and columns of ``to_polars`` to a pandas frame; raise if pandas is missing."""
        try:
            return self.to_polars().to_pandas()
        except ModuleNotFoundError as error:
            raise AptoolError("pandas is not installed: `pip install pandas`") from error
