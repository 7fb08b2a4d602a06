"""Random token ids in the shape of published collections, to measure speed."""

from pathlib import Path
from typing import NamedTuple

import numpy as np

from aptool.config import Recipe, load_recipe
from aptool.text.tokenizer import Tokens

VOCABULARY = 22_353  # InsuranceQA V1


PAPER = Path(__file__).resolve().parents[1] / "jobs" / "paper"


def system_recipe(name: str) -> Recipe:
    """The recipe of a preset, or of a file of ``jobs/paper``."""
    file = PAPER / f"{name}.toml"
    return load_recipe(str(file) if file.exists() else name)


class Workload(NamedTuple):
    """Questions, answers and the pairs to score."""

    questions: Tokens
    answers: Tokens
    pair_question: np.ndarray
    pair_answer: np.ndarray


def insuranceqa(scale: float, seed: int = 0) -> Workload:
    """InsuranceQA's test1: 1,800 questions of 7 words, 24,981 answers of 95 words, pools of 500 answers.

    ``scale`` applies to questions and answers, so that an answer is in about 36 pools at any scale.
    """
    generator = np.random.default_rng(seed)
    questions, answers = round(1800 * scale), max(500, round(24_981 * scale))
    pools = [generator.choice(answers, 500, replace=False) for _ in range(questions)]
    return Workload(
        texts(questions, 7, 0.35, generator),
        texts(answers, 95, 0.6, generator),
        np.repeat(np.arange(questions), 500),
        np.concatenate(pools),
    )


def wikiqa(scale: float = 1, seed: int = 0) -> Workload:
    """WikiQA's dev split: 126 questions of 7 words, each with 9 unshared answers of 25 words.

    ``scale`` applies to questions and answers.
    """
    generator = np.random.default_rng(seed)
    questions = round(126 * scale)
    return Workload(
        texts(questions, 7, 0.35, generator),
        texts(questions * 9, 25, 0.5, generator),
        np.repeat(np.arange(questions), 9),
        np.arange(questions * 9),
    )


def texts(count: int, mean: float, spread: float, generator: np.random.Generator) -> Tokens:
    """Texts with log-normal lengths and Zipf-distributed words."""
    lengths = (
        generator.lognormal(np.log(mean) - spread**2 / 2, spread, count).round().astype(np.int64).clip(1, 400)
    )
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    weights = 1 / np.arange(1, VOCABULARY - 1)
    ids = generator.choice(VOCABULARY - 2, offsets[-1], p=weights / weights.sum()) + 2
    return Tokens(ids.astype(np.int32), offsets)
