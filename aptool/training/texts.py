"""The texts of a split and what is relevant in it, read from a collection."""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import polars as pl
import pyarrow as pa

from aptool.errors import InputError
from aptool.formats.collection import Collection
from aptool.formats.pools import list_units, read_answers, read_pools
from aptool.formats.trec import read_qrels
from aptool.training.data import IndexLists, TrainingTexts


def split_texts(collection: Collection, split: str) -> Iterator[str]:
    """Every question and answer of a split, judged or not; an answer appears once per row group.

    Raises:
        InputError: a file is missing or invalid.
    """
    shared = read_answers(collection.answers) if collection.answers else None
    for unit in list_units([collection.pools(split)]):
        pools = read_pools(unit, shared)
        yield from pools.questions.to_pylist()
        yield from pools.answers.to_pylist()


class NumberedPairs(NamedTuple):
    """The pairs of a split's pools, by number.

    Attributes:
        questions: texts, one a pool.
        answers: the distinct texts.
        frame: question_id, answer_id, question and answer: the rows of the two in the lists above.
    """

    questions: list[str]
    answers: list[str]
    frame: pl.DataFrame


def numbered_pairs(collection: Collection, split: str) -> NumberedPairs:
    """Reads a split's pools; answers are numbered by their text.

    Raises:
        InputError: a file is missing or invalid.
    """
    shared = read_answers(collection.answers) if collection.answers else None
    questions: list[str] = []
    answers: dict[str, int] = {}
    frames = []
    for unit in list_units([collection.pools(split)]):
        pools = read_pools(unit, shared)
        index = np.array([answers.setdefault(text, len(answers)) for text in pools.answers.to_pylist()])
        frames.append(
            pl.DataFrame(
                {
                    "question_id": pl.Series(pools.question_ids.take(pa.array(pools.pair_question))),
                    "answer_id": pl.Series(pools.answer_ids),
                    "question": pools.pair_question + len(questions),
                    "answer": index[pools.pair_answer],
                }
            )
        )
        questions += pools.questions.to_pylist()
    return NumberedPairs(questions, list(answers), pl.concat(frames))


def read_texts(collection: Collection, split: str) -> TrainingTexts:
    """Reads a split's pools and qrels.

    Relevant answers that are in no pool of the split are ignored: their text is unknown.

    Raises:
        InputError: a file is missing or invalid, or no question has a relevant answer in its pool.
    """
    questions, answers, pairs = numbered_pairs(collection, split)
    relevant = read_qrels(collection.qrels(split)).filter(pl.col("relevance") > 0)
    positive = pairs.join(relevant, on=["question_id", "answer_id"], how="semi")
    positives = IndexLists.of(positive["question"].to_numpy(), positive["answer"].to_numpy(), len(questions))
    if not len(positives.values):
        wanted = "at least one relevant answer in a pool"
        raise InputError(
            collection.qrels(split), problem=f"none for {collection.pools(split).name}", expected=wanted
        )
    whole_pools = IndexLists.of(pairs["question"].to_numpy(), pairs["answer"].to_numpy(), len(questions))
    return TrainingTexts(questions, answers, positives, whole_pools)
