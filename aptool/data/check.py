"""Validation of files and collections, leaks between splits, and warnings on the pools of an evaluation.

A leak is a question or a relevant answer that an earlier split has nearly word for word: a test question that
a system has seen in training does not test the system.
"""

import logging
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import polars as pl

from aptool.data.collection import Collection
from aptool.data.folds import labelled_pools
from aptool.data.near_copies import THRESHOLD, encode, near_pairs
from aptool.data.parquet import open_parquet
from aptool.data.pools import Answers, answers_beside, list_units, read_answers, read_pools
from aptool.data.runs import is_folder, read_run
from aptool.data.table_files import read_lines
from aptool.data.trec import is_beir_header, read_qrels, to_dicts
from aptool.data.writing import MANIFEST, QRELS_SUFFIX, PoolCounts, log_warnings, manifest_beside
from aptool.errors import InputError, counted
from aptool.files import unpacked_name
from aptool.paths import PathOrUrl, location
from aptool.text.words import unicode_words as words

logger = logging.getLogger(__name__)

_QRELS_FIELDS, _RUN_FIELDS = 4, 6


def is_collection(path: str) -> bool:
    """Whether a path is a folder, but not that of a run in parts."""
    return location(path).is_dir() and not is_folder(path)


def check_path(path: str) -> str:
    """Validate a file or the folder of a collection, and describe its format and size."""
    if is_collection(path):
        return _check_collection(path)
    if is_folder(path):
        return _check_run(path)
    name = path.rsplit("/", 1)[-1]
    if name.endswith(".parquet"):
        return _check_parquet(path)
    plain = unpacked_name(name)
    if plain.endswith(".qrels") or (not plain.endswith(".run") and _looks_like_qrels(path)):
        return _check_qrels(path)
    return _check_run(path)


def _check_qrels(path: str) -> str:
    qrels = read_qrels(path)
    questions = counted(qrels["question_id"].n_unique(), "question")
    judgements = counted(qrels.height, "judgement")
    return f"qrels, {questions}, {judgements}, {_relevant(qrels).height:,} relevant"


def _check_run(path: str) -> str:
    run = read_run(path)
    questions = counted(run.frame["question_id"].n_unique(), "question")
    return f"run {run.tag!r}, {questions}, {counted(run.frame.height, 'scored candidate')}"


def _check_parquet(path: str) -> str:
    with open_parquet(path) as reader:
        names, row_groups = reader.schema.names, reader.metadata.num_row_groups
    if "score" in names:
        return _check_run(path)
    if "candidates" not in names and "relevance" in names:
        return _check_qrels(path)
    if "candidates" not in names and {"answer_id", "text"} <= set(names):
        return f"answers, {len(read_answers(path).answer_ids):,}"
    shared = answers_beside(path)
    _, counts = _check_pools(path, read_answers(shared) if shared is not None else None)
    log_warnings(path, counts)
    return f"pools, {_sizes([counts])} in {counted(row_groups, 'row group')}"


def _check_pools(
    path: PathOrUrl, answers: Answers | None, judgements: Mapping[str, Mapping[str, int]] | None = None
) -> tuple[set[str], PoolCounts]:
    """Check a pools file; return its question ids and counts."""
    pool_counts = PoolCounts(labelled=judgements is not None)
    seen: set[str] = set()
    for unit in list_units([path]):
        pools = read_pools(unit, answers)
        for pool in pools.records():
            if pool.question_id in seen:
                value, expected = pool.question_id, "each question once"
                raise InputError(
                    path, position=unit.position, column="question_id", value=value, expected=expected
                )
            seen.add(pool.question_id)
            judged = judgements.get(pool.question_id, {}) if judgements else {}
            relevant = sum(judged.get(answer_id, 0) > 0 for answer_id in pool.answer_ids)
            pool_counts.add(len(pool.answer_ids), relevant, judged=bool(judged))
    return seen, pool_counts


def _check_collection(path: str) -> str:
    collection = Collection(path)
    for name in collection.manifest["files"]:
        collection.verify(name)
    answers = read_answers(collection.answers) if collection.answers else None
    counts = [_check_split(collection, split, answers) for split in collection.splits]
    return f"collection {collection.name} ({', '.join(collection.splits)}), {_sizes(counts)}"


def _sizes(counts: list[PoolCounts]) -> str:
    questions = counted(sum(count.questions for count in counts), "question")
    return f"{questions}, {counted(sum(count.candidates for count in counts), 'candidate')}"


def _check_split(collection: Collection, split: str, answers: Answers | None) -> PoolCounts:
    """Check the files of a split, and the manifest's counts."""
    qrels_path = collection.qrels_file(split)
    qrels = read_qrels(qrels_path)
    question_ids, pool_counts = _check_pools(
        collection.pools_file(split), answers, to_dicts(qrels, "relevance")
    )
    counts = {
        "questions": pool_counts.questions,
        "candidates": pool_counts.candidates,
        "positives": _relevant(qrels).height,
    }
    manifest_counts = collection.manifest["splits"][split]
    for key, count in counts.items():
        if manifest_counts[key] != count:
            manifest, position = collection.path / MANIFEST, f"splits/{split}/{key}"
            expected = f"{count}, as the files have"
            raise InputError(manifest, position=position, value=manifest_counts[key], expected=expected)
    log_warnings(split, pool_counts)
    for question_id in qrels["question_id"].unique(maintain_order=True):
        if question_id not in question_ids:
            expected = f"a question of {split}.pools.parquet"
            raise InputError(qrels_path, column="question_id", value=question_id, expected=expected)
    return pool_counts


def _relevant(qrels: pl.DataFrame) -> pl.DataFrame:
    return qrels.filter(pl.col("relevance") > 0)


def _looks_like_qrels(path: str) -> bool:
    """Tell qrels from a run by the first line of a file; refuse other files."""
    for _, line in read_lines(path):
        fields = line.split()
        if not fields or line.startswith("#"):
            continue
        if len(fields) == _QRELS_FIELDS or is_beir_header(line):
            return True
        if len(fields) >= _RUN_FIELDS and fields[1].upper() == "Q0":
            return False
        expected = "a pools, answers, qrels or run file, or the folder of a collection"
        raise InputError(path, value=line, expected=expected)
    raise InputError(path, problem="no line", expected="qrels, a run, or another file of a known format")


class Copies(NamedTuple):
    """The questions or the answers of a split, and those that an earlier split has too, as numbers."""

    total: int
    same: int  # with exactly the words of an earlier text
    near: int  # near copies of an earlier text, or equal to one


class Leak(NamedTuple):
    """The texts of a split that an earlier split has too."""

    split: str
    earlier: str  # the earlier split, such as train
    questions: Copies
    answers: Copies  # distinct relevant answers
    # Up to five pairs of near copies: question id of ``split``, question id of ``earlier``.
    examples: list[tuple[str, str]]


Words = tuple[str, ...]


def find_leaks(collection: Collection) -> list[Leak]:
    """Compare each split with each earlier split."""
    leaks = []
    compared: dict[str, tuple[dict[str, Words], list[Words]]] = {}
    for name in collection.splits:
        questions, answers = _texts(collection, name)
        for earlier, (earlier_questions, earlier_answers) in compared.items():
            of_questions, pairs = _copies([*questions.values()], [*earlier_questions.values()])
            of_answers, _ = _copies(answers, earlier_answers)
            ids, earlier_ids = list(questions), list(earlier_questions)
            examples = [(ids[i], earlier_ids[j]) for i, j in pairs.items()]
            leaks.append(Leak(name, earlier, of_questions, of_answers, examples[:5]))
        compared[name] = questions, answers
    return leaks


def _texts(collection: Collection, split: str) -> tuple[dict[str, Words], list[Words]]:
    """The words of each question by its id, and those of the distinct relevant answers."""
    questions: dict[str, Words] = {}
    answers: dict[Words, None] = {}
    for pool in labelled_pools(collection, split):
        questions[pool.question_id] = tuple(words(pool.question))
        for answer_id, text in zip(pool.answer_ids, pool.texts or (), strict=True):
            if pool.relevance.get(answer_id, 0) > 0:
                answers[tuple(words(text))] = None
    return questions, list(answers)


def _copies(texts: Sequence[Words], earlier: Sequence[Words]) -> tuple[Copies, dict[int, int]]:
    """Count copies; the dict has the row of each near copy, and the row of its first earlier text."""
    known = {*earlier}
    sets = encode([*texts, *earlier], 1)
    pairs: dict[int, int] = {}
    for i, j in near_pairs(sets[: len(texts)], sets[len(texts) :], THRESHOLD):
        pairs.setdefault(i, j)
    return Copies(len(texts), sum(text in known for text in texts), len(pairs)), pairs


def warn_of_runs(runs: Mapping[str, pl.DataFrame], qrels: pl.DataFrame, levels: Iterable[int]) -> None:
    """Log the warnings on the pools that runs rank, once for all runs and levels with the same warning.

    ``levels`` are those of the measures: the least relevance of a relevant candidate.
    """
    logged: set[str] = set()
    for name, frame in runs.items():
        for level in sorted(set(levels)):
            for line in _count_pools(frame, qrels, level).warnings:
                if line not in logged:
                    logged.add(line)
                    logger.warning(f"{name}: warning: {line}")


def warn_of_added(qrels: PathOrUrl) -> None:
    """Warn if the pools of the split of qrels hold relevant answers that the first stage missed."""
    path = location(qrels)
    manifest = manifest_beside(path)
    if manifest is None:
        return
    split = path.name.removesuffix(QRELS_SUFFIX)
    stage = manifest["details"].get("first_stage", {}).get(split, {})
    added = stage.get("relevant_added", 0)
    if added:
        answers = counted(added, "relevant answer")
        logger.warning(
            f"{split}: warning: its pools hold {answers} that the first stage missed (--add-relevant), so "
            "figures are higher than after this first stage"
        )


def _count_pools(pairs: pl.DataFrame, qrels: pl.DataFrame, level: int) -> PoolCounts:
    """Count the pools of the judged questions of a run."""
    keys = ["question_id", "answer_id"]
    is_relevant = qrels.filter(pl.col("relevance") >= level).select(*keys, relevant=pl.lit(True))
    judged = pairs.join(qrels.select("question_id").unique(), on="question_id", how="semi")
    marked = judged.join(is_relevant, on=keys, how="left")
    sizes = marked.group_by("question_id").agg(size=pl.len(), relevant=pl.col("relevant").sum())
    counts = PoolCounts(level=level, is_run=True)
    for size, relevant in sizes.select("size", "relevant").iter_rows():
        counts.add(size, relevant)
    return counts
