"""Pairs of a question and a candidate, and the pools that they form.

An importer reads its format into `Pair`s. `pools_of` groups the pairs by question and checks what a
collection requires, so that an error names the position in the file.
"""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from aptool.data.ids import check_answer_id, check_question_id
from aptool.data.values import check_text
from aptool.data.writing import LabelledPool
from aptool.errors import InputError
from aptool.paths import PathOrUrl

EMPTY_DROPPED = "empty_candidates_dropped"
SPELLINGS_JOINED = "other_spellings_of_a_question_joined"  # see `comparable`


class Pair(NamedTuple):
    """One question with one candidate."""

    position: str  # position in the file, such as ``line 3``, for messages
    question_id: str  # the same for all pairs of a question
    question: str  # the question's text, the same for all pairs of a question
    answer_id: str | None  # id of the candidate; None: made from its position in the pool
    answer: str  # the candidate's text
    relevance: int  # the label; 0 is not relevant


class Columns(NamedTuple):
    """The names of a pair's parts in a file, for messages."""

    question_id: str = "question_id"
    question: str = "question"
    answer_id: str = "answer_id"
    answer: str = "answer"
    label: str = "label"


class _Pool:
    """A pool under construction."""

    def __init__(self, pair: Pair) -> None:
        self.position = pair.position
        self.question = pair.question
        self.answer_ids: list[str] = []
        self.texts: list[str] = []
        self.positions: list[str] = []
        self.rows: dict[str, int] = {}  # answer id -> its first index in the lists
        self.relevance: dict[str, int] = {}
        self.empty_dropped = 0


def pools_of(
    path: PathOrUrl,
    pairs: Iterable[Pair],
    columns: Columns,
    *,
    drop_empty: bool = False,
) -> Iterator[LabelledPool]:
    """Group pairs into pools, in the order in which questions first appear.

    The pairs of a question need not be adjacent, so memory holds the text of the whole file.
    Candidates without text are kept, or dropped and counted.
    """
    pools: dict[str, _Pool] = {}
    for pair in pairs:
        position = pair.position
        pool = pools.get(pair.question_id)
        if pool is None:
            check_question_id(path, position, pair.question_id, columns.question_id)
            check_text(path, position, columns.question, pair.question)
            pool = pools[pair.question_id] = _Pool(pair)
        elif pool.question != pair.question:
            expected = f"the text that question {pair.question_id!r} has in {pool.position}"
            raise InputError(
                path, position=position, column=columns.question, value=pair.question, expected=expected
            )
        if drop_empty and not pair.answer.strip():
            pool.empty_dropped += 1
            continue
        check_text(path, position, columns.answer, pair.answer, empty=True)
        _add_candidate(path, pool, pair, columns)
    if not pools:
        raise InputError(path, problem="no row", expected="at least one question with a candidate")
    for question_id in list(pools):
        pool = pools.pop(question_id)
        yield LabelledPool(
            question_id, pool.question, pool.answer_ids, pool.texts, pool.relevance, pool.empty_dropped
        )


def _add_candidate(path: PathOrUrl, pool: _Pool, pair: Pair, columns: Columns) -> None:
    if pair.answer_id is None:
        answer_id = f"{pair.question_id}-{len(pool.answer_ids)}"
    else:
        answer_id = pair.answer_id
        check_answer_id(path, pair.position, answer_id, columns.answer_id)
    first = pool.rows.setdefault(answer_id, len(pool.answer_ids))
    if first < len(pool.answer_ids):
        earlier = f"that candidate {answer_id!r} of this question has in {pool.positions[first]}"
        if pool.texts[first] != pair.answer:
            expected = f"the text {earlier}"
            raise InputError(
                path, position=pair.position, column=columns.answer, value=pair.answer, expected=expected
            )
        if (before := pool.relevance[answer_id]) != pair.relevance:
            expected = f"the label {before} {earlier}"
            raise InputError(
                path, position=pair.position, column=columns.label, value=pair.relevance, expected=expected
            )
    pool.answer_ids.append(answer_id)
    pool.texts.append(pair.answer)
    pool.positions.append(pair.position)
    pool.relevance[answer_id] = pair.relevance
