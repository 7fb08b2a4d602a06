"""Write the pools of all importers as a collection, count the rows, and warn about unusual pools."""

import logging
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import polars as pl

from aptool.data.frames import comparable
from aptool.data.writing import (
    QRELS_SUFFIX,
    CollectionWriter,
    LabelledPool,
    PoolCounts,
    is_split,
    manifest_beside,
)
from aptool.errors import InputError, UsageError, counted
from aptool.paths import Location, PathOrUrl, location, output_location, with_home

logger = logging.getLogger(__name__)

SAME_ID_EXCLUDED = "candidates_with_the_id_of_their_question_excluded"
ANSWERS_ADDED = "answers_of_other_questions_added"
UNLABELLED_DROPPED = "rows_without_a_label_dropped"
SPELLINGS_JOINED = "other_spellings_of_a_question_joined"  # see `comparable`


def parse_splits(arguments: Iterable[str], hint: str = "") -> dict[str, str]:
    """Parse ``SPLIT=PATH`` arguments; ``hint`` is an alternative for the error."""
    splits: dict[str, str] = {}
    for argument in arguments:
        split, equals, path = argument.partition("=")
        if not (equals and path and is_split(split)):
            file = path or argument.rstrip("=") or "questions.tsv"
            raise UsageError(f"{argument!r}: expected SPLIT=PATH, such as test={file}{hint}")
        if split in splits:
            raise UsageError(f"{argument!r}: split {split!r} is given twice")
        splits[split] = with_home(path)
    return splits


def splits_in(folder: Location, names: Mapping[str, Sequence[str]]) -> dict[str, str]:
    """The paths of the splits of a published data set in a folder, from their possible names."""
    splits: dict[str, str] = {}
    for split, choices in names.items():
        paths = [folder / name for name in choices]
        path = next((path for path in paths if path.exists()), None)
        if path is not None:
            splits[split] = str(path)
        elif split != "test":
            expected = f"{' or '.join(choices)}, or in `aptool data import` SPLIT=PATH for other names"
            raise InputError(folder, problem=f"no split {split!r}", expected=expected)
    return splits


def collection_name(output: PathOrUrl) -> str:
    """Derive the name of a collection, one word, from its folder."""
    return re.sub(r"\s+", "-", output_location(output).name) or "collection"


class SplitPools(NamedTuple):
    """The pools of one split."""

    path: PathOrUrl  # source of the pools, for messages
    pools: Iterable[LabelledPool]  # the pools
    counts: dict[str, int] | None = None  # rows per policy; complete once the pools are read


def write_collection(
    out: PathOrUrl,
    *,
    name: str,
    source: str,
    splits: Mapping[str, SplitPools],
    questions: str = "all",
    details: Mapping[str, Any] | None = None,
    answers: Iterable[tuple[str, str]] | None = None,
    overwrite: bool = False,
) -> None:
    """Write a collection and log warnings on its pools.

    The splits are read one after the other. ``answers`` are the ``(answer id, text)`` pairs that pools share.
    The manifest's ``details`` get the entry ``read``, with the counts before any policy.
    """
    rows_read: dict[str, dict[str, int]] = {}
    # The manifest is written last, with the final `rows_read`.
    details = {**(details or {}), "questions": questions, "read": rows_read}
    with CollectionWriter(
        out, name=name, source=source, questions=questions, details=details, overwrite=overwrite
    ) as writer:
        if answers is not None:
            writer.add_answers(answers)
        for split, content in splits.items():
            rows_read[split] = writer.add_split(split, content.pools, content.path)
            counts = content.counts or {}
            rows_read[split]["candidates"] += counts.get(UNLABELLED_DROPPED, 0) - counts.get(ANSWERS_ADDED, 0)
            for policy, rows in counts.items():
                if rows:
                    writer.count(policy, split, rows)
    for split, written in writer.pool_counts.items():
        log_warnings(split, written)


def fill_pools(
    content: SplitPools,
    pool_size: int | None = None,
    seed: int = 0,
    *,
    has_answer_ids: bool,
    shared: Iterable[tuple[str, str]] = (),
) -> Iterator[LabelledPool]:
    """Add answers of other questions of the split to each pool, in the order in which the source has them.

    Equal answers are one candidate, which is relevant for each question that has the answer. Pools get all
    answers, or answers drawn at random up to ``pool_size`` candidates. Without ids of the source, a candidate
    is numbered by the first occurrence of its answer in the split. ``shared`` are the ids and texts of
    answers that need not be in a pool.
    """
    answers: dict[str, tuple[str, str]] = {}  # comparable text -> first id, first text
    texts: dict[str, str] = {}  # answer id -> comparable text

    def add(answer_id: str, text: str, position: str) -> str:
        key = comparable(text)
        answers.setdefault(key, (answer_id, text))
        if texts.setdefault(answer_id, key) != key:
            expected = f"the text that answer {answer_id!r} has in another question"
            raise InputError(content.path, position=position, column="answer", value=text, expected=expected)
        return key

    for answer_id, text in shared:
        add(answer_id, text, f"answer {answer_id!r}")
    labelled = []
    for pool in content.pools:
        labels: dict[str, int] = {}
        position = f"question {pool.question_id!r}"
        for answer_id, text in zip(pool.answer_ids, pool.texts or (), strict=True):
            label = pool.relevance[answer_id]
            earlier = labels.setdefault(add(answer_id, text, position), label)
            if label != earlier:
                expected = f"one label, not {earlier} and {label}"
                raise InputError(
                    content.path, position=position, column="answer", value=text, expected=expected
                )
        labelled.append((pool, labels))
    keys, ids_and_texts = list(answers), list(answers.values())
    numbers = {key: number for number, key in enumerate(keys)}
    random = np.random.default_rng(seed)
    for pool, labels in labelled:
        if not labels:  # a question without an answer, which the import drops and counts
            yield pool
            continue
        chosen = list(range(len(keys)))
        if pool_size is not None:
            own = [numbers[key] for key in labels]
            size = min(pool_size + len(own), len(keys))
            drawn = random.choice(len(keys), size, replace=False).tolist()
            others = [number for number in drawn if keys[number] not in labels]
            chosen = sorted([*own, *others[: max(pool_size - len(own), 0)]])
        ids = [ids_and_texts[n][0] if has_answer_ids else f"{pool.question_id}-{n}" for n in chosen]
        relevance = {name: labels.get(keys[n], 0) for name, n in zip(ids, chosen, strict=True)}
        if content.counts is not None:
            content.counts[ANSWERS_ADDED] = content.counts.get(ANSWERS_ADDED, 0) + len(ids) - len(labels)
        yield pool._replace(answer_ids=ids, texts=[ids_and_texts[n][1] for n in chosen], relevance=relevance)


def log_warnings(name: str, counts: PoolCounts) -> None:
    """Log the warnings, each line beginning with ``name``."""
    for line in counts.warnings:
        logger.warning(f"{name}: warning: {line}")


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
