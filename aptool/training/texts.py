"""Reads the texts of a training from collections."""

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np
import polars as pl

from aptool.config import Recipe
from aptool.errors import InputError
from aptool.formats.collection import CollectionFiles
from aptool.formats.pools import read_answers
from aptool.formats.trec import read_qrels
from aptool.text.words import word_splitter
from aptool.training.data import IndexLists, SplitTexts

TRAIN = "train"  # the split that systems are trained on

BM25_NEGATIVES = 100  # answers per question that ``bm25`` negatives are sampled from


def _numbered_pairs(
    collection: CollectionFiles, split: str, questions: list[str], answers: dict[str, int]
) -> pl.DataFrame:
    """The pairs of a split's pools: question_id, answer_id, and the numbers question and answer.

    The questions, one per pool, are appended to ``questions``; distinct answers are added to ``answers``.
    """
    frames = []
    for pools in collection.batches(split):
        index = np.array([answers.setdefault(text, len(answers)) for text in pools.answers.to_pylist()])
        numbers = {"question": pools.pair_question + len(questions), "answer": index[pools.pair_answer]}
        frames.append(pools.pairs().hstack(pl.DataFrame(numbers)))
        questions += pools.questions.to_pylist()
    return pl.concat(frames)


def read_training_texts(collection: CollectionFiles, recipe: Recipe) -> SplitTexts:
    """Read the train split of all collections of a recipe, with the answers that negatives come from."""
    negatives = recipe.training.negatives
    further = sources(collection, recipe)[1:]
    texts = read_texts(collection, TRAIN, further, shared=negatives in ("collection", "bm25", "all"))
    if negatives != "bm25":
        return texts
    from aptool.text.bm25 import BM25

    split = word_splitter(recipe.text.words)
    best, _ = BM25(map(split, texts.answers)).top([*map(split, texts.questions)], BM25_NEGATIVES)
    owner = np.repeat(np.arange(len(best)), best.shape[1])
    return replace(texts, pools=IndexLists.of(owner, best.reshape(-1), len(best)))


def read_texts(
    collection: CollectionFiles, split: str, further: Sequence[CollectionFiles] = (), *, shared: bool = False
) -> SplitTexts:
    """Join the pools and qrels of a split of several collections; equal answers are joined, too.

    Relevant answers outside all pools are ignored. ``shared`` adds the shared answers of the collections.
    """
    questions: list[str] = []
    answers: dict[str, int] = {}
    parts, positive_parts = [], []
    for source in (collection, *further):
        pairs = _numbered_pairs(source, split, questions, answers)
        relevant = read_qrels(source.qrels(split)).filter(pl.col("relevance") > 0)
        positive = pairs.join(relevant, on=["question_id", "answer_id"], how="semi")
        if positive.is_empty():
            problem = f"none for {source.pools(split).name}"
            expected = "at least one relevant answer in a pool"
            raise InputError(source.qrels(split), problem=problem, expected=expected)
        parts.append(pairs)
        positive_parts.append(positive)
    if shared:
        for source in (collection, *further):
            if source.answers is not None:
                for text in read_answers(source.answers).texts.to_pylist():
                    answers.setdefault(text, len(answers))
    positives, pools = (
        IndexLists.of(pairs["question"].to_numpy(), pairs["answer"].to_numpy(), len(questions))
        for pairs in (pl.concat(positive_parts), pl.concat(parts))
    )
    return SplitTexts(questions, list(answers), positives, pools)


def sources(collection: CollectionFiles, recipe: Recipe) -> list[CollectionFiles]:
    """Open the collections of a training, ``collection`` first."""
    opened = [collection]
    for number, text in enumerate(recipe.mixture.collections):
        position = f"mixture.collections, item {number}"
        further = CollectionFiles(text)
        if further.path.resolve() in [source.path.resolve() for source in opened]:
            raise InputError(recipe.preset, position=position, value=text, expected="each collection once")
        opened.append(further)
    return opened


def all_texts(collection: CollectionFiles, recipe: Recipe) -> Iterator[str]:
    """Yield every text of every split of every collection; an answer appears once per row group."""
    for source in sources(collection, recipe):
        for split in source.splits:
            for pools in source.batches(split):
                yield from pools.questions.to_pylist()
                yield from pools.answers.to_pylist()
