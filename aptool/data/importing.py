"""Write the pools of all importers as a collection, count the rows, and warn about unusual pools."""

import logging
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import polars as pl

from aptool.data.frames import comparable
from aptool.data.writing import QRELS_SUFFIX, CollectionWriter, LabelledPool, keeps_question, manifest_beside
from aptool.errors import AptoolError, InputError, UsageError, counted
from aptool.paths import Location, PathOrUrl, location, output_location, with_home

logger = logging.getLogger(__name__)

# A random order of five candidates, of which one is relevant, has an expected MRR of 0.46.
SMALL_POOL = 5

SAME_ID_EXCLUDED = "candidates_with_the_id_of_their_question_excluded"
ANSWERS_ADDED = "answers_of_other_questions_added"
UNLABELLED_DROPPED = "rows_without_a_label_dropped"
SPELLINGS_JOINED = "other_spellings_of_a_question_joined"  # see `comparable`
_EMPTY_DROPPED = "empty_candidates_dropped"
_SPLIT = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]*")


def parse_splits(arguments: Iterable[str], hint: str = "") -> dict[str, str]:
    """Parse ``SPLIT=PATH`` arguments; ``hint`` is an alternative for the error."""
    splits: dict[str, str] = {}
    for argument in arguments:
        split, equals, path = argument.partition("=")
        if not (equals and path and _SPLIT.fullmatch(split)):
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


def check_split(split: object) -> str:
    """Check that a value is a valid name of a split."""
    if not isinstance(split, str) or not _SPLIT.fullmatch(split):
        raise UsageError(f"split {split!r}: expected a name, such as train")
    return split


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
    pool_counts: dict[str, PoolCounts] = {}
    # The manifest is written last, with the final `rows_read`.
    details = {**(details or {}), "questions": questions, "read": rows_read}
    with CollectionWriter(
        out, name=name, source=source, questions=questions, details=details, overwrite=overwrite
    ) as writer:
        if answers is not None:
            writer.add_answers(answers)
        for split, content in splits.items():
            counts: Counter[str] = Counter()
            pool_counts[split] = PoolCounts()
            pools = _counted(content, counts, pool_counts[split], questions)
            try:
                writer.add_split(split, pools)
            except InputError:
                raise
            except AptoolError as error:  # the writer does not know the source
                expected = "at least one question" + (f" that is {questions}" if questions != "all" else "")
                expected += " with a candidate that is not empty" if counts[_EMPTY_DROPPED] else ""
                problem = counted(counts["questions"], "question")
                raise InputError(content.path, problem=problem, expected=expected) from error
            rows_read[split] = {key: counts.pop(key) for key in ("questions", "candidates")}
            for policy, rows in counts.items():
                if rows:
                    writer.count(policy, split, rows)
    for split, written in pool_counts.items():
        log_warnings(split, written)


def _counted(
    content: SplitPools, counts: Counter[str], written: "PoolCounts", questions: str
) -> Iterator[LabelledPool]:
    """Drop pools without a candidate; count the rows read and the pools written."""
    for pool in content.pools:
        counts["questions"] += 1
        counts["candidates"] += len(pool.answer_ids) + pool.empty_dropped
        counts[_EMPTY_DROPPED] += pool.empty_dropped
        if pool.texts is not None:
            counts["empty_answers_kept"] += sum(not text.strip() for text in pool.texts)
        if not pool.answer_ids:
            counts["questions_without_candidates_dropped"] += 1
            continue
        if keeps_question(questions, pool.answer_ids, pool.relevance):
            candidates = set(pool.answer_ids)
            relevant = sum(pool.relevance.get(answer_id, 0) > 0 for answer_id in candidates)
            written.add(len(candidates), relevant, judged=bool(pool.relevance))
            if pool.texts is not None:
                labels = [pool.relevance.get(answer_id, 0) > 0 for answer_id in pool.answer_ids]
                written.contradictory += have_two_labels(map(comparable, pool.texts), labels)
        yield pool
    if content.counts is not None:
        counts.update(content.counts)
        counts["candidates"] += content.counts.get(UNLABELLED_DROPPED, 0)
        counts["candidates"] -= content.counts.get(ANSWERS_ADDED, 0)


@dataclass
class PoolCounts:
    """Counts over the pools of a split or a run."""

    labelled: bool = True  # whether relevance is known
    level: int = 1  # least relevance of a relevant candidate
    is_run: bool = False  # whether a run ranks the pools, so that nothing is trained on them
    questions: int = 0  # pools
    candidates: int = 0  # question-candidate pairs
    relevant: int = 0  # relevant candidates
    single: int = 0  # pools with a single candidate
    without_relevant: int = 0  # judged pools without a relevant candidate
    contradictory: int = 0  # pools with one text as a relevant and as a non-relevant candidate
    unjudged: int = 0  # pools of questions without a judgement, which no evaluation counts

    def add(self, candidates: int, relevant: int, *, judged: bool = True) -> None:
        """Count one pool."""
        self.questions += 1
        self.candidates += candidates
        self.relevant += relevant
        self.single += candidates == 1
        self.without_relevant += judged and relevant == 0
        self.unjudged += not judged

    @property
    def warnings(self) -> list[str]:
        """Reasons why scores on these pools mean little, with counts."""
        if not self.questions:
            return []
        lines = []
        of_questions = f"of {self.questions:,} questions"
        candidates = counted(self.candidates, "candidate")
        level = f" at level {self.level}" if self.level > 1 else ""
        all_relevant = self.labelled and self.relevant == self.candidates
        if self.single and not all_relevant:
            lines.append(f"{self.single:,} {of_questions} have a single candidate, so no order can be wrong")
        if self.labelled and not self.relevant:
            lines.append(f"none of the {candidates} is relevant{level}")
        elif all_relevant:
            training = "" if self.is_run else "training takes negatives from other questions; to evaluate, "
            lines.append(
                f"all {candidates} are relevant{level}, so no order can be wrong: {training}draw pools with "
                "`aptool data folds` or --add-candidates"
            )
        elif self.labelled and self.without_relevant:
            noun = "judged questions" if self.unjudged else "questions"
            without = f"{self.without_relevant:,} of {self.questions - self.unjudged:,} {noun}"
            lines.append(f"{without} have no relevant candidate{level}: any model scores 0 there")
        if self.labelled and self.unjudged:
            verb = "is" if self.unjudged == 1 else "are"
            lines.append(f"{counted(self.unjudged, 'question')} {verb} not judged, and not evaluated")
        if self.contradictory:
            both = "have one text as a relevant and as a non-relevant candidate"
            lines.append(f"{self.contradictory:,} {of_questions} {both}, which no model can tell apart")
        mean = self.candidates / self.questions
        if mean < SMALL_POOL and not all_relevant:
            lines.append(f"mean pool size {mean:.1f} candidates: a random order already scores high")
        return lines


def have_two_labels(texts: Iterable[str], relevant: Sequence[bool]) -> bool:
    """Whether one text is that of a relevant and of a non-relevant candidate."""
    by_label: tuple[set[str], set[str]] = set(), set()
    for text, is_relevant in zip(texts, relevant, strict=True):
        by_label[is_relevant].add(text)
    return not by_label[0].isdisjoint(by_label[1])


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
