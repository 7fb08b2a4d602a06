"""Validates files against their formats: pools, answers, qrels, runs and whole collections."""

import logging
from collections.abc import Mapping
from typing import NamedTuple

import polars as pl

from aptool.datasets.importing import PoolCounts, log_warnings
from aptool.datasets.lines import read_lines
from aptool.errors import InputError, counted
from aptool.formats.collection import MANIFEST, CollectionFiles
from aptool.formats.location import PathOrUrl, location
from aptool.formats.parquet import open_parquet
from aptool.formats.pools import Answers, answers_beside, list_units, read_answers, read_pools
from aptool.formats.trec import read_qrels, read_run
from aptool.formats.urls import is_object_url, is_remote

logger = logging.getLogger(__name__)

_QRELS_FIELDS, _RUN_FIELDS = 4, 6


class _PoolsFound(NamedTuple):
    """The contents of a pools file, in numbers."""

    question_ids: set[str]
    candidates: int
    row_groups: int
    counts: PoolCounts


def check_path(path: str) -> str:
    """Validates one file or the folder of a collection.

    Returns:
        A description: its format and how much is in it.

    Raises:
        InputError: the first fault, with its place.
    """
    if (not is_remote(path) or is_object_url(path)) and location(path).is_dir():
        return _check_collection(path)
    name = path.rsplit("/", 1)[-1]
    if name == MANIFEST:
        return _check_collection(str(location(path).parent))
    if name.endswith(".parquet"):
        return _check_parquet(path)
    plain = name.removesuffix(".gz")
    if plain.endswith(".qrels") or (not plain.endswith(".run") and _looks_like_qrels(path)):
        qrels = read_qrels(path)
        questions = qrels["question_id"].n_unique()
        relevant = _relevant(qrels).height
        judgements = counted(qrels.height, "judgement")
        return f"qrels, {counted(questions, 'question')}, {judgements}, {relevant:,} relevant"
    return _check_run(path)


def _check_run(path: str) -> str:
    run = read_run(path)
    questions = run.frame["question_id"].n_unique()
    candidates = counted(run.frame.height, "scored candidate")
    return f"run {run.tag!r}, {counted(questions, 'question')}, {candidates}"


def _check_parquet(path: str) -> str:
    with open_parquet(path) as reader:
        names = reader.schema.names
    if "candidates" not in names and {"answer_id", "text"} <= set(names):
        return f"answers, {len(read_answers(path).answer_ids):,}"
    shared = answers_beside(path)
    found = _check_pools(path, read_answers(shared) if shared is not None else None)
    log_warnings(path, found.counts)
    questions, candidates = (
        counted(len(found.question_ids), "question"),
        counted(found.candidates, "candidate"),
    )
    return f"pools, {questions}, {candidates} in {counted(found.row_groups, 'row group')}"


def _check_pools(
    path: PathOrUrl, answers: Answers | None, relevant: Mapping[str, set[str]] | None = None
) -> _PoolsFound:
    """Checks a pools file; ``relevant`` has the relevant answers of each question, None without labels."""
    pool_counts = PoolCounts(labelled=relevant is not None)
    seen: set[str] = set()
    candidates = 0
    units = list_units([path])
    with open_parquet(path) as reader:
        counts = reader.candidate_counts()
    for unit in units:
        pools = read_pools(unit, answers)
        if len(pools.answer_ids) != counts[unit.row_group]:
            place, found = f"row group {unit.row_group}", f"{len(pools.answer_ids)} candidates"
            expected = f"{counts[unit.row_group]}, as the footer says"
            raise InputError(path, place=place, problem=found, expected=expected)
        candidates += len(pools.answer_ids)
        for row, question_id in enumerate(pools.question_ids.to_pylist()):
            if question_id in seen:
                place = f"row group {unit.row_group}: row {row}"
                expected = "each question once"
                raise InputError(
                    path, place=place, column="question_id", value=question_id, expected=expected
                )
            seen.add(question_id)
            start, end = int(pools.offsets[row]), int(pools.offsets[row + 1])
            pool = pools.answer_ids[start:end].to_pylist() if relevant else []
            judged = relevant.get(question_id, ()) if relevant else ()
            pool_counts.add(end - start, sum(answer_id in judged for answer_id in pool))
    return _PoolsFound(seen, candidates, len(units), pool_counts)


def _check_collection(path: str) -> str:
    collection = CollectionFiles(path)
    for name in collection.manifest["files"]:
        collection.verify(name)
    answers = read_answers(collection.answers) if collection.answers else None
    questions = candidates = 0
    for split in collection.splits:
        found = _check_split(collection, split, answers)
        questions += len(found.question_ids)
        candidates += found.candidates
    splits = ", ".join(collection.splits)
    counts = f"{counted(questions, 'question')}, {counted(candidates, 'candidate')}"
    return f"collection {collection.name} ({splits}), {counts}"


def _check_split(collection: CollectionFiles, split: str, answers: Answers | None) -> _PoolsFound:
    if not collection.is_labelled(split):
        found = _check_pools(collection.pools(split), answers)
        _check_counts(collection, split, found, None)
        logger.info(f"{split}: no labels: pools without qrels")
        return found
    qrels_path = collection.qrels(split)
    qrels = read_qrels(qrels_path)
    relevant: dict[str, set[str]] = {}
    for question_id, answer_id in _relevant(qrels).select("question_id", "answer_id").iter_rows():
        relevant.setdefault(question_id, set()).add(answer_id)
    found = _check_pools(collection.pools(split), answers, relevant)
    _check_counts(collection, split, found, _relevant(qrels).height)
    for question_id in qrels["question_id"].unique(maintain_order=True):
        if question_id not in found.question_ids:
            expected = f"a question of {split}.pools.parquet"
            raise InputError(qrels_path, column="question_id", value=question_id, expected=expected)
    return found


def _check_counts(collection: CollectionFiles, split: str, found: _PoolsFound, positives: int | None) -> None:
    """Compares the manifest's counts with the files, and logs the warnings on the pools."""
    counts = {"questions": len(found.question_ids), "candidates": found.candidates}
    counts |= {"positives": positives} if positives is not None else {}
    stated = collection.manifest["splits"][split]
    for key, count in counts.items():
        if stated[key] != count:
            manifest, place = collection.path / MANIFEST, f"splits/{split}/{key}"
            raise InputError(manifest, place=place, value=stated[key], expected=f"{count}, as the files have")
    log_warnings(split, found.counts)


def _relevant(qrels: pl.DataFrame) -> pl.DataFrame:
    return qrels.filter(pl.col("relevance") > 0)


def _looks_like_qrels(path: str) -> bool:
    """Distinguishes qrels from a run by the first line of a file whose name does not tell.

    Raises:
        InputError: it is neither.
    """
    for _, line in read_lines(path):
        fields = line.split()
        if not fields or line.startswith("#"):
            continue
        if len(fields) == _QRELS_FIELDS:
            return True
        if len(fields) >= _RUN_FIELDS and fields[1].upper() == "Q0":
            return False
        expected = "a pools, answers, qrels or run file, collection.json, or the folder of a collection"
        raise InputError(path, value=line, expected=expected)
    raise InputError(path, problem="no line", expected="qrels, a run, or another file of a known format")
