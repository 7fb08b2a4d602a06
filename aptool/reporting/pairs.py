"""The texts of one pair of a collection."""

import pyarrow.compute as pc

from aptool.errors import InputError
from aptool.formats.collection import Collection
from aptool.formats.pools import list_units, read_answers, read_pools


def find_pair(collection: Collection, split: str, question_id: str, answer_id: str) -> tuple[str, str]:
    """The texts of a question and of one of its candidates.

    An answer outside the question's pool is found too, where the collection's pools share their answers.

    Raises:
        InputError: the collection has no such split, question or answer.
    """
    path = collection.pools(split)
    answers = read_answers(collection.answers) if collection.answers else None
    for unit in list_units([path]):
        pools = read_pools(unit, answers)
        row = pc.index(pools.question_ids, question_id).as_py()
        if row < 0:
            continue
        begin, end = int(pools.offsets[row]), int(pools.offsets[row + 1])
        question = pools.questions[row].as_py()
        place = pc.index(pools.answer_ids.slice(begin, end - begin), answer_id).as_py()
        if place >= 0:
            return question, pools.answers[int(pools.pair_answer[begin + place])].as_py()
        place = pc.index(answers.answer_ids, answer_id).as_py() if answers is not None else -1
        if answers is not None and place >= 0:
            return question, answers.texts[place].as_py()
        some = ", ".join(pools.answer_ids.slice(begin, min(3, end - begin)).to_pylist())
        place_name = f"question {question_id!r}"
        raise InputError(
            path, place=place_name, value=answer_id, expected=f"a candidate of its pool, such as {some}"
        )
    raise InputError(path, column="question_id", value=question_id, expected=f"a question of split {split!r}")
