"""Reads the texts of a training from a collection."""

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import polars as pl

from aptool.config import Recipe
from aptool.data.collection import Collection
from aptool.data.pools import read_answers
from aptool.data.trec import read_qrels
from aptool.errors import InputError
from aptool.training.data import IndexLists, SplitTexts

TRAIN = "train"  # the split that systems are trained on

BM25_NEGATIVES = 100  # answers per question that ``bm25`` negatives are sampled from


def read_training_texts(collection: Collection, recipe: Recipe) -> SplitTexts:
    """Read the train split, with the answers that the negatives of a recipe come from."""
    negatives = recipe.training.negatives
    texts = read_texts(collection, TRAIN, shared=negatives in ("collection", "bm25", "all"))
    if negatives != "bm25":
        return texts
    from aptool.text.bm25 import BM25

    best, _ = BM25(texts.answers).top(texts.questions, BM25_NEGATIVES)
    owner = np.repeat(np.arange(len(best)), best.shape[1])
    return replace(texts, pools=IndexLists.of(owner, best.reshape(-1), len(best)))


def read_texts(collection: Collection, split: str, *, shared: bool = False) -> SplitTexts:
    """Join the pools and qrels of a split; equal answers are joined, too.

    Relevant answers outside all pools are ignored. ``shared`` adds the shared answers of the collection.
    """
    questions: list[str] = []
    answers: dict[str, int] = {}  # number of each distinct answer
    frames = []
    for pools in collection.batches(split):
        index = np.array([answers.setdefault(text, len(answers)) for text in pools.answers.to_pylist()])
        numbers = {"question": pools.pair_question + len(questions), "answer": index[pools.pair_answer]}
        frames.append(pools.pairs().hstack(pl.DataFrame(numbers)))
        questions += pools.questions.to_pylist()
    pairs = pl.concat(frames)
    relevant = read_qrels(collection.qrels_file(split)).filter(pl.col("relevance") > 0)
    positive = pairs.join(relevant, on=["question_id", "answer_id"], how="semi")
    if positive.is_empty():
        problem = f"none for {collection.pools_file(split).name}"
        expected = "at least one relevant answer in a pool"
        raise InputError(collection.qrels_file(split), problem=problem, expected=expected)
    if shared and collection.answers is not None:
        for text in read_answers(collection.answers).texts.to_pylist():
            answers.setdefault(text, len(answers))
    positive_lists, pool_lists = (
        IndexLists.of(frame["question"].to_numpy(), frame["answer"].to_numpy(), len(questions))
        for frame in (positive, pairs)
    )
    return SplitTexts(questions, list(answers), positive_lists, pool_lists)


def all_texts(collection: Collection) -> Iterator[str]:
    """Yield every text of every split; an answer appears once per row group."""
    for split in collection.splits:
        for pools in collection.batches(split):
            yield from pools.questions.to_pylist()
            yield from pools.answers.to_pylist()
