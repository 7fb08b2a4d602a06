"""Statistics of a collection: table 1 of the paper, and further measures of its difficulty.

M and L are mean lengths of questions and answers in words. Table 1 does not define a word, nor the answers
over which L is averaged, so L is given over relevant answers and over all candidates. Words are tokens of the
tokenizer or between white space, which come closer to the paper's values.
"""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np
import polars as pl
import pyarrow as pa

from aptool.data.collection import Collection
from aptool.data.pools import PoolBatch
from aptool.data.trec import read_qrels
from aptool.text.tokenizer import WordTokenizer

Words = Literal["tokenizer", "whitespace"]


@dataclass(frozen=True)
class SplitStatistics:
    """Statistics of one split; the mean of no values is 0."""

    questions: int  # pools
    candidates: int  # question-candidate pairs
    pool_mean: float  # candidates per question
    pool_least: int  # candidates of the smallest pool
    pool_most: int  # candidates of the largest pool
    M: float  # words per question
    L: float  # words per relevant candidate, over the pairs of a question and a relevant candidate
    L_all: float  # words per candidate, over all pairs
    L_over_M: float  # mean of answer length / question length, over the pairs of L
    relevant: int  # judgements of 1 or more
    relevant_mean: float  # these judgements per question
    without_relevant: int  # questions without such a judgement
    without_nonrelevant: int  # questions whose candidates are all relevant
    relevant_not_in_pool: int  # relevant answers that are missing from their pool
    questions_without_relevant_in_pool: int  # questions without a relevant candidate
    distinct_answers: int  # distinct texts of candidates
    repeated_texts: int  # candidates with the text of an earlier candidate of their pool


@dataclass(frozen=True)
class Statistics:
    """Statistics of a collection."""

    name: str  # name of the collection
    words: Words  # the definition of a word
    splits: dict[str, SplitStatistics]  # split -> its statistics
    types: int  # distinct words of the questions and the distinct answers of all splits
    tokens: int  # running words of the same texts
    policies: dict[str, dict[str, int]]  # policy -> split -> rows, from the manifest


def describe(collection: Collection, *, words: Words = "tokenizer") -> Statistics:
    """Compute the statistics of a collection; memory holds one row group, shared answers and words."""
    counter = _WordCounter(words)
    splits = {split: _describe_split(collection, split, counter) for split in collection.splits}
    policies = {name: dict(rows) for name, rows in collection.manifest["policies"].items()}
    types, tokens = len(counter.words), counter.words.total()
    return Statistics(collection.name, words, splits, types, tokens, policies)


class _WordCounter:
    """Counts the words of texts; each distinct text counts once over all splits."""

    def __init__(self, words: Words) -> None:
        self.words: Counter[str] = Counter()
        self._split: Callable[[str], list[str]] = str.split
        if words == "tokenizer":
            self._split = WordTokenizer.from_words([]).split
        self._lengths: dict[int, int] = {}  # hash of a text -> its number of words

    def lengths(self, texts: pa.Array) -> np.ndarray:
        """(texts,) int64: words per text."""
        return np.fromiter(map(self._length, texts.to_pylist()), dtype=np.int64, count=len(texts))

    def _length(self, text: str) -> int:
        key = hash(text)
        length = self._lengths.get(key)
        if length is None:
            words = self._split(text.lower())
            self.words.update(words)
            length = self._lengths[key] = len(words)
        return length


def _describe_split(collection: Collection, split: str, counter: _WordCounter) -> SplitStatistics:
    qrels = read_qrels(collection.qrels_file(split))
    relevant = qrels.filter(pl.col("relevance") > 0).select("question_id", "answer_id")
    # Per question: candidates, words, relevant candidates. Per relevant pair: both lengths.
    questions: list[pl.DataFrame] = []
    pairs: list[np.ndarray] = []
    distinct: set[int] = set()
    repeated = words = 0
    for pools in collection.batches(split):
        lengths = counter.lengths(pools.answers)[pools.pair_answer]
        question_lengths = counter.lengths(pools.questions)
        is_relevant = _relevant_pairs(pools, relevant)
        owners = pools.pair_question[is_relevant]
        pairs.append(np.stack([question_lengths[owners], lengths[is_relevant]]))
        words += int(lengths.sum())
        repeated += _repeated_texts(pools)
        distinct.update(map(hash, pools.answers.to_pylist()))
        questions.append(
            pl.DataFrame(
                {
                    "question_id": pools.question_ids.to_pylist(),
                    "size": np.diff(pools.offsets),
                    "words": question_lengths,
                    "relevant": np.bincount(owners, minlength=len(question_lengths)),
                }
            )
        )
    judged = relevant.group_by("question_id").agg(judged=pl.len().cast(pl.Int64))
    table = pl.concat(questions).join(judged, "question_id", how="left", maintain_order="left")
    judged_relevant = table["judged"].fill_null(0).to_numpy()
    sizes, pool_relevant = table["size"].to_numpy(), table["relevant"].to_numpy()
    relevant_pairs = np.concatenate(pairs, axis=1)
    return SplitStatistics(
        questions=len(table),
        candidates=int(sizes.sum()),
        pool_mean=_mean(sizes),
        pool_least=int(sizes.min()),
        pool_most=int(sizes.max()),
        M=_mean(table["words"].to_numpy()),
        L=_mean(relevant_pairs[1]),
        L_all=words / max(1, int(sizes.sum())),
        L_over_M=_mean(relevant_pairs[1] / np.maximum(relevant_pairs[0], 1)),
        relevant=int(judged_relevant.sum()),
        relevant_mean=_mean(judged_relevant),
        without_relevant=int((judged_relevant == 0).sum()),
        without_nonrelevant=int((pool_relevant == sizes).sum()),
        relevant_not_in_pool=int((judged_relevant - pool_relevant).sum()),
        questions_without_relevant_in_pool=int((pool_relevant == 0).sum()),
        distinct_answers=len(distinct),
        repeated_texts=repeated,
    )


def _relevant_pairs(pools: PoolBatch, relevant: pl.DataFrame) -> np.ndarray:
    """(pairs,) bool: whether a candidate is relevant."""
    marked = relevant.with_columns(relevant=pl.lit(True))
    joined = pools.pairs().join(marked, on=["question_id", "answer_id"], how="left", maintain_order="left")
    return joined["relevant"].fill_null(False).to_numpy()


def _repeated_texts(pools: PoolBatch) -> int:
    # Shared answers may have one text under two ids.
    codes = pools.answers.dictionary_encode().indices.to_numpy().astype(np.int64)
    keys = pools.pair_question * (len(pools.answers) + 1) + codes[pools.pair_answer]
    return len(keys) - len(np.unique(keys))


def _mean(values: np.ndarray) -> float:
    return float(values.mean()) if len(values) else 0.0
