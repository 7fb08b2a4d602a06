"""The figures of the paper (tables 3 to 5), and verdicts of ours against them."""

from collections.abc import Iterable
from typing import NamedTuple

# A figure that misses the paper's by at most this is close.
CLOSE = 0.01

# The systems that the paper compares its own with, by the names of their presets.
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
        number: of the table.
        title: the data set.
        collections: names of the collections that its figures are on.
        questions: how many questions each split has.
        columns: split and measure (trec_eval's name) of each column.
        systems: the figures of each system in the order of the columns, by its preset without ``-paper``.
    """

    number: int
    title: str
    collections: tuple[str, ...]
    questions: dict[str, int]
    columns: tuple[tuple[str, str], ...]
    systems: dict[str, tuple[float, ...]]

    @property
    def measures(self) -> tuple[str, ...]:
        """The distinct measures of the columns."""
        return tuple(dict.fromkeys(measure for _, measure in self.columns))


class PaperFigures(NamedTuple):
    """The figures for one split of a published collection.

    Attributes:
        title: the split, for headings.
        questions: number of questions that the figures are means over.
        measures: names of the measures.
        systems: figures of the systems, by preset.
    """

    title: str
    questions: int
    measures: tuple[str, ...]
    systems: dict[str, tuple[float, ...]]

    def of_system(self, name: str | None) -> dict[str, float]:
        """The figures, by measure, of a system by its name in the tables; empty if there are none."""
        figures = self.systems.get(name, ()) if name is not None else ()
        return dict(zip(self.measures, figures, strict=False))


TABLES = (
    PaperTable(
        3,
        "InsuranceQA",
        ("insuranceqa-v1",),
        {"dev": 1000, "test1": 1800, "test2": 1800},
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
        4,
        "TREC-QA, clean",
        ("trecqa", "trecqa-clean"),
        {"test": 68},
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
        5,
        "WikiQA",
        ("wikiqa",),
        {"test": 243},
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


def paper_names(systems: Iterable[tuple[str | None, str]]) -> dict[str, str]:
    """The names in `PaperTable.systems` that the systems of some results stand for.

    A system stands for the one that its preset is named after: ``ap-cnn`` and ``ap-cnn-paper`` are the same
    with different training. An untrained system, such as a fusion, stands for the one that it is called; the
    systems trained by that preset are then its parts, and stand for none.

    Args:
        systems: preset and name of each; the preset is None for an untrained one.
    """
    systems = list(systems)
    known = {name for table in TABLES for name in table.systems}
    fused = {name for preset, name in systems if preset is None}
    stands = {name: name if preset is None else preset.removesuffix("-paper") for preset, name in systems}
    return {
        name: stands[name]
        for preset, name in systems
        if stands[name] in known and not (preset is not None and stands[name] in fused)
    }


def paper_figures(collection: str, split: str) -> PaperFigures | None:
    """The paper's figures for a split of a collection, by the collection's name; None if there are none."""
    for table in TABLES:
        places = [place for place, (own, _) in enumerate(table.columns) if own == split]
        if collection in table.collections and places:
            return PaperFigures(
                f"{table.title}, {split}",
                table.questions[split],
                tuple(table.columns[place][1] for place in places),
                {
                    system: tuple(figures[place] for place in places)
                    for system, figures in table.systems.items()
                },
            )
    return None


def verdict(ours: float, paper: float) -> str:
    """``OK`` if ours reaches the paper's figure, ``close`` if it is within 0.01 of it, else ``below``."""
    if ours >= paper:
        return "OK"
    return "close" if ours >= paper - CLOSE else "below"
