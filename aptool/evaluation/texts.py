"""Lookup of the texts of questions and candidates in pools files."""

from collections.abc import Iterable
from typing import NamedTuple

import polars as pl
import pyarrow as pa
import pyarrow.compute as pc

from aptool.errors import InputError
from aptool.formats.collection import CollectionFiles
from aptool.formats.location import PathOrUrl
from aptool.formats.pools import Answers, list_units, read_answers, read_pools


class FoundTexts(NamedTuple):
    """Texts of questions and candidates."""

    questions: dict[str, str]  # by question id
    answers: dict[tuple[str, str], str]  # by question id and answer id


def find_texts(pools: Iterable[PathOrUrl], pairs: pl.DataFrame, answers: Answers | None = None) -> FoundTexts:
    """Look up the texts of distinct pairs (question_id, answer_id), with one row group in memory at a time.

    Args:
        pools: pools files.
        pairs: question_id, answer_id; pairs that no file has are skipped.
        answers: shared answers of the pools.
    """
    questions: dict[str, str] = {}
    texts: dict[tuple[str, str], str] = {}
    requested = set(pairs["question_id"].to_list())
    for unit in list_units(pools):
        batch = read_pools(unit, answers)
        ids = batch.question_ids.to_pylist()
        rows = [row for row, name in enumerate(ids) if name in requested]
        if not rows:
            continue
        questions.update((ids[row], batch.questions[row].as_py()) for row in rows)
        candidates = pl.DataFrame(
            {
                "question_id": pl.Series(batch.question_ids.take(pa.array(batch.pair_question))),
                "answer_id": pl.Series(batch.answer_ids),
                "text": batch.pair_answer,
            }
        )
        matches = candidates.join(pairs, on=["question_id", "answer_id"], how="semi")
        texts.update(
            ((question, answer), batch.answers[text].as_py())
            for question, answer, text in matches.iter_rows()
        )
    return FoundTexts(questions, texts)


def find_pair(collection: CollectionFiles, split: str, question_id: str, answer_id: str) -> tuple[str, str]:
    """The texts of a question and of a candidate, or of any answer if the collection's pools share answers.

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
        index = pc.index(pools.answer_ids.slice(begin, end - begin), answer_id).as_py()
        if index >= 0:
            return question, pools.answers[int(pools.pair_answer[begin + index])].as_py()
        index = pc.index(answers.answer_ids, answer_id).as_py() if answers is not None else -1
        if answers is not None and index >= 0:
            return question, answers.texts[index].as_py()
        examples = ", ".join(pools.answer_ids.slice(begin, min(3, end - begin)).to_pylist())
        expected = f"a candidate of its pool, such as {examples}"
        raise InputError(path, place=f"question {question_id!r}", value=answer_id, expected=expected)
    raise InputError(path, column="question_id", value=question_id, expected=f"a question of split {split!r}")
