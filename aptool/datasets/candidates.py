"""Candidates for questions that have only their own answers: answers of the other questions of the split.

Takes the pools of a split, and returns them with more candidates. Equal answers are one candidate, which is
relevant for each question that has the answer.
"""

from collections.abc import Callable, Iterable, Iterator

import numpy as np

from aptool.datasets.import_options import AddedAnswers
from aptool.datasets.importing import ANSWERS_ADDED, SplitPools
from aptool.datasets.pairs import CONFLICTS_HINT, Conflicts, comparable
from aptool.errors import InputError
from aptool.formats.collection import LabelledPool
from aptool.text.bm25 import BM25


def add_candidates(
    content: SplitPools,
    added: AddedAnswers,
    seed: int,
    *,
    has_answer_ids: bool,
    shared: Iterable[tuple[str, str]] = (),
) -> Iterator[LabelledPool]:
    """Add answers of other questions to each pool, in the order in which the source has the answers.

    Without ids of the source, a candidate is numbered by the first occurrence of its answer in the split.
    ``shared`` are the ids and texts of answers that need not be in a pool.
    """
    answers = _Answers(content)
    for answer_id, text in shared:
        answers.number(answer_id, text, f"answer {answer_id!r}")
    labelled = [(pool, answers.labels(pool)) for pool in content.pools]
    select = _selection(added, answers.texts, seed)
    for pool, labels in labelled:
        if not labels:  # a question without an answer, which the import drops and counts
            yield pool
            continue
        numbers = sorted({*labels, *select(pool.question, labels)})
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
        self._path, self._conflicts = content.path, content.conflicts or Conflicts()

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
                labels[number] = self._resolve(pool, text, number, earlier, label)
        return labels

    def _resolve(self, pool: LabelledPool, text: str, number: int, first: int, second: int) -> int:
        """Choose one of two labels that a question's pool has for one text."""
        if self._conflicts.resolution == "error":
            position = f"question {pool.question_id!r}"
            expected = f"one label, not {first} and {second} ({CONFLICTS_HINT})"
            raise InputError(self._path, position=position, column="answer", value=text, expected=expected)
        return self._conflicts.resolve(pool.question_id, self.ids[number], first, second)


def _selection(
    added: AddedAnswers, texts: list[str], seed: int
) -> Callable[[str, dict[int, int]], Iterable[int]]:
    """A function of a question and its own answers that selects answers of other questions."""
    if added.number is None:
        return lambda question, labels: range(len(texts))
    count = added.number
    index, random = BM25(texts) if added.is_bm25 else None, np.random.default_rng(seed)

    def select(question: str, labels: dict[int, int]) -> Iterable[int]:
        size = min(count + len(labels), len(texts))
        if index is not None:
            chosen = index.top([question], size)[0][0]
        else:
            chosen = random.choice(len(texts), size, replace=False)
        numbers = [number for number in chosen.tolist() if number not in labels]
        return numbers[: max(count - len(labels), 0) if added.counts_relevant else count]

    return select
