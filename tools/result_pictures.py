"""Pictures of recorded results: cost against accuracy, answer lengths, learning curves."""

from collections.abc import Iterator, Mapping
from typing import Any

import polars as pl

from aptool.reporting.plots import plot_accuracy_by_length, plot_costs, plot_learning_curves, svg
from tools.result_tables import Document, learning_means

Point = dict[str, Any]


def pictures(results: Mapping[str, Document]) -> Iterator[tuple[str, str]]:
    """Charts of MAP against bytes per answer and pairs per second, by the name of the file."""
    rates = {row[0].split("`")[1]: row[1] for row in results["late-speed"]["tables"]["results"]["rows"]}
    titles = {
        "bytes_per_answer": "bytes per encoded answer",
        "pairs_per_second": "pairs scored per second, with encoded answers shared by pools",
    }
    charts = {**costs(results["late-zero"]), "fine-tuned": costs(results["late"])["wikiqa"]}
    for name, points in charts.items():
        data = [{**point, "pairs_per_second": value(rates.get(point["system"], ""))} for point in points]
        yield f"poolings-{name}", svg(plot_costs(pl.DataFrame(data), "MAP", titles))

    yield from curves(results)


def costs(result: Document) -> dict[str, list[Point]]:
    """MAP and bytes per answer of each pooling, by collection."""
    points: dict[str, list[Point]] = {}
    for system in result["systems"]:
        pooling = system["system"].removeprefix("zero-").removesuffix("-minilm")
        point = {
            "system": "attentive" if pooling == "ap" else pooling,
            "MAP": system["means"]["MAP"],
            "bytes_per_answer": system["bytes_per_answer"],
        }
        points.setdefault(system["collection"].partition("-")[0], []).append(point)
    return points


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
