"""The figures of the paper (tables 3 to 5), and verdicts of ours against them."""

from typing import NamedTuple

# A figure that misses the paper's by at most this is close.
CLOSE = 0.01


class PaperFigures(NamedTuple):
    """The figures for one split of a published collection.

    Attributes:
        title: the split, for headings.
        questions: number of questions that the figures are means over.
        measures: trec_eval names of the measures.
        systems: figures of the paper's four systems, by preset.
        others: figures of the systems that the paper compares with, by citation.
    """

    title: str
    questions: int
    measures: tuple[str, ...]
    systems: dict[str, tuple[float, ...]]
    others: dict[str, tuple[float, ...]]

    def of_preset(self, preset: str | None) -> dict[str, float]:
        """The figures, by measure, of the system of a preset; empty if the paper does not have it.

        ``ap-cnn`` and ``ap-cnn-paper`` are the same system with different training.
        """
        figures = self.systems.get((preset or "").removesuffix("-paper"), ())
        return dict(zip(self.measures, figures, strict=False))


_WIKIQA = PaperFigures(
    "WikiQA test",
    243,
    ("map", "recip_rank"),
    {
        "qa-bilstm": (0.6557, 0.6695),
        "qa-cnn": (0.6701, 0.6822),
        "ap-bilstm": (0.6705, 0.6842),
        "ap-cnn": (0.6886, 0.6957),
    },
    {"Yang et al. 2015": (0.6520, 0.6652), "Yin et al. 2015, word embeddings only": (0.6600, 0.6770)},
)
_TRECQA = PaperFigures(
    "TREC-QA test, clean",
    68,
    ("map", "recip_rank"),
    {
        "qa-bilstm": (0.6750, 0.7723),
        "qa-cnn": (0.7147, 0.8070),
        "ap-bilstm": (0.7132, 0.8032),
        "ap-cnn": (0.7530, 0.8511),
    },
    {
        "Wang & Nyberg 2015": (0.7134, 0.7913),
        "Severyn & Moschitti 2015": (0.7460, 0.8080),
        "Wang & Ittycheriah 2015": (0.7460, 0.8200),
    },
)
_INSURANCEQA = {
    "qa-bilstm": (0.666, 0.666, 0.637),
    "qa-cnn": (0.616, 0.602, 0.561),
    "ap-bilstm": (0.684, 0.717, 0.664),
    "ap-cnn": (0.688, 0.698, 0.663),
}
_INSURANCEQA_OTHERS = {
    "Feng et al. 2015": (0.654, 0.653, 0.610),
    "Tan et al. 2015": (0.684, 0.681, 0.622),
}
_INSURANCEQA_SPLITS = {"dev": 1000, "test1": 1800, "test2": 1800}


def paper_figures(collection: str, split: str) -> PaperFigures | None:
    """The paper's figures for a split of a collection, by the collection's name; None if there are none."""
    if collection == "wikiqa" and split == "test":
        return _WIKIQA
    if collection in ("trecqa", "trecqa-clean") and split == "test":
        return _TRECQA
    if collection == "insuranceqa-v1" and split in _INSURANCEQA_SPLITS:
        place = list(_INSURANCEQA_SPLITS).index(split)
        return PaperFigures(
            f"InsuranceQA {split}",
            _INSURANCEQA_SPLITS[split],
            ("P_1",),
            {name: (figures[place],) for name, figures in _INSURANCEQA.items()},
            {name: (figures[place],) for name, figures in _INSURANCEQA_OTHERS.items()},
        )
    return None


def verdict(ours: float, paper: float) -> str:
    """``OK`` if ours reaches the paper's figure, ``close`` if it is within 0.01 of it, else ``below``."""
    if ours >= paper:
        return "OK"
    return "close" if ours >= paper - CLOSE else "below"
