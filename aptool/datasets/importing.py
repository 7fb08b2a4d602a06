"""Pools become a collection, and every row is counted; all importers end here.

`write_collection` passes the pools to `CollectionWriter`, which applies the policies, and records how much
was read.
"""

import logging
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import polars as pl

from aptool.datasets.policies import EMPTY_DROPPED, Conflicts
from aptool.errors import AptoolError, InputError, UsageError, counted
from aptool.formats.collection import (
    MANIFEST,
    CollectionFiles,
    CollectionWriter,
    LabelledPool,
    keeps_question,
)
from aptool.formats.location import PathOrUrl, location

logger = logging.getLogger(__name__)

_OWN_POLICIES = ("empty_answers_kept", "questions_without_candidates_dropped", EMPTY_DROPPED)
_SPLIT = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]*")


@dataclass
class PoolCounts:
    """Counts over the pools of a split or a run.

    Attributes:
        labelled: whether relevance is known; if not, ``relevant`` and ``without_relevant`` say nothing.
        questions: pools.
        candidates: question-candidate pairs.
        relevant: relevant candidates in the pools.
        single: pools with a single candidate.
        without_relevant: pools without a relevant candidate.
    """

    labelled: bool = True
    questions: int = 0
    candidates: int = 0
    relevant: int = 0
    single: int = 0
    without_relevant: int = 0

    def add(self, candidates: int, relevant: int) -> None:
        """Counts one pool."""
        self.questions += 1
        self.candidates += candidates
        self.relevant += relevant
        self.single += candidates == 1
        self.without_relevant += relevant == 0

    @property
    def warnings(self) -> list[str]:
        """One line per finding, with its count."""
        if not self.questions:
            return []
        lines = []
        of_questions = f"of {counted(self.questions, 'question')}"
        if self.single:
            lines.append(f"{self.single:,} {of_questions} have a single candidate, so no order can be wrong")
        if self.labelled and not self.relevant:
            lines.append(f"none of the {counted(self.candidates, 'candidate')} is relevant")
        elif self.labelled and self.relevant == self.candidates:
            lines.append(
                f"all {counted(self.candidates, 'candidate')} are relevant, so no order can be wrong"
            )
        elif self.labelled and self.without_relevant:
            without = f"{self.without_relevant:,} {of_questions}"
            lines.append(f"{without} have no relevant candidate: any model scores 0 there")
        mean = self.candidates / self.questions
        if mean < SMALL_POOL:
            lines.append(f"mean pool size {mean:.1f} candidates: a random order already has high figures")
        return lines


def parse_splits(arguments: Iterable[str]) -> dict[str, str]:
    """``SPLIT=PATH`` arguments as a mapping.

    Raises:
        UsageError: one has another form, or a split is given twice.
    """
    splits: dict[str, str] = {}
    for argument in arguments:
        split, equals, path = argument.partition("=")
        if not (equals and path and _SPLIT.fullmatch(split)):
            raise UsageError(f"{argument!r}: expected SPLIT=PATH, such as train=questions.tsv")
        if split in splits:
            raise UsageError(f"{argument!r}: split {split!r} is given twice")
        splits[split] = path
    return splits


def check_split(split: object) -> str:
    """A name of a split.

    Raises:
        UsageError: it is none.
    """
    if not isinstance(split, str) or not _SPLIT.fullmatch(split):
        raise UsageError(f"split {split!r}: expected a name, such as train")
    return split


def collection_name(output: PathOrUrl) -> str:
    """A name for the collection in a folder: that of the folder, as one word."""
    return re.sub(r"\s+", "-", Path(str(output)).resolve().name) or "collection"


def check_output(out: PathOrUrl) -> None:
    """Checks that writing a collection to ``out`` replaces at most another collection.

    Raises:
        InputError: ``out`` is a file, or a folder of another kind.
    """
    path = location(out)
    if path.is_dir() and any(path.iterdir()) and not (path / MANIFEST).is_file():
        wanted = "a collection to replace, an empty folder, or nothing yet"
        raise InputError(path, problem=f"a folder without {MANIFEST}", expected=wanted)
    if path.exists() and not path.is_dir():
        raise InputError(path, problem="a file", expected="a folder, or nothing yet")


class SplitPools(NamedTuple):
    """The pools of one split.

    Attributes:
        path: the file that they are read from.
        pools: the pools.
        conflicts: its contradictory labels.
        counts: rows that the importer's own policies touched, complete once the pools are read.
        labelled: whether there are labels; if not, the split gets no qrels.
    """

    path: PathOrUrl
    pools: Iterable[LabelledPool]
    conflicts: Conflicts | None = None
    counts: Mapping[str, int] | None = None
    labelled: bool = True


def write_collection(
    out: PathOrUrl,
    *,
    name: str,
    source: str,
    splits: Mapping[str, SplitPools],
    questions: str = "all",
    details: Mapping[str, Any] | None = None,
    answers: Iterable[tuple[str, str]] | None = None,
    check: Callable[[], None] | None = None,
) -> CollectionFiles:
    """Writes a collection; its manifest's ``details.read`` says what was read before any policy.

    Warnings on pools that make figures hard to read are logged.

    Args:
        out: the folder; an existing collection is replaced on success.
        name: one word.
        source: description of where the text comes from.
        splits: split -> its pools, read one after the other.
        questions: which questions are kept, see `CollectionWriter`.
        details: further entries of the manifest.
        answers: the ``(answer id, text)`` pairs that the pools share.
        check: called once all splits are read; nothing is written if it raises.

    Raises:
        AptoolError: a pool cannot be read, or no question of a split is left.
    """
    check_output(out)
    read: dict[str, dict[str, int]] = {}
    kept: dict[str, PoolCounts] = {}
    # The manifest is written last, so it sees what `read` has become by then.
    everything = {**(details or {}), "questions": questions, "read": read}
    with CollectionWriter(out, name=name, source=source, questions=questions, details=everything) as writer:
        if answers is not None:
            writer.add_answers(answers)
        for split, content in splits.items():
            counts: Counter[str] = Counter()
            kept[split] = PoolCounts(labelled=content.labelled)
            pools = _counted(content, counts, kept[split], questions)
            try:
                writer.add_split(split, pools, labelled=content.labelled)
            except InputError:
                raise
            except AptoolError as error:  # the writer knows the output only
                expected = "at least one question" + (f" that is {questions}" if questions != "all" else "")
                expected += " with a candidate that is not empty" if counts[EMPTY_DROPPED] else ""
                problem = counted(counts["questions"], "question")
                raise InputError(content.path, problem=problem, expected=expected) from error
            read[split] = {key: counts[key] for key in ("questions", "candidates")}
            for policy in _OWN_POLICIES:
                if counts[policy]:
                    writer.count(policy, split, counts[policy])
            conflicts = content.conflicts
            if conflicts is not None and conflicts.count:
                writer.count(f"contradictory_labels_{conflicts.resolution}_kept", split, conflicts.count)
        if check is not None:
            check()
    for split, pool_counts in kept.items():
        log_warnings(split, pool_counts)
    return CollectionFiles(out)


def _counted(
    content: SplitPools, counts: Counter[str], kept: PoolCounts, questions: str
) -> Iterator[LabelledPool]:
    """The pools that have a candidate; counts what was read, and the pools that the policy keeps."""
    for pool in content.pools:
        counts["questions"] += 1
        counts["candidates"] += len(pool.answer_ids)
        if pool.texts is not None:
            counts["empty_answers_kept"] += sum(not text.strip() for text in pool.texts)
        if not pool.answer_ids:
            counts["questions_without_candidates_dropped"] += 1
            continue
        if not content.labelled or keeps_question(questions, pool.answer_ids, pool.relevance):
            candidates = set(pool.answer_ids)
            relevant = sum(pool.relevance.get(answer_id, 0) > 0 for answer_id in candidates)
            kept.add(len(candidates), relevant)
        yield pool
    if content.counts is not None:
        counts.update(content.counts)
        counts["candidates"] += content.counts.get(EMPTY_DROPPED, 0)


# A random order of five candidates, one of them relevant, has an expected MRR of 0.46.
SMALL_POOL = 5


def log_warnings(name: str, counts: PoolCounts) -> None:
    """Logs the warnings, each line beginning with ``name``."""
    for line in counts.warnings:
        logger.warning(f"{name}: warning: {line}")


def pool_counts(pairs: pl.DataFrame, qrels: pl.DataFrame | None) -> PoolCounts:
    """Counts over the pools of a run.

    Args:
        pairs: question_id, answer_id; each pair once.
        qrels: question_id, answer_id, relevance; questions that are not in it are left out. None: no labels.
    """
    if qrels is None:
        sizes = pairs.group_by("question_id").agg(size=pl.len(), relevant=pl.lit(0))
    else:
        relevant = qrels.filter(pl.col("relevance") > 0).select(
            "question_id", "answer_id", relevant=pl.lit(True)
        )
        judged = pairs.join(qrels.select("question_id").unique(), on="question_id", how="semi")
        marked = judged.join(relevant, on=["question_id", "answer_id"], how="left")
        sizes = marked.group_by("question_id").agg(size=pl.len(), relevant=pl.col("relevant").sum())
    counts = PoolCounts(labelled=qrels is not None)
    for size, relevant_candidates in sizes.select("size", "relevant").iter_rows():
        counts.add(size, relevant_candidates)
    return counts


def warn_of_runs(runs: Mapping[str, pl.DataFrame], qrels: pl.DataFrame) -> None:
    """Logs the warnings on the pools that runs rank; runs of the same pools are warned of once.

    Args:
        runs: name -> question_id, answer_id and further columns.
        qrels: question_id, answer_id, relevance.
    """
    logged: list[list[str]] = []
    for name, frame in runs.items():
        counts = pool_counts(frame, qrels)
        if counts.warnings not in logged:
            logged.append(counts.warnings)
            log_warnings(name, counts)
