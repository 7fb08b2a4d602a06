"""Statistics of a collection: table 1 of the paper, and what else determines how difficult it is.

M and L are mean lengths of questions and answers in words. Table 1 does not say over which answers L is
averaged or what counts as a word: "the average ratio between the lengths of questions and their ground-truth
answers" is the only hint. L is given over relevant answers and over all candidates. Words are the tokenizer's
tokens or whitespace tokens; the latter come closer to the paper's figures, since its data sets are published
tokenized.
"""

from collections import Counter
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

import numpy as np
import polars as pl
import pyarrow as pa

from aptool.formats.collection import CollectionFiles
from aptool.formats.pools import PoolBatch, list_units, read_answers, read_pools
from aptool.formats.trec import read_qrels
from aptool.text.tokenizer import WordTokenizer
from aptool.text.vectors import VectorCoverage, coverage, read_vectors

Words = Literal["tokenizer", "whitespace"]

_QRELS = {"question_id": pl.String, "answer_id": pl.String, "relevance": pl.Int64}
_OF_LABELS = (
    "L",
    "L_over_M",
    "relevant",
    "relevant_mean",
    "without_relevant",
    "without_nonrelevant",
    "relevant_not_in_pool",
    "questions_without_relevant_in_pool",
)


@dataclass(frozen=True)
class SplitStatistics:
    """Statistics of one split; the mean of nothing is 0. None: the split has no labels.

    Attributes:
        questions: pools.
        candidates: question-candidate pairs.
        pool_mean: candidates per question.
        pool_least: candidates of the smallest pool.
        pool_most: candidates of the largest pool.
        M: words per question.
        L: words per relevant answer, over the pairs of a question and a relevant candidate.
        L_all: words per candidate, over all pairs.
        L_over_M: mean of answer length / question length, over the pairs of L.
        relevant: judgements of 1 or more.
        relevant_mean: those per question.
        without_relevant: questions without one.
        without_nonrelevant: questions whose candidates are all relevant.
        relevant_not_in_pool: relevant answers that are missing from their pool.
        questions_without_relevant_in_pool: questions without a relevant candidate.
        distinct_answers: distinct texts of candidates.
        repeated_texts: candidates with the text of an earlier candidate of their pool.
    """

    questions: int
    candidates: int
    pool_mean: float
    pool_least: int
    pool_most: int
    M: float
    L: float | None
    L_all: float
    L_over_M: float | None
    relevant: int | None
    relevant_mean: float | None
    without_relevant: int | None
    without_nonrelevant: int | None
    relevant_not_in_pool: int | None
    questions_without_relevant_in_pool: int | None
    distinct_answers: int
    repeated_texts: int


@dataclass(frozen=True)
class Statistics:
    """Statistics of a collection.

    Attributes:
        name: the collection's.
        words: what was counted as a word.
        splits: split -> its statistics.
        types: distinct words in questions and distinct answers of all splits.
        tokens: running words of these.
        policies: rows that each policy touched, from its manifest.
        coverage: of its words by vectors, if any were given.
    """

    name: str
    words: Words
    splits: dict[str, SplitStatistics]
    types: int
    tokens: int
    policies: dict[str, dict[str, int]]
    coverage: VectorCoverage | None

    def to_dict(self) -> dict[str, Any]:
        """Nested plain values."""
        return asdict(self)


def describe(
    collection: CollectionFiles,
    *,
    vectors: str | None = None,
    words: Words = "tokenizer",
) -> Statistics:
    """Computes the statistics of a collection, row group by row group.

    Memory holds one row group, the shared answers, the words, and two numbers per distinct text.

    Args:
        collection: the collection.
        vectors: a file, folder or name of word vectors, to count words without a vector.
        words: what counts as a word.

    Raises:
        InputError: a file of the collection or the vectors cannot be read.
    """
    count = _WordCounter(words)
    splits = {split: _describe_split(collection, split, count) for split in collection.splits}
    covered = coverage(read_vectors(vectors, count.words), count.words) if vectors else None
    policies = {name: dict(rows) for name, rows in collection.manifest["policies"].items()}
    types, tokens = len(count.words), count.words.total()
    return Statistics(collection.name, words, splits, types, tokens, policies, covered)


class _WordCounter:
    """Counts the words of texts; each distinct text counts once over all splits."""

    def __init__(self, words: Words) -> None:
        self.words: Counter[str] = Counter()
        self._split = _splitter(words)
        self._lengths: dict[int, int] = {}  # hash of a text -> its words

    def lengths(self, texts: pa.Array) -> np.ndarray:
        """(texts,) int64."""
        return np.fromiter(map(self._length, texts.to_pylist()), dtype=np.int64, count=len(texts))

    def _length(self, text: str) -> int:
        key = hash(text)
        length = self._lengths.get(key)
        if length is None:
            words = self._split(text)
            self.words.update(words)
            length = self._lengths[key] = len(words)
        return length


def _splitter(words: Words) -> Callable[[str], list[str]]:
    if words == "whitespace":
        return lambda text: text.lower().split()
    tokenizer = WordTokenizer.from_words([])
    return lambda text: tokenizer.split(text.lower())


def _describe_split(collection: CollectionFiles, split: str, count: _WordCounter) -> SplitStatistics:
    answers = read_answers(collection.answers) if collection.answers else None
    labelled = collection.is_labelled(split)
    qrels = read_qrels(collection.qrels(split)) if labelled else pl.DataFrame(schema=_QRELS)
    relevant = qrels.filter(pl.col("relevance") > 0).select("question_id", "answer_id")
    # Per question: candidates, words, relevant candidates; per relevant pair: both lengths.
    questions: list[pl.DataFrame] = []
    pairs: list[np.ndarray] = []
    distinct: set[int] = set()
    repeated = words = 0
    for unit in list_units([collection.pools(split)]):
        pools = read_pools(unit, answers)
        lengths = count.lengths(pools.answers)[pools.pair_answer]
        question_lengths = count.lengths(pools.questions)
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
    table = pl.concat(questions)
    judged = table.join(
        relevant.group_by("question_id").agg(pl.len().alias("known")), "question_id", how="left"
    )
    known = judged["known"].fill_null(0).cast(pl.Int64).to_numpy()
    sizes, found = table["size"].to_numpy(), table["relevant"].to_numpy()
    relevant_pairs = np.concatenate(pairs, axis=1)
    statistics = SplitStatistics(
        questions=len(table),
        candidates=int(sizes.sum()),
        pool_mean=_mean(sizes),
        pool_least=int(sizes.min()),
        pool_most=int(sizes.max()),
        M=_mean(table["words"].to_numpy()),
        L=_mean(relevant_pairs[1]),
        L_all=words / max(1, int(sizes.sum())),
        L_over_M=_mean(relevant_pairs[1] / np.maximum(relevant_pairs[0], 1)),
        relevant=int(known.sum()),
        relevant_mean=_mean(known),
        without_relevant=int((known == 0).sum()),
        without_nonrelevant=int((found == sizes).sum()),
        relevant_not_in_pool=int((known - found).sum()),
        questions_without_relevant_in_pool=int((found == 0).sum()),
        distinct_answers=len(distinct),
        repeated_texts=repeated,
    )
    unknown: dict[str, Any] = {} if labelled else dict.fromkeys(_OF_LABELS)
    return replace(statistics, **unknown)


def _relevant_pairs(pools: PoolBatch, relevant: pl.DataFrame) -> np.ndarray:
    """(pairs,) bool: which candidates are relevant."""
    ids = pools.question_ids.take(pa.array(pools.pair_question))
    pairs = pl.DataFrame({"question_id": pl.Series(ids), "answer_id": pl.Series(pools.answer_ids)})
    marked = relevant.with_columns(relevant=pl.lit(True))
    joined = pairs.join(marked, on=["question_id", "answer_id"], how="left", maintain_order="left")
    return joined["relevant"].fill_null(False).to_numpy()


def _repeated_texts(pools: PoolBatch) -> int:
    keys = pools.pair_question * (len(pools.answers) + 1) + _text_codes(pools)[pools.pair_answer]
    return len(keys) - len(np.unique(keys))


def _text_codes(pools: PoolBatch) -> np.ndarray:
    """(answers,) a number per distinct text: shared answers may have one text under two ids."""
    return pools.answers.dictionary_encode().indices.to_numpy().astype(np.int64)


def _mean(values: np.ndarray) -> float:
    return float(values.mean()) if len(values) else 0.0
