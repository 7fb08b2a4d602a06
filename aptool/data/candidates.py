"""Candidates for questions that have only their own answers: answers of the other questions of the split.

Takes the pools of a split, and returns them with more candidates. Equal answers are one candidate, which is
relevant for each question that has the answer.
"""

from collections.abc import Iterable, Iterator

import numpy as np

from aptool.data.frames import comparable
from aptool.data.importing import ANSWERS_ADDED, SplitPools
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
    answers: dict[str, tuple[str, str]] = {}  # comparable text -> first id, first text
    texts: dict[str, str] = {}  # answer id -> comparable text

    def add(answer_id: str, text: str, position: str) -> str:
        key = comparable(text)
        answers.setdefault(key, (answer_id, text))
        if texts.setdefault(answer_id, key) != key:
            expected = f"the text that answer {answer_id!r} has in another question"
            raise InputError(content.path, position=position, column="answer", value=text, expected=expected)
        return key

    for answer_id, text in shared:
        add(answer_id, text, f"answer {answer_id!r}")
    labelled = []
    for pool in content.pools:
        labels: dict[str, int] = {}
        position = f"question {pool.question_id!r}"
        for answer_id, text in zip(pool.answer_ids, pool.texts or (), strict=True):
            label = pool.relevance[answer_id]
            earlier = labels.setdefault(add(answer_id, text, position), label)
            if label != earlier:
                expected = f"one label, not {earlier} and {label}"
                raise InputError(
                    content.path, position=position, column="answer", value=text, expected=expected
                )
        labelled.append((pool, labels))
    keys, ids_and_texts = list(answers), list(answers.values())
    numbers = {key: number for number, key in enumerate(keys)}
    random = np.random.default_rng(seed)
    for pool, labels in labelled:
        if not labels:  # a question without an answer, which the import drops and counts
            yield pool
            continue
        chosen = list(range(len(keys)))
        if pool_size is not None:
            own = [numbers[key] for key in labels]
            size = min(pool_size + len(own), len(keys))
            drawn = random.choice(len(keys), size, replace=False).tolist()
            others = [number for number in drawn if keys[number] not in labels]
            chosen = sorted([*own, *others[: max(pool_size - len(own), 0)]])
        ids = [ids_and_texts[n][0] if has_answer_ids else f"{pool.question_id}-{n}" for n in chosen]
        relevance = {name: labels.get(keys[n], 0) for name, n in zip(ids, chosen, strict=True)}
        if content.counts is not None:
            content.counts[ANSWERS_ADDED] = content.counts.get(ANSWERS_ADDED, 0) + len(ids) - len(labels)
        yield pool._replace(answer_ids=ids, texts=[ids_and_texts[n][1] for n in chosen], relevance=relevance)
