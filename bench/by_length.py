"""Accuracy by the length of the relevant answer (figures 3 and 4 of the paper), over folds.

    python -m bench.by_length RUNS COLLECTION SYSTEM... --result FILE

RUNS is the output folder of ``aptool matrix``, COLLECTION a collection with folds in it. The accuracy (P@1)
is the mean over the seeds of a system. FILE is the result of the matrix (``bench.record``): it gets the table
``lengths``, which `make results` draws.
"""

from pathlib import Path
from typing import Any

import polars as pl

from aptool.data.collection import Collection
from aptool.documents import read_json
from aptool.evaluation.texts import length_groups
from aptool.reporting.charts import accuracy_by_length
from aptool.reporting.runs import ACCURACY
from bench.common import benchmark_parser, tables
from bench.record import question_means, read_result, write_result


def points(runs: Path, collection: str, systems: list[str]) -> list[dict[str, Any]]:
    """The accuracy of each system up to each length, in words."""
    table = read_json(runs / "table.json")
    name = f"{collection}-folds"
    pooled = Collection(runs / table["collections"][name]["path"])
    [split] = pooled.splits
    qrels = pooled.qrels(split)
    accuracy = {}
    for system in systems:
        of_system = [
            result
            for result in table["results"]
            if (result["collection"], result["system"]) == (name, system)
        ]
        accuracy[system] = question_means(runs, of_system, qrels.frame, [ACCURACY])
    groups = length_groups(pooled.pools(split), qrels)
    return accuracy_by_length(accuracy, groups).rename({"length": "words"}).to_dicts()


def main() -> None:
    """Write the table of a matrix."""
    parser = benchmark_parser(__doc__)
    parser.add_argument("runs", type=Path, help="output folder of `aptool matrix`")
    parser.add_argument("collection", help="name of a collection with folds")
    parser.add_argument("systems", nargs="+", help="names of systems")
    parser.add_argument("--result", type=Path, required=True, help="result of the matrix, a JSON file")
    options = parser.parse_args()
    rows = points(options.runs, options.collection, options.systems)
    print(pl.DataFrame(rows))
    result = read_result(options.result)
    lengths = {"lengths": tables(rows)["results"]}
    write_result(options.result, {**result, "tables": {**result.get("tables", {}), **lengths}})


if __name__ == "__main__":
    main()
