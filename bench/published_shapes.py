"""Sizes of published collections: numbers of questions and answers, and distributions of lengths."""

from dataclasses import dataclass, replace

import numpy as np

from bench.made_up_words import NOT_OF_TOPICS

KEYWORDS = 6  # per question


@dataclass(frozen=True)
class Sizes:
    """Sizes of a split.

    Attributes:
        questions: number of questions.
        answers: number of answers in the pools; only relevant answers if pools share answers.
        relevant: number of relevant answers.
    """

    questions: int
    answers: int
    relevant: int


@dataclass(frozen=True)
class CollectionShape:
    """Sizes of a published collection.

    Attributes:
        splits: sizes of the splits.
        shared_pool: number of candidates per pool outside ``train``, sampled from all answers; None if pools
            do not share answers.
        question_length: mean, and standard deviation of the logarithm.
        answer_length: mean, and standard deviation of the logarithm.
        longest: maximum length of a question, and of an answer.
        pool_spread: standard deviation of the logarithm of the number of candidates.
        relevant_spread: standard deviation of the logarithm of the number of relevant answers.
        vocabulary: number of words.
        topics: number of topics.
    """

    splits: dict[str, Sizes]
    shared_pool: int | None
    question_length: tuple[float, float]
    answer_length: tuple[float, float]
    longest: tuple[int, int]
    pool_spread: float
    relevant_spread: float
    vocabulary: int
    topics: int


# Splits and mean lengths are published (dos Santos et al. 2016, table 1; Feng et al. 2015). Spreads were
# measured on the published training and development files.
SHAPES = {
    "insuranceqa": CollectionShape(
        splits={
            "train": Sizes(12_887, 18_540, 18_540),
            "dev": Sizes(1_000, 1_454, 1_454),
            "test1": Sizes(1_800, 2_493, 2_493),
            "test2": Sizes(1_800, 2_494, 2_494),
        },
        shared_pool=500,
        question_length=(7.15, 0.26),
        answer_length=(95.0, 0.55),
        longest=(56, 1_200),
        pool_spread=0.42,
        relevant_spread=0.42,
        vocabulary=22_352,
        topics=150,
    ),
    "trecqa": CollectionShape(
        splits={
            "train": Sizes(1_162, 53_313, 6_299),
            "dev": Sizes(65, 1_117, 205),
            "test": Sizes(68, 1_442, 248),
        },
        shared_pool=None,
        question_length=(8.5, 0.33),
        answer_length=(28.9, 0.49),
        longest=(33, 261),
        pool_spread=1.1,
        relevant_spread=0.9,
        vocabulary=57_878,
        topics=300,
    ),
    "wikiqa": CollectionShape(
        splits={
            "train": Sizes(873, 8_672, 1_040),
            "dev": Sizes(126, 1_130, 140),
            "test": Sizes(243, 2_352, 293),
        },
        shared_pool=None,
        question_length=(6.3, 0.3),
        answer_length=(22.8, 0.56),
        longest=(19, 166),
        pool_spread=0.71,
        relevant_spread=0.3,
        vocabulary=30_239,
        topics=300,
    ),
}


def scaled(shape: CollectionShape, scale: float) -> CollectionShape:
    """The shape with ``scale`` times the questions and answers; at least one question per split."""
    splits = {}
    for split, sizes in shape.splits.items():
        questions = max(1, round(sizes.questions * scale))
        relevant = max(questions, round(sizes.relevant * scale))
        nonrelevant = (
            max(questions, round((sizes.answers - sizes.relevant) * scale))
            if sizes.answers > sizes.relevant
            else 0
        )
        splits[split] = Sizes(questions, relevant + nonrelevant, relevant)
    topics = max(4, round(shape.topics * scale**0.5))
    # A topic needs enough words for keywords and their synonyms.
    vocabulary = max(NOT_OF_TOPICS + 8 * KEYWORDS * topics, round(shape.vocabulary * scale**0.5))
    return replace(shape, splits=splits, vocabulary=vocabulary, topics=topics)


def spread_sizes(total: int, count: int, spread: float, least: int, rng: np.random.Generator) -> np.ndarray:
    """(count,) log-normal integers of at least ``least``, with the sum ``total``."""
    if total < count * least:
        raise ValueError(f"{count} numbers of at least {least} do not add up to {total}")
    weights = np.exp(spread * rng.standard_normal(count))
    low, high = 0.0, float(total)
    for _ in range(100):  # bisection for the factor with the sum ``total``
        middle = (low + high) / 2
        if np.maximum(np.rint(weights * middle), least).sum() > total:
            high = middle
        else:
            low = middle
    sizes = np.maximum(np.rint(weights * low), least).astype(np.int64)
    short = total - int(sizes.sum())
    sizes[:] += short // count
    sizes[rng.permutation(count)[: short % count]] += 1
    return sizes
