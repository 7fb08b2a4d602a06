"""Texts of pools: lookup by id, and groups of questions by the length of the relevant answer."""

import numpy as np
import polars as pl

from aptool.data.pools import PoolBatch, Pools
from aptool.data.runs import Qrels
from aptool.text.tokenizer import WordTokenizer

_MOST_LENGTHS = 12  # groups by the length of the relevant answer
_ROUND_STEPS = (1, 2, 5)
_KEYS = ["question_id", "answer_id"]


def with_texts(pairs: pl.DataFrame, pools: Pools | None) -> pl.DataFrame:
    """Add the texts of pairs (question_id, answer_id) as question and answer; null if they are unknown.

    One unit of work of the pools is in memory at a time.
    """
    parts = [pl.DataFrame(schema=dict.fromkeys((*_KEYS, "question", "answer"), pl.String))]
    for batch in pools.batches() if pools is not None else ():
        rows = _candidates(batch, pairs)
        parts.append(
            rows.select(
                *_KEYS,
                question=pl.Series(batch.questions.take(rows["question"].to_arrow())),
                answer=pl.Series(batch.answers.take(rows["answer"].to_arrow())),
            )
        )
    texts = pl.concat(parts).unique(_KEYS, maintain_order=True)
    return pairs.join(texts, on=_KEYS, how="left", maintain_order="left")


def length_groups(pools: Pools, qrels: Qrels) -> pl.DataFrame:
    """The questions whose shortest relevant answer has at most N words (figures 3 and 4 of the paper).

    Returns question_id, group, position (i64: N), with the groups of each question, for the
    `length_thresholds` N. A question without a relevant answer in its pool is in no group.
    """
    return groups_by_length(relevant_lengths(pools, qrels))


def relevant_lengths(pools: Pools, qrels: Qrels) -> pl.DataFrame:
    """The length of the shortest relevant answer of each question with one in its pool, in order.

    Returns question_id (str), tokens (i64: words and punctuation marks).
    """
    judged = qrels.frame.filter(pl.col("relevance") > 0).select(_KEYS)
    tokenizer = WordTokenizer.from_words([])
    parts = [pl.DataFrame(schema={"question_id": pl.String, "tokens": pl.Int64})]
    for batch in pools.batches():
        relevant = _candidates(batch, judged)
        texts = batch.answers.take(relevant["answer"].to_arrow()).to_pylist()
        tokens = pl.Series("tokens", [len(tokenizer.split(text)) for text in texts], dtype=pl.Int64)
        parts.append(relevant.select("question_id", tokens))
    return pl.concat(parts).group_by("question_id", maintain_order=True).agg(pl.col("tokens").min())


def groups_by_length(lengths: pl.DataFrame) -> pl.DataFrame:
    """`length_groups` of a table of `relevant_lengths`."""
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
    """The candidates of a batch that are among ``pairs``: both ids, and the rows of both texts."""
    candidates = batch.pairs().with_columns(
        question=pl.Series(batch.pair_question), answer=pl.Series(batch.pair_answer)
    )
    return candidates.join(pairs, on=_KEYS, how="semi", maintain_order="left")
