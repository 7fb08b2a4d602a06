"""Texts and pairs of texts as arguments: checked, and each distinct text once."""

from collections.abc import Sequence

import numpy as np

from aptool.errors import InputError
from aptool.library.arguments import check_list, check_text


def check_texts(name: str, texts: object) -> list[str]:
    """A list of texts, which may be empty.

    Raises:
        InputError: an item is no text.
    """
    items = check_list(name, texts, "a list of texts", empty=True)
    return [check_text(name, text, f"item {number}") for number, text in enumerate(items)]


def check_pairs(pairs: object) -> tuple[list[str], np.ndarray, list[str]]:
    """The distinct questions of some pairs, (pairs,) int64 the question of each pair, and its answer.

    Raises:
        InputError: an item is no pair of texts.
    """
    expected = "pairs of texts (question, answer)"
    questions: list[str] = []
    answers: list[str] = []
    for number, pair in enumerate(check_list("pairs", pairs, f"a list of {expected}", empty=True)):
        place = f"item {number}"
        if isinstance(pair, str | bytes) or not isinstance(pair, Sequence) or len(pair) != 2:
            raise InputError("pairs", place=place, value=pair, expected="a pair of texts (question, answer)")
        questions.append(check_text("pairs", pair[0], f"{place}, question"))
        answers.append(check_text("pairs", pair[1], f"{place}, answer"))
    distinct, rows = distinct_texts(questions)
    return distinct, rows, answers


def distinct_texts(texts: list[str]) -> tuple[list[str], np.ndarray]:
    """The distinct texts in order of appearance, and (n,) int64 the row of each text among them."""
    rows = {text: row for row, text in enumerate(dict.fromkeys(texts))}
    return list(rows), np.array([rows[text] for text in texts], dtype=np.int64)
