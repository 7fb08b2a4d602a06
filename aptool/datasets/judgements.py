"""Judgements of retrieval collections as a frame: each pair once, contradictions refused or resolved."""

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

import polars as pl

from aptool.datasets.lines import read_rows
from aptool.datasets.pairs import parse_label
from aptool.datasets.policies import CONFLICTS_HINT, Conflicts
from aptool.errors import InputError

QRELS_SCHEMA = {"question_id": pl.String, "answer_id": pl.String, "relevance": pl.Int64}


class Judgement(NamedTuple):
    """A judgement, and where it stands in its file or data set."""

    place: str
    question_id: str
    answer_id: str
    relevance: int


def judgement_frame(
    path: str | Path, rows: Iterable[Judgement], conflicts: Conflicts | None = None
) -> pl.DataFrame:
    """The judgements as question_id, answer_id, relevance, each pair once.

    Args:
        path: where they come from, for messages.
        rows: the judgements.
        conflicts: what becomes of a pair with different labels; None refuses it.

    Raises:
        InputError: there is none, or two contradict each other.
    """
    found: dict[tuple[str, str], int] = {}
    resolved = conflicts if conflicts is not None else Conflicts()
    for place, question, answer, relevance in rows:
        before = found.setdefault((question, answer), relevance)
        if before == relevance:
            continue
        if resolved.resolution == "error":
            expected = f"the score {before} that this pair had before ({CONFLICTS_HINT})"
            raise InputError(path, place=place, column="score", value=relevance, expected=expected)
        found[question, answer] = resolved.resolve(question, answer, before, relevance)
    if not found:
        raise InputError(path, problem="no judgement", expected="query-id<TAB>corpus-id<TAB>score")
    return pl.DataFrame([(*pair, value) for pair, value in found.items()], schema=QRELS_SCHEMA, orient="row")


def read_qrels_tsv(path: str | Path, conflicts: Conflicts | None = None) -> pl.DataFrame:
    """Judgements as ``query-id<TAB>corpus-id<TAB>score``, with or without the header line.

    Raises:
        InputError: a line is not a judgement, or as `judgement_frame`.
    """
    return judgement_frame(path, qrels_rows(path), conflicts)


def qrels_rows(path: str | Path) -> Iterator[Judgement]:
    """The lines of such a file. Raises like `read_qrels_tsv`."""
    for number, line in read_rows(path):
        fields = line.split("\t")
        if number == 1 and fields[-1].strip().lower() in ("score", "relevance", "label"):
            continue
        if len(fields) == 4:  # TREC's: query, iteration, document, relevance
            fields = [fields[0], fields[2], fields[3]]
        place = f"line {number}"
        if len(fields) != 3:
            expected = "query-id<TAB>corpus-id<TAB>score"
            raise InputError(path, place=place, problem=f"{len(fields)} fields", expected=expected)
        query, document, label = fields
        yield Judgement(place, query, document, parse_label(path, place, "score", label, graded=True))
