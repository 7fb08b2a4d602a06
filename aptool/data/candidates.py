"""Candidates for questions that have only their own answers: answers of the other questions of the split.

Takes the pools of a split, and returns them with more candidates. Equal answers are one candidate, which is
relevant for each question that has the answer.
"""

from collections.abc import Iterable, Iterator

import numpy as np

from aptool.data.importing import ANSWERS_ADDED, SplitPools
from aptool.data.values import comparable
from aptool.data.writing import LabelledPool
from aptool.errors import InputError


def add_candidates(
    content: SplitPools,
    pool_size: int | None = None,
    seed: int = 0,
    *,
    has_answer_ids: bool,
    shared: Iterable[tuple[str, str]] = (),
) -> Iterator[LabelledPool]:
    """Add answers of other questions to each pool, in the order in which the source has the answers.

    Pools get all answers, or answers drawn at random up to ``pool_size`` candidates. Without ids of the
    source, a candidate is numbered by the first occurrence of its answer in the split. ``shared`` are the ids
    and texts of answers that need not be in a pool.
    """
    answers = _Answers(content)
    for answer_id, text in shared:
        answers.number(answer_id, text, f"answer {answer_id!r}")
    labelled = [(pool, answers.labels(pool)) for pool in content.pools]
    random = np.random.default_rng(seed)
    for pool, labels in labelled:
        if not labels:  # a question without an answer, which the import drops and counts
            yield pool
            continue
        if pool_size is None:
            numbers = list(range(len(answers.texts)))
        else:
            size = min(pool_size + len(labels), len(answers.texts))
            drawn = random.choice(len(answers.texts), size, replace=False).tolist()
            others = [number for number in drawn if number not in labels]
            numbers = sorted([*labels, *others[: max(pool_size - len(labels), 0)]])
        if has_answer_ids:
            ids = [answers.ids[number] for number in numbers]
        else:
            ids = [f"{pool.question_id}-{number}" for number in numbers]
        relevance = {name: labels.get(number, 0) for name, number in zip(ids, numbers, strict=True)}
        texts = [answers.texts[number] for number in numbers]
        if content.counts is not None:
            content.counts[ANSWERS_ADDED] = content.counts.get(ANSWERS_ADDED, 0) + len(numbers) - len(labels)
        yield pool._replace(answer_ids=ids, texts=texts, relevance=relevance)


class _Answers:
    """The distinct answers of a split, numbered by first occurrence."""

    def __init__(self, content: SplitPools) -> None:
        self.texts: list[str] = []
        self.ids: list[str] = []
        self._numbers: dict[str, int] = {}  # by comparable text
        self._number_of_id: dict[str, int] = {}
        self._path = content.path

    def number(self, answer_id: str, text: str, position: str) -> int:
        """The number of an answer, which is added if it is new."""
        number = self._numbers.setdefault(comparable(text), len(self.texts))
        if number == len(self.texts):
            self.texts.append(text)
            self.ids.append(answer_id)
        if self._number_of_id.setdefault(answer_id, number) != number:
            expected = f"the text that answer {answer_id!r} has in another question"
            raise InputError(self._path, position=position, column="answer", value=text, expected=expected)
        return number

    def labels(self, pool: LabelledPool) -> dict[int, int]:
        """The answers of a pool with their labels."""
        labels: dict[int, int] = {}
        for answer_id, text in zip(pool.answer_ids, pool.texts or (), strict=True):
            number = self.number(answer_id, text, f"question {pool.question_id!r}")
            label = pool.relevance[answer_id]
            earlier = labels.setdefault(number, label)
            if label != earlier:
                position, expected = f"question {pool.question_id!r}", f"one label, not {earlier} and {label}"
                raise InputError(
                    self._path, position=position, column="answer", value=text, expected=expected
                )
        return labels
