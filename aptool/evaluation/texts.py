"""Texts in pools files: lookup by id, and groups of questions by length and by question word."""

from collections.abc import Iterable, Sequence
from typing import Literal, NamedTuple, TypeAlias, get_args

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc

from aptool.data.collection import Collection
from aptool.data.pools import Answers, PoolBatch, list_units, read_pools
from aptool.errors import InputError
from aptool.paths import PathOrUrl
from aptool.text.tokenizer import WordTokenizer

Kind: TypeAlias = Literal["length", "question-length", "type"]
KINDS: tuple[Kind, ...] = get_args(Kind)

# Upper bounds of the groups by question length, in words and punctuation marks; the last group has none.
QUESTION_LENGTHS = (5, 8, 12, 20)
_MOST_LENGTHS = 12  # groups by the length of the relevant answer
_ROUND_STEPS = (1, 2, 5)
# The type of a question is the first of these words in it.
QUESTION_WORDS = ("who", "whom", "whose", "what", "which", "when", "where", "why", "how")
OTHER = "other"


class PoolTexts(NamedTuple):
    """Texts of questions and candidates."""

    questions: dict[str, str]  # by question id
    answers: dict[tuple[str, str], str]  # by question id and answer id


def find_texts(pools: Iterable[PathOrUrl], pairs: pl.DataFrame, answers: Answers | None = None) -> PoolTexts:
    """Look up the texts of distinct pairs (question_id, answer_id), with one row group in memory at a time.

    Pairs that no pools file has are skipped.
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
        matches = _candidates(batch, pairs)
        texts.update(
            ((question, answer), batch.answers[text].as_py())
            for question, answer, text in matches.iter_rows()
        )
    return PoolTexts(questions, texts)


def find_pair(collection: Collection, split: str, question_id: str, answer_id: str) -> tuple[str, str]:
    """The texts of a question and of a candidate, or of any answer if the pools share answers."""
    path = collection.pools_file(split)
    for pools in collection.batches(split):
        row = pc.index(pools.question_ids, question_id).as_py()
        if row < 0:
            continue
        begin, end = int(pools.offsets[row]), int(pools.offsets[row + 1])
        question = pools.questions[row].as_py()
        index = pc.index(pools.answer_ids.slice(begin, end - begin), answer_id).as_py()
        if index >= 0:
            return question, pools.answers[int(pools.pair_answer[begin + index])].as_py()
        answers = pools.shared
        index = pc.index(answers.answer_ids, answer_id).as_py() if answers is not None else -1
        if answers is not None and index >= 0:
            return question, answers.texts[index].as_py()
        examples = ", ".join(pools.answer_ids.slice(begin, min(3, end - begin)).to_pylist())
        expected = f"a candidate of its pool, such as {examples}"
        raise InputError(path, position=f"question {question_id!r}", value=answer_id, expected=expected)
    raise InputError(path, column="question_id", value=question_id, expected=f"a question of split {split!r}")


def relevant_lengths(
    pools: Iterable[PathOrUrl], qrels: pl.DataFrame, answers: Answers | None = None
) -> pl.DataFrame:
    """The length of the shortest relevant answer of each question with one in its pool, in order.

    Returns question_id (str), tokens (i64: words and punctuation marks).
    """
    judged = qrels.filter(pl.col("relevance") > 0).select("question_id", "answer_id")
    tokenizer = WordTokenizer.from_words([])
    parts = [pl.DataFrame(schema={"question_id": pl.String, "tokens": pl.Int64})]
    for unit in list_units(pools):
        batch = read_pools(unit, answers)
        relevant = _candidates(batch, judged)
        texts = batch.answers.take(pa.array(relevant["text"].to_numpy())).to_pylist()
        tokens = pl.Series("tokens", [len(tokenizer.split(text)) for text in texts], dtype=pl.Int64)
        parts.append(relevant.select("question_id", tokens))
    return pl.concat(parts).group_by("question_id", maintain_order=True).agg(pl.col("tokens").min())


def groups_by_length(lengths: pl.DataFrame) -> pl.DataFrame:
    """The questions whose shortest relevant answer has at most N words (figures 3 and 4 of the paper).

    ``lengths`` is a table of `relevant_lengths`. Returns question_id, group, position (i64: N), with the
    groups of each question, for the `length_thresholds` N.
    """
    limits = length_thresholds(lengths["tokens"].to_numpy()) if len(lengths) else []
    groups = pl.DataFrame({"position": limits}, schema={"position": pl.Int64})
    both = lengths.join_where(groups, pl.col("tokens") <= pl.col("position"))
    return both.select("question_id", pl.format("up to {} words", "position").alias("group"), "position")


def length_thresholds(tokens: np.ndarray) -> list[int]:
    """Multiples of a round number up to the 99th percentile of (n,) lengths, and the longest length."""
    longest, usual = int(tokens.max()), float(np.quantile(tokens, 0.99))
    steps = (step * 10**power for power in range(19) for step in _ROUND_STEPS)
    step = next(step for step in steps if usual / step <= _MOST_LENGTHS)
    first = -(-int(tokens.min()) // step) * step
    lengths = range(max(first, step), int(usual) + step, step)
    return [*(length for length in lengths if length < longest), longest]


def groups_of_texts(
    pools: Iterable[PathOrUrl], qrels: pl.DataFrame, kind: Kind, answers: Answers | None = None
) -> pl.DataFrame:
    """The groups of every question: question_id, group, position (i64: the order of the groups)."""
    files = list(pools)
    if kind == "length":
        return groups_by_length(relevant_lengths(files, qrels, answers))
    tokenizer = WordTokenizer.from_words([])
    rows: list[tuple[str, str, int]] = []
    for unit in list_units(files):
        batch = read_pools(unit, answers)
        questions = zip(batch.question_ids.to_pylist(), batch.questions.to_pylist(), strict=True)
        for question_id, text in questions:
            words = tokenizer.split(text)
            rows.append((question_id, *(_type(words) if kind == "type" else _length(len(words)))))
    schema = {"question_id": pl.String, "group": pl.String, "position": pl.Int64}
    return pl.DataFrame(rows, schema=schema, orient="row")


def _candidates(batch: PoolBatch, pairs: pl.DataFrame) -> pl.DataFrame:
    """The candidates of a batch that are among ``pairs``: question_id, answer_id, text (row of the text)."""
    candidates = batch.pairs().with_columns(text=pl.Series(batch.pair_answer))
    return candidates.join(pairs, on=["question_id", "answer_id"], how="semi", maintain_order="left")


def _type(words: Sequence[str]) -> tuple[str, int]:
    """The group of a question by its first question word, and the group's position."""
    for word in map(str.lower, words):
        if word in QUESTION_WORDS:
            return word, QUESTION_WORDS.index(word)
    return OTHER, len(QUESTION_WORDS)


def _length(tokens: int) -> tuple[str, int]:
    """The group of a question's length, and the group's position."""
    low = 1
    for position, high in enumerate(QUESTION_LENGTHS):
        if tokens <= high:
            return f"{low}-{high} tokens", position
        low = high + 1
    return f"{low} tokens and more", len(QUESTION_LENGTHS)


def relevant_from(qrels: pl.DataFrame, level: int) -> pl.DataFrame:
    """The judgements with a relevance of at least ``level``."""
    return qrels.filter(pl.col("relevance") >= level)
