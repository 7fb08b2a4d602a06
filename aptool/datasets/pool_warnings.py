"""Warnings on pools that make a figure hard to read, one line each.

A pool with a single candidate has a perfect ranking whatever the model does; a question without a relevant
candidate counts 0 for every model; small pools give a random order a high figure.
"""

import logging
from collections.abc import Mapping
from dataclasses import dataclass

import polars as pl

from aptool.errors import counted

logger = logging.getLogger(__name__)

# A random order of five candidates, one of them relevant, has an expected MRR of 0.46.
SMALL_POOL = 5


@dataclass
class PoolCounts:
    """Counts over the pools of a split or a run.

    Attributes:
        labelled: whether relevance is known; if not, ``relevant`` and ``without_relevant`` say nothing.
        questions: pools.
        candidates: question-candidate pairs.
        relevant: relevant candidates in the pools.
        single: pools with a single candidate.
        without_relevant: pools without a relevant candidate.
    """

    labelled: bool = True
    questions: int = 0
    candidates: int = 0
    relevant: int = 0
    single: int = 0
    without_relevant: int = 0

    def add(self, candidates: int, relevant: int) -> None:
        """Counts one pool."""
        self.questions += 1
        self.candidates += candidates
        self.relevant += relevant
        self.single += candidates == 1
        self.without_relevant += relevant == 0

    @property
    def warnings(self) -> list[str]:
        """One line per finding, with its count."""
        if not self.questions:
            return []
        lines = []
        of_questions = f"of {counted(self.questions, 'question')}"
        if self.single:
            lines.append(f"{self.single:,} {of_questions} have a single candidate, so no order can be wrong")
        if self.labelled and not self.relevant:
            lines.append(f"none of the {counted(self.candidates, 'candidate')} is relevant")
        elif self.labelled and self.relevant == self.candidates:
            lines.append(
                f"all {counted(self.candidates, 'candidate')} are relevant, so no order can be wrong"
            )
        elif self.labelled and self.without_relevant:
            without = f"{self.without_relevant:,} {of_questions}"
            lines.append(f"{without} have no relevant candidate: any model scores 0 there")
        mean = self.candidates / self.questions
        if mean < SMALL_POOL:
            lines.append(f"mean pool size {mean:.1f} candidates: a random order already has high figures")
        return lines


def log_warnings(name: str, counts: PoolCounts) -> None:
    """Logs the warnings, each line beginning with ``name``."""
    for line in counts.warnings:
        logger.warning(f"{name}: warning: {line}")


def pool_counts(pairs: pl.DataFrame, qrels: pl.DataFrame | None) -> PoolCounts:
    """Counts over the pools of a run.

    Args:
        pairs: question_id, answer_id; each pair once.
        qrels: question_id, answer_id, relevance; questions that are not in it are left out. None: no labels.
    """
    if qrels is None:
        sizes = pairs.group_by("question_id").agg(size=pl.len(), relevant=pl.lit(0))
    else:
        relevant = qrels.filter(pl.col("relevance") > 0).select(
            "question_id", "answer_id", relevant=pl.lit(True)
        )
        judged = pairs.join(qrels.select("question_id").unique(), on="question_id", how="semi")
        marked = judged.join(relevant, on=["question_id", "answer_id"], how="left")
        sizes = marked.group_by("question_id").agg(size=pl.len(), relevant=pl.col("relevant").sum())
    counts = PoolCounts(labelled=qrels is not None)
    for size, relevant_candidates in sizes.select("size", "relevant").iter_rows():
        counts.add(size, relevant_candidates)
    return counts


def warn_of_runs(runs: Mapping[str, pl.DataFrame], qrels: pl.DataFrame) -> None:
    """Logs the warnings on the pools that runs rank; runs of the same pools are warned of once.

    Args:
        runs: name -> question_id, answer_id and further columns.
        qrels: question_id, answer_id, relevance.
    """
    logged: list[list[str]] = []
    for name, frame in runs.items():
        counts = pool_counts(frame, qrels)
        if counts.warnings not in logged:
            logged.append(counts.warnings)
            log_warnings(name, counts)
