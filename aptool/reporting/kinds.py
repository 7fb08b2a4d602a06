"""Groups of questions by length, by length of the shortest relevant answer, and by question word."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Literal, TypeAlias, get_args

import polars as pl

from aptool.evaluation.evaluation import Group, group_figures
from aptool.formats.location import PathOrUrl
from aptool.formats.pools import Answers, list_units, read_pools
from aptool.reporting.curves import relevant_lengths
from aptool.text.tokenizer import WordTokenizer

Kind: TypeAlias = Literal["question-length", "answer-length", "type"]
KINDS: tuple[Kind, ...] = get_args(Kind)

# Upper bounds of the groups by length, in words and punctuation marks; the last group has no upper bound.
QUESTION_LENGTHS = (5, 8, 12, 20)
ANSWER_LENGTHS = (10, 20, 40, 80)
# The type of a question is the first of these words in it.
QUESTION_WORDS = ("who", "whom", "whose", "what", "which", "when", "where", "why", "how")
OTHER = "other"
WITHOUT = "no relevant answer in the pool"


def question_groups(
    pools: Iterable[PathOrUrl], qrels: pl.DataFrame, kind: Kind, answers: Answers | None = None
) -> pl.DataFrame:
    """The group of every question.

    Args:
        pools: pools files.
        qrels: question_id, answer_id, relevance.
        kind: what questions are grouped by.
        answers: shared answers of the pools.

    Returns:
        question_id (str), group (str), position (i64: the order of the groups).
    """
    files = [str(path) for path in pools]
    tokenizer = WordTokenizer.from_words([])
    texts: dict[str, list[str]] = {}
    for unit in list_units(files):
        batch = read_pools(unit, answers)
        texts |= {
            question_id: tokenizer.split(text)
            for question_id, text in zip(
                batch.question_ids.to_pylist(), batch.questions.to_pylist(), strict=True
            )
        }
    if kind == "type":
        groups = {question_id: _type(words) for question_id, words in texts.items()}
    elif kind == "question-length":
        groups = {question_id: _length(len(words), QUESTION_LENGTHS) for question_id, words in texts.items()}
    else:
        lengths = dict(relevant_lengths(files, qrels, answers).iter_rows())
        groups = dict.fromkeys(texts, (WITHOUT, len(ANSWER_LENGTHS) + 1))
        groups |= {question_id: _length(tokens, ANSWER_LENGTHS) for question_id, tokens in lengths.items()}
    rows = [(question_id, group, position) for question_id, (group, position) in groups.items()]
    schema = {"question_id": pl.String, "group": pl.String, "position": pl.Int64}
    return pl.DataFrame(rows, schema=schema, orient="row")


def groups_by_kind(
    pools: Iterable[PathOrUrl],
    relevant: pl.DataFrame,
    tables: Mapping[str, pl.DataFrame],
    answers: Answers | None = None,
) -> dict[Kind, dict[str, dict[str, Group]]]:
    """Evaluate runs by every kind of question: kind -> run -> name of the group -> group.

    Args:
        pools: pools files.
        relevant: question_id, answer_id, relevance.
        tables: question_id and one column per measure of each run.
        answers: shared answers of the pools.
    """
    files = list(pools)
    by_kind: dict[Kind, dict[str, dict[str, Group]]] = {}
    for kind in KINDS:
        groups = question_groups(files, relevant, kind, answers)
        by_kind[kind] = {run: group_figures(table, groups) for run, table in tables.items()}
    return by_kind


def _type(words: Sequence[str]) -> tuple[str, int]:
    for word in map(str.lower, words):
        if word in QUESTION_WORDS:
            return word, QUESTION_WORDS.index(word)
    return OTHER, len(QUESTION_WORDS)


def _length(tokens: int, highest: Sequence[int]) -> tuple[str, int]:
    low = 1
    for position, high in enumerate(highest):
        if tokens <= high:
            return f"{low}-{high} tokens", position
        low = high + 1
    return f"{low} tokens and more", len(highest)
