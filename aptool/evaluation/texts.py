"""Texts in pools files: lookup by id, and groups of questions by the length of the relevant answer."""

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
import polars as pl
import pyarrow as pa

from aptool.data.pools import Answers, PoolBatch, Pools, list_units, read_pools
from aptool.data.runs import Qrels
from aptool.errors import UsageError
from aptool.paths import PathOrUrl
from aptool.text.tokenizer import WordTokenizer

_MOST_LENGTHS = 12  # groups by the length of the relevant answer
_ROUND_STEPS = (1, 2, 5)


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


def length_groups(pools: Pools, qrels: Qrels) -> pl.DataFrame:
    """`groups_by_length` of pools and qrels; raise if no relevant answer is in the pools."""
    with pools.files() as (files, answers):
        groups = groups_by_length(relevant_lengths(files, qrels.frame, answers))
        if groups.is_empty():
            judgements = qrels.path or "the qrels"
            raise UsageError(f"by length: no relevant answer of {judgements} is in {', '.join(files)}")
    return groups


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


def _candidates(batch: PoolBatch, pairs: pl.DataFrame) -> pl.DataFrame:
    """The candidates of a batch that are among ``pairs``: question_id, answer_id, text (row of the text)."""
    candidates = batch.pairs().with_columns(text=pl.Series(batch.pair_answer))
    return candidates.join(pairs, on=["question_id", "answer_id"], how="semi", maintain_order="left")
