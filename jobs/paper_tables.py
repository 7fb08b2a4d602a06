"""Compare results with tables 3 to 5 of the paper: ``python jobs/paper_tables.py FOLDER``.

FOLDER is the output of ``aptool matrix jobs/reproduce.toml``; the tables also go to its ``paper.md``.
"""

import sys
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import click

from aptool.cli.tables import print_table
from aptool.documents import read_json
from aptool.evaluation.significance import mean_and_sd
from aptool.paths import location
from aptool.reporting.html import markdown_table

# Largest difference of the mean over seeds from the paper's value that counts as "close".
CLOSE = 0.01

# The systems that the paper cites, by the names of their presets.
CITATIONS = {
    "feng-2015": "Feng et al. 2015",
    "tan-2015": "Tan et al. 2015",
    "wang-nyberg-2015": "Wang & Nyberg 2015",
    "severyn-2015": "Severyn & Moschitti 2015",
    "wang-ittycheriah-2015": "Wang & Ittycheriah 2015",
    "yang-2015": "Yang et al. 2015",
    "yin-2015": "Yin et al. 2015, word embeddings only",
}


class PaperTable(NamedTuple):
    """A table of the paper.

    Attributes:
        title: number and data set.
        collections: names of the collections of the table.
        columns: split and measure of each column.
        systems: values of each system in the order of the columns, by its preset without ``-paper``.
    """

    title: str
    collections: tuple[str, ...]
    columns: tuple[tuple[str, str], ...]
    systems: dict[str, tuple[float, ...]]


TABLES = (
    PaperTable(
        "Table 3: InsuranceQA",
        ("insuranceqa-v1",),
        (("dev", "P@1"), ("test1", "P@1"), ("test2", "P@1")),
        {
            "feng-2015": (0.654, 0.653, 0.610),
            "tan-2015": (0.684, 0.681, 0.622),
            "qa-cnn": (0.616, 0.602, 0.561),
            "qa-bilstm": (0.666, 0.666, 0.637),
            "ap-cnn": (0.688, 0.698, 0.663),
            "ap-bilstm": (0.684, 0.717, 0.664),
        },
    ),
    PaperTable(
        "Table 4: TREC-QA, clean",
        ("trecqa", "trecqa-clean"),
        (("test", "MAP"), ("test", "MRR")),
        {
            "wang-nyberg-2015": (0.7134, 0.7913),
            "severyn-2015": (0.7460, 0.8080),
            "wang-ittycheriah-2015": (0.7460, 0.8200),
            "qa-bilstm": (0.6750, 0.7723),
            "qa-cnn": (0.7147, 0.8070),
            "ap-bilstm": (0.7132, 0.8032),
            "ap-cnn": (0.7530, 0.8511),
        },
    ),
    PaperTable(
        "Table 5: WikiQA",
        ("wikiqa",),
        (("test", "MAP"), ("test", "MRR")),
        {
            "yang-2015": (0.6520, 0.6652),
            "yin-2015": (0.6600, 0.6770),
            "qa-bilstm": (0.6557, 0.6695),
            "qa-cnn": (0.6701, 0.6822),
            "ap-bilstm": (0.6705, 0.6842),
            "ap-cnn": (0.6886, 0.6957),
        },
    ),
)


class Result(NamedTuple):
    """A result of ``table.json``: one system with one seed on one split.

    Attributes:
        published: name of the collection itself; ``collection`` is its name in the matrix.
        preset: preset of a trained system.
    """

    collection: str
    system: str
    seed: int
    measures: dict[str, float]
    published: str
    split: str
    preset: str | None


def paper_names(systems: Iterable[tuple[str | None, str]]) -> dict[str, str]:
    """Map systems to the names in `PaperTable.systems`.

    A trained system has the name of its preset: ``ap-cnn`` and ``ap-cnn-paper`` differ only in training. An
    untrained system, such as a fusion, has its own name; systems with the preset of that name are its parts.

    Args:
        systems: preset and name of each; the preset of an untrained system is None.
    """
    systems = list(systems)
    fused = {name for preset, name in systems if preset is None}
    in_paper = {name for table in TABLES for name in table.systems}
    names = {}
    for preset, system in systems:
        name = system if preset is None else preset.removesuffix("-paper")
        if name in in_paper and not (preset is not None and name in fused):
            names[system] = name
    return names


def whole_table(table: PaperTable, results: Sequence[Result]) -> list[list[str]]:
    """A header and the rows of a table: the values of the paper, then the results on every split."""
    names = paper_names((result.preset, result.system) for result in results)
    groups = by_system(result for result in results if result.published in table.collections)
    splits = dict.fromkeys(group[0].split for group in groups)
    measures = dict.fromkeys(measure for _, measure in table.columns)
    columns = [(split, measure) for split in splits for measure in measures]
    rows = [["system"]]
    rows[0] += [f"paper, {split} {measure}" for split, measure in table.columns]
    rows[0] += [f"{split} {measure}" for split, measure in columns]
    for name, values in table.systems.items():
        row = [CITATIONS.get(name, name), *(f"{value:.4f}" for value in values)]
        for split, measure in columns:
            means = [
                seed_mean(group, measure)
                for group in groups
                if names.get(group[0].system) == name
                and group[0].split == split
                and measure in group[0].measures
            ]
            row.append(" or ".join(means))
        rows.append(row)
    return rows


def comparisons(results: Sequence[Result]) -> list[list[str]]:
    """One row per system, split and measure that the paper reports, titles first.

    Dev is compared with the paper's test split if the paper has no dev value.
    """
    rows = [["collection", "system", "measure", "paper", "ours", "best seed", ""]]
    names = paper_names((result.preset, result.system) for result in results)
    for group in by_system(results):
        first = group[0]
        name = names.get(first.system)
        for table in TABLES:
            if first.published not in table.collections or name not in table.systems:
                continue
            columns = dict(zip(table.columns, table.systems[name], strict=True))
            split = first.split if any(split == first.split for split, _ in columns) else "test"
            for (paper_split, measure), paper in columns.items():
                if paper_split != split or measure not in first.measures:
                    continue
                best = max(group, key=lambda result: result.measures[measure])
                mean = mean_and_sd([result.measures[measure] for result in group]).mean
                rows.append(
                    [
                        *(first.collection, first.system, measure),
                        f"{paper:.4f}" + ("" if split == first.split else f" on {split}"),
                        seed_mean(group, measure),
                        f"{best.measures[measure]:.4f} (seed {best.seed})",
                        "OK" if mean >= paper else "close" if mean >= paper - CLOSE else "below",
                    ]
                )
    return rows


def values_per_seed(results: Sequence[Result]) -> list[list[str]]:
    """One row per trained system, split and measure, one column per seed, titles first."""
    trained = [result for result in results if result.preset is not None]
    seeds = sorted({result.seed for result in trained})
    rows = [["collection", "system", "measure", *(f"seed {seed}" for seed in seeds)]]
    for group in by_system(trained):
        measures = {result.seed: result.measures for result in group}
        for measure in group[0].measures:
            values = [f"{measures[seed][measure]:.4f}" if seed in measures else "" for seed in seeds]
            rows.append([group[0].collection, group[0].system, measure, *values])
    return rows


def by_system(results: Iterable[Result]) -> list[list[Result]]:
    """The seeds of each system on each collection."""
    groups: dict[tuple[str, str], list[Result]] = {}
    for result in results:
        groups.setdefault((result.collection, result.system), []).append(result)
    return list(groups.values())


def seed_mean(group: Sequence[Result], measure: str) -> str:
    """Mean ± standard deviation over seeds."""
    return mean_and_sd([result.measures[measure] for result in group]).text(len(group))


def main(folder: str) -> None:
    """Print the tables and write them to ``paper.md``."""
    entries = read_json(location(folder) / "table.json")["results"]
    results = [Result(*(entry[field] for field in Result._fields)) for entry in entries]
    published = {result.published for result in results}
    sections = [
        (f"{table.title}, the paper's values and ours", whole_table(table, results), 1)
        for table in TABLES
        if published.intersection(table.collections)
    ]
    if sections:
        title = "Compared with the paper, mean ± sd over seeds (OK: reached; close: within .01; below)"
        sections.append((title, comparisons(results), 3))
        sections.append(("Every seed", values_per_seed(results), 3))
    text = ""
    for title, rows, left in sections:
        click.echo(f"\n{title}")
        print_table(rows, left)
        text += f"{title}\n\n{markdown_table(rows, left)}\n"
    (location(folder) / "paper.md").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:])
