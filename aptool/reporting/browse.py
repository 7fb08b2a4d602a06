"""Data of the report's question browser: the questions of a split with each system's ranking.

Each distinct text is stored once. A ranking contains its first answers and all relevant answers. The first
answer and the highest-ranked relevant answer have heat maps.
"""

import base64
import gzip
import json
import logging
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import polars as pl

from aptool.datasets.leaks import pools_with
from aptool.formats.collection import CollectionFiles
from aptool.formats.runs import read_run
from aptool.formats.trec import rank_candidates, read_qrels
from aptool.reporting.runs import RunEntry

if TYPE_CHECKING:
    import torch

    from aptool.models.explain import TextWeights

logger = logging.getLogger(__name__)

# Weights are fixed-point numbers in this unit: exact to 6e-8, four characters each.
WEIGHT_UNIT = (1 << 24) - 1

# Answer ids, scores and ranks of a question, in rank order.
_Row = tuple[list[str], list[float], list[int]]


class BrowserData(NamedTuple):
    """The data of the browser."""

    listing: dict[str, Any]  # ids and texts of the questions, and ranks of the first relevant answer
    questions: list[dict[str, Any]]  # one record per question: its answers, rankings and heat maps
    texts: list[Any]  # texts of answers, each a string, or a string with the spans of its words
    left_out: int  # number of questions beyond the limit


class _Question(NamedTuple):
    """A question with the texts of its shown answers by id, and its JSON record without heat maps."""

    question_id: str
    text: str
    texts: dict[str, str]
    record: dict[str, Any]


def browse(
    collection: CollectionFiles,
    split: str,
    runs: Sequence[RunEntry],
    *,
    depth: int,
    limit: int,
    device: "torch.device | str | None",
) -> BrowserData:
    """Collect the data of the browser: the first ``depth`` answers per ranking of ``limit`` questions.

    Runs of trained systems get heat maps, unless the device is None.
    """
    judged = read_qrels(collection.qrels(split)).filter(pl.col("relevance") > 0)
    rankings, firsts = zip(*(_ranking(run, judged, depth) for run in runs), strict=True)
    texts: dict[str, int] = {}
    questions: list[_Question] = []
    pool_sizes: list[int] = []
    total = 0
    for pool_of_question in pools_with(collection, split, judged):
        question_id, question, answer_ids, pool_texts, relevance, _ = pool_of_question
        total += 1
        if len(questions) == limit:
            continue
        pool = dict(zip(answer_ids, pool_texts or (), strict=True))
        rows: list[_Row] = [ranking.get(question_id, ([], [], [])) for ranking in rankings]
        shown = list(dict.fromkeys(answer for answers, _, _ in rows for answer in answers if answer in pool))
        index = {answer: number for number, answer in enumerate(shown)}
        relevant = list(relevance)
        record = {
            "answers": [[answer, texts.setdefault(pool[answer], len(texts))] for answer in shown],
            "relevant": [index[answer] for answer in relevant if answer in index],
            "missing": sorted(answer for answer in relevant if answer not in pool),
            "rankings": [
                [
                    [index[answer], float(f"{score:.6g}"), rank]
                    for answer, score, rank in zip(*row, strict=True)
                    if answer in index
                ]
                for row in rows
            ],
            "heat_maps": {},
        }
        questions.append(_Question(question_id, question, {answer: pool[answer] for answer in shown}, record))
        pool_sizes.append(len(pool))
    stored: list[Any] = list(texts)
    described = [_describe(run, number, questions, texts, stored, device) for number, run in enumerate(runs)]
    listing = {
        "systems": described,
        "depth": depth,
        "ids": [question.question_id for question in questions],
        "texts": [question.text for question in questions],
        "pool": pool_sizes,
        "first": [[first.get(question.question_id, 0) for question in questions] for first in firsts],
    }
    return BrowserData(listing, [question.record for question in questions], stored, total - len(questions))


def _ranking(run: RunEntry, judged: pl.DataFrame, depth: int) -> tuple[dict[str, _Row], dict[str, int]]:
    """The shown part of each question's ranking, and the rank of each question's first relevant answer."""
    relevant = judged.select("question_id", "answer_id", relevant=pl.lit(True))
    ranked = rank_candidates(read_run(run.run).frame)
    ranked = ranked.join(relevant, on=["question_id", "answer_id"], how="left", maintain_order="left")
    is_relevant = pl.col("relevant").is_not_null()
    shown = ranked.filter((pl.col("rank") <= depth) | is_relevant)
    grouped = shown.group_by("question_id", maintain_order=True).agg("answer_id", "score", "rank")
    first = ranked.filter(is_relevant).group_by("question_id").agg(pl.col("rank").min())
    return {row[0]: row[1:] for row in grouped.iter_rows()}, dict(first.iter_rows())


def _describe(
    run: RunEntry,
    number: int,
    questions: list[_Question],
    texts: dict[str, int],
    stored: list[Any],
    device: "torch.device | str | None",
) -> dict[str, Any]:
    """Return a system's entry in the listing, and add its heat maps to the records of the questions."""
    described: dict[str, Any] = {"name": run.system, "seed": run.seed}
    if run.model is None or device is None:
        return described
    from aptool.models.checkpoints import load_any
    from aptool.models.explain import explain_pairs, gives_weights, window_of

    model = load_any(run.model, device)
    if not gives_weights(model):
        return described
    logger.info(f"heat maps of {run.system}")
    explained = [(question, answer) for question in questions for answer in _explained(question, number)]
    pairs = [
        (question.text, question.texts[question.record["answers"][answer][0]])
        for question, answer in explained
    ]
    for (question, answer), explanation in zip(explained, explain_pairs(model, pairs), strict=True):
        question.record.setdefault("spans", packed_spans(explanation.question))
        row = texts[explanation.answer.text]
        if isinstance(stored[row], str):
            stored[row] = [stored[row], packed_spans(explanation.answer)]
        maps = question.record["heat_maps"].setdefault(str(number), [])
        maps.append([answer, _packed(explanation.question), _packed(explanation.answer)])
        described["kind"] = explanation.kind
    described["window"] = list(window_of(model.ranker.encoder))
    return described


def _explained(question: _Question, system: int) -> list[int]:
    """The answers with a heat map: the first answer and the highest-ranked relevant answer."""
    ranking, relevant = question.record["rankings"][system], set(question.record["relevant"])
    first = [answer for answer, _, _ in ranking[:1]]
    best = [answer for answer, _, _ in ranking if answer in relevant][:1]
    return list(dict.fromkeys(first + best))


def _packed(text: "TextWeights") -> list[Any]:
    return [packed_weights(text.weights), sorted(text.unknown)]


class Block(NamedTuple):
    """A compressed block of a page's data."""

    id: str  # id of its element
    data: str  # base64


def pack(document: Any) -> str:
    """Compress a JSON document to base64 of gzip; equal documents give equal strings."""
    text = json.dumps(document, ensure_ascii=False, separators=(",", ":"))
    packed = gzip.compress(text.encode(), compresslevel=6, mtime=0)
    return base64.b64encode(packed).decode("ascii")


def blocks(name: str, records: Sequence[Any], size: int) -> Iterator[Block]:
    """Pack records into blocks: record i is in block ``NAME-(i // size)``."""
    for number, start in enumerate(range(0, len(records), size)):
        yield Block(f"{name}-{number}", pack(records[start : start + size]))


def packed_weights(weights: np.ndarray) -> str:
    """Encode (L,) weights with sum 1 as 24-bit fixed-point numbers in base64, four characters each.

    They are decoded to within 6e-8 each, with a sum of exactly 1.
    """
    exact = weights / weights.sum() * WEIGHT_UNIT
    units = np.floor(exact).astype(np.int64)
    # Largest remainder method: the units lost by rounding down go to the largest remainders.
    short = WEIGHT_UNIT - int(units.sum())
    units[np.argsort(units - exact, kind="stable")[:short]] += 1
    return base64.b64encode(units.astype(">u4").view(np.uint8).reshape(-1, 4)[:, 1:].tobytes()).decode(
        "ascii"
    )


def packed_spans(text: "TextWeights") -> list[int]:
    """Encode the spans of words in UTF-16 units, as in JavaScript: gap, length, gap, length, ..."""
    numbers, end = [], 0
    for begin, stop in text.spans:
        numbers += [_units(text.text[end:begin]), _units(text.text[begin:stop])]
        end = stop
    return numbers


def _units(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode("utf-16-le")) // 2
