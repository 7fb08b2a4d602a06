"""What a collection consists of: table 1 of the paper, and what else decides how hard it is.

M and L are mean lengths of questions and answers in words. Table 1 does not say which answers L is taken
over, or what counts as a word: "the average ratio between the lengths of questions and their ground-truth
answers" is the only hint. Both readings of L are given, over right answers and over all candidates. Words
are what the tokenizer makes of a text, or what stands between spaces, which comes closer to the paper's
figures as its data sets are published with their punctuation already apart.
"""

from collections import Counter
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any, Literal

import numpy as np
import polars as pl
import pyarrow as pa

from aptool.formats.collection import Collection
from aptool.formats.pools import Pools, list_units, read_answers, read_pools
from aptool.formats.trec import read_qrels

Words = Literal["tokenizer", "spaces"]


@dataclass(frozen=True)
class SplitStatistics:
    """One split in numbers; means are 0 where there is nothing to take them over.

    Attributes:
        questions: pools.
        candidates: question-candidate pairs.
        pool_mean: candidates per question.
        pool_least: those of the smallest pool.
        pool_most: those of the largest.
        M: words per question.
        L: words per right answer, over the pairs of a question and a right answer in its pool.
        L_all: words per candidate, over all pairs.
        L_over_M: mean over the former pairs of the ratio of their lengths.
        right: qrels of 1 or more.
        right_mean: those per question.
        without_right: questions without one.
        without_wrong: questions whose candidates are all right.
        right_not_in_pool: right answers that their pool lacks.
        questions_without_right_in_pool: questions that no ranking of the pool can answer.
        distinct_answers: different texts among the candidates.
        repeated_texts: candidates whose text another candidate of the same pool has already.
    """

    questions: int
    candidates: int
    pool_mean: float
    pool_least: int
    pool_most: int
    M: float
    L: float
    L_all: float
    L_over_M: float
    right: int
    right_mean: float
    without_right: int
    without_wrong: int
    right_not_in_pool: int
    questions_without_right_in_pool: int
    distinct_answers: int
    repeated_texts: int


@dataclass(frozen=True)
class Coverage:
    """How many of a collection's words a file of vectors knows.

    Attributes:
        types: different words in the collection.
        tokens: running words in its questions and distinct answers.
        unknown_types: the words that have no vector.
        unknown_tokens: the running words that have none.
    """

    types: int
    tokens: int
    unknown_types: int
    unknown_tokens: int


@dataclass(frozen=True)
class Statistics:
    """A collection in numbers.

    Attributes:
        name: the collection's.
        words: how words were counted.
        splits: split -> its numbers.
        types: different words in questions and distinct answers of all splits.
        tokens: running words of these.
        policies: what was dropped when it was made, from its manifest.
        coverage: by a file of vectors, if one was given.
    """

    name: str
    words: Words
    splits: dict[str, SplitStatistics]
    types: int
    tokens: int
    policies: dict[str, dict[str, int]]
    coverage: Coverage | None

    def to_dict(self) -> dict[str, Any]:
        """Nested plain values."""
        return asdict(self)


def describe(
    collection: Collection,
    *,
    vectors: str | None = None,
    words: Words = "tokenizer",
) -> Statistics:
    """Counts a collection through, row group by row group.

    Memory holds one row group, the shared answers, the words, and two numbers per distinct text.

    Args:
        collection: the collection.
        vectors: a file, folder or name of word vectors whose coverage is wanted.
        words: what counts as a word.

    Raises:
        InputError: a file of the collection or the vectors cannot be read.
    """
    count = _WordCounter(words)
    splits = {split: _describe_split(collection, split, count) for split in collection.splits}
    coverage = _coverage(vectors, count.words) if vectors else None
    policies = {name: dict(rows) for name, rows in collection.manifest["policies"].items()}
    types, tokens = len(count.words), count.words.total()
    return Statistics(collection.name, words, splits, types, tokens, policies, coverage)


class _WordCounter:
    """Counts the words of texts, of each distinct text once for all splits."""

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
    if words == "spaces":
        return lambda text: text.lower().split()
    from aptool.text.tokenizer import WordTokenizer

    tokenizer = WordTokenizer.from_words([])
    return lambda text: tokenizer.split(text.lower())


def _describe_split(collection: Collection, split: str, count: _WordCounter) -> SplitStatistics:
    answers = read_answers(collection.answers) if collection.answers else None
    qrels = read_qrels(collection.qrels(split))
    right = qrels.filter(pl.col("relevance") > 0).select("question_id", "answer_id")
    # Per question: candidates, words, right answers in the pool; per right pair: both lengths.
    questions: list[pl.DataFrame] = []
    pairs: list[np.ndarray] = []
    distinct: set[int] = set()
    repeated = words = 0
    for unit in list_units([collection.pools(split)]):
        pools = read_pools(unit, answers)
        lengths = count.lengths(pools.answers)[pools.pair_answer]
        asked = count.lengths(pools.questions)
        is_right = _in_pairs(pools, right)
        of_right = pools.pair_question[is_right]
        pairs.append(np.stack([asked[of_right], lengths[is_right]]))
        words += int(lengths.sum())
        repeated += _repeated_texts(pools)
        distinct.update(map(hash, pools.answers.to_pylist()))
        questions.append(
            pl.DataFrame(
                {
                    "question_id": pools.question_ids.to_pylist(),
                    "size": np.diff(pools.offsets),
                    "words": asked,
                    "right": np.bincount(of_right, minlength=len(asked)),
                }
            )
        )
    table = pl.concat(questions)
    judged = table.join(right.group_by("question_id").agg(pl.len().alias("known")), "question_id", how="left")
    known = judged["known"].fill_null(0).cast(pl.Int64).to_numpy()
    sizes, found = table["size"].to_numpy(), table["right"].to_numpy()
    right_pairs = np.concatenate(pairs, axis=1)
    return SplitStatistics(
        questions=len(table),
        candidates=int(sizes.sum()),
        pool_mean=_mean(sizes),
        pool_least=int(sizes.min()),
        pool_most=int(sizes.max()),
        M=_mean(table["words"].to_numpy()),
        L=_mean(right_pairs[1]),
        L_all=words / max(1, int(sizes.sum())),
        L_over_M=_mean(right_pairs[1] / np.maximum(right_pairs[0], 1)),
        right=int(known.sum()),
        right_mean=_mean(known),
        without_right=int((known == 0).sum()),
        without_wrong=int((found == sizes).sum()),
        right_not_in_pool=int((known - found).sum()),
        questions_without_right_in_pool=int((found == 0).sum()),
        distinct_answers=len(distinct),
        repeated_texts=repeated,
    )


def _in_pairs(pools: Pools, right: pl.DataFrame) -> np.ndarray:
    """(pairs,) bool: which candidates are right."""
    ids = pools.question_ids.take(pa.array(pools.pair_question))
    pairs = pl.DataFrame({"question_id": pl.Series(ids), "answer_id": pl.Series(pools.answer_ids)})
    marked = right.with_columns(right=pl.lit(True))
    joined = pairs.join(marked, on=["question_id", "answer_id"], how="left", maintain_order="left")
    return joined["right"].fill_null(False).to_numpy()


def _repeated_texts(pools: Pools) -> int:
    keys = pools.pair_question * (len(pools.answers) + 1) + _text_codes(pools)[pools.pair_answer]
    return len(keys) - len(np.unique(keys))


def _text_codes(pools: Pools) -> np.ndarray:
    """(answers,) the same number for the same text: shared answers may repeat one under two ids."""
    return pools.answers.dictionary_encode().indices.to_numpy().astype(np.int64)


def _mean(values: np.ndarray) -> float:
    return float(values.mean()) if len(values) else 0.0


def _coverage(vectors: str, words: Counter[str]) -> Coverage:
    from aptool.text.vectors import read_vectors

    known = set(read_vectors(vectors, list(words)).words)
    unknown = [word for word in words if word not in known]
    return Coverage(len(words), words.total(), len(unknown), sum(words[word] for word in unknown))
