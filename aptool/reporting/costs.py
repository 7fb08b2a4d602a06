"""What the systems of a matrix cost, beside how well they rank: a table for charts."""

import polars as pl

from aptool.errors import InputError
from aptool.evaluation.values import MeasureValues
from aptool.reporting.runs import TABLE, Runs

# Columns of costs, with what they are called in charts.
COSTS = {"bytes_per_answer": "bytes kept of an answer", "pairs_per_second": "pairs scored in a second"}


def cost_table(runs: Runs, measure: str) -> pl.DataFrame:
    """The trained systems of a folder of runs.

    Args:
        runs: the folder.
        measure: one of those of its table.

    Returns:
        collection (str), system (str), the measure, `COSTS` and train_seconds (f64, means over seeds; null
        where not known), in the order of the table; systems without any of `COSTS` are left out.

    Raises:
        InputError: its table is not one of `aptool matrix`.
    """
    try:
        rows = [
            {
                "collection": str(line["collection"]),
                "system": str(line["system"]),
                measure: float(MeasureValues.from_any_names(line["means"])[measure]),
                **{name: None if line.get(name) is None else float(line[name]) for name in COSTS},
                "train_seconds": float(line["train_seconds"]),
            }
            for line in runs.lines
        ]
    except (KeyError, TypeError, ValueError, OverflowError, AttributeError) as error:
        expected = "the results of `aptool matrix`"
        raise InputError(runs.folder / TABLE, place="lines", value=repr(error), expected=expected) from error
    figures = dict.fromkeys((measure, *COSTS, "train_seconds"), pl.Float64)
    frame = pl.DataFrame(rows, schema={"collection": pl.String, "system": pl.String, **figures})
    return frame.filter(pl.any_horizontal(pl.col(name).is_not_null() for name in COSTS))
