"""The texts of a few questions and candidates, looked up in pools files."""

from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

import polars as pl
import pyarrow as pa

from aptool.formats.pools import Answers, list_units, read_pools


class Texts(NamedTuple):
    """Texts that were found."""

    questions: dict[str, str]
    answers: dict[tuple[str, str], str]  # by question id and answer id


def find_texts(pools: Iterable[str | Path], pairs: pl.DataFrame, answers: Answers | None = None) -> Texts:
    """Looks texts up, one row group in memory at a time.

    Args:
        pools: pools files.
        pairs: question_id (str), answer_id (str), each pair once. A text that no file holds is left out.
        answers: shared answers of the pools.

    Raises:
        InputError: a file is not one of pools.
    """
    questions: dict[str, str] = {}
    found: dict[tuple[str, str], str] = {}
    wanted = set(pairs["question_id"].to_list())
    for unit in list_units(pools):
        read = read_pools(unit, answers)
        ids = read.question_ids.to_pylist()
        rows = [row for row, name in enumerate(ids) if name in wanted]
        if not rows:
            continue
        questions.update((ids[row], read.questions[row].as_py()) for row in rows)
        candidates = pl.DataFrame(
            {
                "question_id": pl.Series(read.question_ids.take(pa.array(read.pair_question))),
                "answer_id": pl.Series(read.answer_ids),
                "text": read.pair_answer,
            }
        )
        here = candidates.join(pairs, on=["question_id", "answer_id"], how="semi")
        found.update(
            ((question, answer), read.answers[text].as_py()) for question, answer, text in here.iter_rows()
        )
    return Texts(questions, found)
