"""The questions of a split with what each system ranked for them, as the report's browser reads it.

Every text is kept once. Of each system's ranking the first answers are kept and every answer that is right,
wherever it stands; heat maps for the answer ranked first and for the best-ranked right one.
"""

import logging
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import polars as pl

from aptool.formats.collection import Collection
from aptool.formats.pools import list_units, read_answers, read_pools
from aptool.formats.trec import rank_candidates, read_qrels, read_run
from aptool.models.model import load_model
from aptool.reporting.heatmap import gives_weights, heat_maps, window_of
from aptool.reporting.packing import packed_spans, packed_weights

logger = logging.getLogger(__name__)


class BrowserSystem(NamedTuple):
    """A system as it appears in the browser: one run of it."""

    name: str
    seed: int
    run: Path
    model: Path | None


class Browsable(NamedTuple):
    """What the browser shows.

    Attributes:
        listing: ids and texts of the questions, and where each system has the first right answer.
        questions: one record a question: its answers, rankings and heat maps.
        texts: answers, each a text, or a text with the places of its words.
        left_out: questions beyond the limit.
    """

    listing: dict[str, Any]
    questions: list[dict[str, Any]]
    texts: list[Any]
    left_out: int


# Answer ids, scores and ranks of a question, in the order of the ranks.
_Row = tuple[list[str], list[float], list[int]]


class _Question(NamedTuple):
    """A question while its record is being made."""

    question_id: str
    text: str
    texts: dict[str, str]  # of the answers that are shown
    record: dict[str, Any]


def browse(
    collection: Collection,
    split: str,
    systems: Sequence[BrowserSystem],
    *,
    depth: int,
    limit: int,
) -> Browsable:
    """Collects what the browser shows.

    Args:
        collection: with the texts and the judgements.
        split: that was scored.
        systems: their runs; one with a model folder gets heat maps.
        depth: answers kept from the top of each ranking.
        limit: questions shown, from the first on.

    Raises:
        InputError: a file cannot be read.
    """
    right = read_qrels(collection.qrels(split)).filter(pl.col("relevance") > 0)
    rankings = [_Ranking(system, right, depth) for system in systems]
    right_ids = dict(right.group_by("question_id").agg("answer_id").iter_rows())
    texts: dict[str, int] = {}
    questions: list[_Question] = []
    pool_sizes: list[int] = []
    total = 0
    for question_id, question, pool in _pools(collection, split):
        total += 1
        if len(questions) == limit:
            continue
        kept: list[_Row] = [ranking.kept.get(question_id, ([], [], [])) for ranking in rankings]
        wanted = list(dict.fromkeys(answer for answers, _, _ in kept for answer in answers if answer in pool))
        place = {answer: number for number, answer in enumerate(wanted)}
        gold = right_ids.get(question_id, [])
        record = {
            "a": [[answer, texts.setdefault(pool[answer], len(texts))] for answer in wanted],
            "g": [place[answer] for answer in gold if answer in place],
            "x": sorted(answer for answer in gold if answer not in pool),
            "r": [
                [
                    [place[a], float(f"{score:.6g}"), rank]
                    for a, score, rank in zip(*row, strict=True)
                    if a in place
                ]
                for row in kept
            ],
            "h": {},
        }
        questions.append(_Question(question_id, question, {a: pool[a] for a in wanted}, record))
        pool_sizes.append(len(pool))
    stored: list[Any] = list(texts)
    described = [_describe(system, number, questions, texts, stored) for number, system in enumerate(systems)]
    listing = {
        "systems": described,
        "depth": depth,
        "ids": [question.question_id for question in questions],
        "texts": [question.text for question in questions],
        "pool": pool_sizes,
        "first": [[ranking.first.get(one.question_id, 0) for one in questions] for ranking in rankings],
    }
    return Browsable(listing, [question.record for question in questions], stored, total - len(questions))


class _Ranking:
    """What is shown of one run."""

    def __init__(self, system: BrowserSystem, right: pl.DataFrame, depth: int) -> None:
        judged = right.select("question_id", "answer_id", right=pl.lit(True))
        ranked = rank_candidates(read_run(system.run).frame)
        ranked = ranked.join(judged, on=["question_id", "answer_id"], how="left", maintain_order="left")
        is_right = pl.col("right").is_not_null()
        kept = ranked.filter((pl.col("rank") <= depth) | is_right)
        grouped = kept.group_by("question_id", maintain_order=True).agg("answer_id", "score", "rank")
        self.kept: dict[str, _Row] = {row[0]: row[1:] for row in grouped.iter_rows()}
        # question id -> rank of the first right answer
        self.first = dict(
            ranked.filter(is_right).group_by("question_id").agg(pl.col("rank").min()).iter_rows()
        )


def _pools(collection: Collection, split: str) -> Iterator[tuple[str, str, dict[str, str]]]:
    """(question id, question, answer id -> text) of every pool, in file order."""
    answers = read_answers(collection.answers) if collection.answers else None
    for unit in list_units([collection.pools(split)]):
        pools = read_pools(unit, answers)
        texts = pools.answers.to_pylist()
        ids, pair_answer = pools.answer_ids.to_pylist(), pools.pair_answer.tolist()
        rows = zip(pools.question_ids.to_pylist(), pools.questions.to_pylist(), strict=True)
        for number, (question_id, question) in enumerate(rows):
            pairs = range(int(pools.offsets[number]), int(pools.offsets[number + 1]))
            yield question_id, question, {ids[pair]: texts[pair_answer[pair]] for pair in pairs}


def _describe(
    system: BrowserSystem,
    number: int,
    questions: list[_Question],
    texts: dict[str, int],
    stored: list[Any],
) -> dict[str, Any]:
    """The listing's entry of a system; adds its heat maps to the questions' records."""
    described: dict[str, Any] = {"name": system.name, "seed": system.seed}
    if system.model is None:
        return described
    model = load_model(system.model)
    if not gives_weights(model.ranker.pooling):
        return described
    logger.info(f"heat maps of {system.name}")
    wanted = [(question, answer) for question in questions for answer in _looked_at(question, number)]
    pairs = [(question.text, question.texts[question.record["a"][answer][0]]) for question, answer in wanted]
    for (question, answer), found in zip(wanted, heat_maps(model, pairs), strict=True):
        question.record.setdefault("s", packed_spans(found.question))
        row = texts[found.answer.text]
        if isinstance(stored[row], str):
            stored[row] = [stored[row], packed_spans(found.answer)]
        maps = question.record["h"].setdefault(str(number), [])
        maps.append([answer, *(_packed(side) for side in (found.question, found.answer))])
        described["kind"] = found.kind
    described["window"] = list(window_of(model.ranker.encoder))
    return described


def _looked_at(question: _Question, system: int) -> list[int]:
    """The answer ranked first and the best-ranked right one: often the same."""
    ranking, gold = question.record["r"][system], set(question.record["g"])
    first = [answer for answer, _, _ in ranking[:1]]
    best = [answer for answer, _, _ in ranking if answer in gold][:1]
    return list(dict.fromkeys(first + best))


def _packed(side: Any) -> list[Any]:
    return [packed_weights(side.weights), sorted(side.unknown)]
