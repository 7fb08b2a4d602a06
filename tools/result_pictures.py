"""Pictures of recorded results: cost against accuracy, answer lengths, learning curves."""

from collections.abc import Iterator, Mapping

import polars as pl

from aptool.reporting.plots import plot_accuracy_by_length, plot_costs, plot_learning_curves, svg
from tools.result_tables import Document, learning_means


def pictures(results: Mapping[str, Document]) -> Iterator[tuple[str, str]]:
    """Charts of MAP against bytes per answer and pairs per second, by the name of the file."""
    rates = {row[0].split("`")[1]: row[1] for row in results["late-speed"]["tables"]["results"]["rows"]}
    sources = {
        "poolings-wikiqa": ("poolings-zero-shot", "wikiqa"),
        "poolings-trecqa": ("poolings-zero-shot", "trecqa"),
        "poolings-functions": ("poolings-zero-shot", "functions"),
        "poolings-fine-tuned": ("late-seeds", "wikiqa-seed-1"),
    }
    titles = {
        "bytes_per_answer": "bytes per encoded answer",
        "pairs_per_second": "pairs scored per second, with encoded answers shared by pools",
    }
    for name, (file, table) in sources.items():
        content = results[file]["tables"][table]
        accuracy, size = content["columns"].index("MAP"), content["columns"].index("bytes per answer")
        points = [
            {
                "system": row[0].split("`")[1],
                "MAP": value(row[accuracy]),
                "bytes_per_answer": value(row[size]),
                "pairs_per_second": value(rates.get(row[0].split("`")[1], "")),
            }
            for row in content["rows"]
        ]
        yield name, svg(plot_costs(pl.DataFrame(points), "MAP", titles))

    yield from curves(results)


def curves(results: Mapping[str, Document]) -> Iterator[tuple[str, str]]:
    """Figures 3 and 4 of the paper, and learning curves."""
    lengths = results["insuranceqa"]["tables"]["lengths"]
    points = pl.DataFrame(lengths["rows"], schema=lengths["columns"], orient="row")
    yield "insuranceqa-lengths", svg(plot_accuracy_by_length(points.rename({"words": "length"})))
    means = learning_means(results)
    points = means.unpivot(index=["collection", "questions"], variable_name="system").drop_nulls()
    points = points.pivot("collection", index=["system", "questions"], values="value")
    titles = {title: f"MAP, {title}" for title in points.columns[2:]}
    yield "learning-curves", svg(plot_learning_curves(points, titles))


def value(cell: str) -> float | None:
    return float(cell.replace(",", "")) if cell else None
