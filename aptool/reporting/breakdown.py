"""Kinds of questions: the length of its text or of its relevant answer, or its question word."""

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

# Highest lengths of the groups, in words and punctuation marks; longer ones are a group of their own.
QUESTION_LENGTHS = (5, 8, 12, 20)
ANSWER_LENGTHS = (10, 20, 40, 80)
# A question's type is the first of these words in it.
QUESTION_WORDS = ("who", "whom", "whose", "what", "which", "when", "where", "why", "how")
OTHER = "other"
WITHOUT = "no relevant answer in the pool"


def question_groups(
    pools: Iterable[PathOrUrl], qrels: pl.DataFrame, kind: Kind, answers: Answers | None = None
) -> pl.DataFrame:
    """The kind of every question.

    Args:
        pools: pools files.
        qrels: question_id, answer_id, relevance.
        kind: what questions are grouped by; an answer's length is that of the shortest relevant one.
        answers: shared answers of the pools.

    Returns:
        question_id (str), group (str), position (i64: the order of the groups).

    Raises:
        InputError: a file is not a pools file.
    """
    files = [str(path) for path in pools]
    tokenizer = WordTokenizer.from_words([])
    texts: dict[str, list[str]] = {}
    for unit in list_units(files):
        read = read_pools(unit, answers)
        texts |= {
            name: tokenizer.split(text)
            for name, text in zip(read.question_ids.to_pylist(), read.questions.to_pylist(), strict=True)
        }
    if kind == "type":
        found = {name: _type(words) for name, words in texts.items()}
    elif kind == "question-length":
        found = {name: _length(len(words), QUESTION_LENGTHS) for name, words in texts.items()}
    else:
        lengths = dict(relevant_lengths(files, qrels, answers).iter_rows())
        last = (WITHOUT, len(ANSWER_LENGTHS) + 1)
        found = {n: _length(lengths[n], ANSWER_LENGTHS) if n in lengths else last for n in texts}
    rows = [(name, group, place) for name, (group, place) in found.items()]
    schema = {"question_id": pl.String, "group": pl.String, "position": pl.Int64}
    return pl.DataFrame(rows, schema=schema, orient="row")


def figures_by_kind(
    pools: Iterable[PathOrUrl],
    relevant: pl.DataFrame,
    tables: Mapping[str, pl.DataFrame],
    answers: Answers | None = None,
) -> dict[Kind, dict[str, dict[str, Group]]]:
    """The figures of each run by every kind of question: kind -> run -> name of the group -> figures.

    Args:
        pools: pools files.
        relevant: question_id, answer_id, relevance.
        tables: question_id and one column per measure of each run.
        answers: shared answers of the pools.
    """
    files = list(pools)
    figures: dict[Kind, dict[str, dict[str, Group]]] = {}
    for kind in KINDS:
        groups = question_groups(files, relevant, kind, answers)
        figures[kind] = {run: group_figures(table, groups) for run, table in tables.items()}
    return figures


def _type(words: Sequence[str]) -> tuple[str, int]:
    lowered = [word.lower() for word in words]
    for word in lowered:
        if word in QUESTION_WORDS:
            return word, QUESTION_WORDS.index(word)
    return OTHER, len(QUESTION_WORDS)


def _length(tokens: int, highest: Sequence[int]) -> tuple[str, int]:
    low = 1
    for place, high in enumerate(highest):
        if tokens <= high:
            return f"{low}-{high} tokens", place
        low = high + 1
    return f"{low} tokens and more", len(highest)
