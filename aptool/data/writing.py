"""Collections are written: folders with a manifest, pools and qrels per split, and shared answers.

``write_collection`` applies the policies for duplicates, unanswerable questions and relevant answers missing
from a pool; the manifest counts the affected rows.

A text of several pools is stored once, in ``answers.parquet``, with the id of its first candidate. The other
candidates keep their ids and refer to the text by ``text_id``, so run files and qrels do not depend on the
storage of texts.
"""

import logging
import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, TextIO

import polars as pl
import pyarrow as pa
import pyarrow.compute as pc

from aptool.arguments import check_choice, check_one_word
from aptool.data.frames import check_id
from aptool.data.parquet import arrow_schema, write_tables
from aptool.data.pools import (
    ANSWERS,
    ROW_GROUP_BYTES,
    ROW_GROUP_CANDIDATES,
    PoolRecord,
    pool_tables,
    write_answers,
)
from aptool.documents import check_document, json_text, read_json
from aptool.errors import InputError, UsageError, counted
from aptool.files import sha256_of
from aptool.outputs import check_output_folder, delete, output_folder
from aptool.paths import Location, PathOrUrl, location, output_location, why_missing, with_home

logger = logging.getLogger(__name__)

MANIFEST = "collection.json"
POOLS_SUFFIX = ".pools.parquet"
QRELS_SUFFIX = ".qrels"
# A random order of five candidates, of which one is relevant, has an expected MRR of 0.46.
SMALL_POOL = 5
# Policies that count rows which are not in the pools that the source had, or no longer.
ANSWERS_ADDED = "answers_of_other_questions_added"
UNLABELLED_DROPPED = "rows_without_a_label_dropped"
_EMPTY_DROPPED = "empty_candidates_dropped"
_SPLIT = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]*")


class LabelledPool(NamedTuple):
    """A question, its candidates and their relevance, from an importer."""

    question_id: str  # a legal id, see `data.frames`
    question: str
    answer_ids: list[str]  # in the order of the source; the writer drops and counts repeated ids
    texts: list[str] | None  # of the candidates; None for shared answers
    relevance: dict[str, int]  # answer id -> judgement, for every judged answer, in the pool or not
    empty_dropped: int = 0  # candidates of the source that the pool lacks because they have no text


def read_manifest(folder: Location) -> dict[str, Any]:
    """Read and validate the manifest of a collection."""
    path = folder / MANIFEST
    if not path.is_file():
        problem = why_missing(folder, MANIFEST)
        raise InputError(folder, problem=problem, expected="the folder of a collection")
    manifest: dict[str, Any] = read_json(path)
    check_document("collection", manifest, path)
    return manifest


def is_split(name: object) -> bool:
    """Whether a value is the name of a split."""
    return isinstance(name, str) and _SPLIT.fullmatch(name) is not None


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


def collection_name(output: PathOrUrl) -> str:
    """Derive the name of a collection, one word, from its folder."""
    return re.sub(r"\s+", "-", output_location(output).name) or "collection"


def manifest_beside(file: Location) -> dict[str, Any] | None:
    """The manifest of the collection in the folder of a file, such as its pools; None without a valid one."""
    if not (file.parent / MANIFEST).is_file():
        return None
    try:
        return read_manifest(file.parent)
    except InputError:  # a file of another program
        return None


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
        mean = self.candidates / self.questions
        if mean < SMALL_POOL and not all_relevant:
            lines.append(f"mean pool size {mean:.1f} candidates: a random order already scores high")
        return lines


def log_warnings(name: str, counts: PoolCounts) -> None:
    """Log the warnings, each line beginning with ``name``."""
    for line in counts.warnings:
        logger.warning(f"{name}: warning: {line}")


class SplitPools(NamedTuple):
    """The pools of one split."""

    pools: Iterable[LabelledPool]
    path: PathOrUrl | None = None  # source of an import, for messages
    counts: dict[str, int] | None = None  # rows per policy of the importer; complete once the pools are read


class _Split:
    """A split in memory: its row groups, and what the manifest says about it."""

    def __init__(self, output: Location, name: str, questions: str) -> None:
        self._output, self._name, self._questions = output, name, questions
        self.tables: list[pa.Table] = []
        self.read = {"questions": 0, "candidates": 0}  # before any policy
        self.policies: Counter[str] = Counter()
        self.counts = PoolCounts()
        self.positives = 0

    def fill(self, content: SplitPools, qrels: Path) -> None:
        """Read the pools, apply the policies, and write the qrels."""
        with qrels.open("w", encoding="utf-8", newline="\n") as file:
            self.tables = list(pool_tables(self._records(content.pools, file)))
        if not self.tables:
            expected = "at least one question"
            if self._questions != "all":
                expected += f" that is {self._questions}"
            if _EMPTY_DROPPED in self.policies:
                expected += " with a candidate that is not empty"
            problem = counted(self.read["questions"], "question")
            raise InputError(content.path or self._output, problem=problem, expected=expected)
        counts = content.counts or {}
        self.read["candidates"] += counts.get(UNLABELLED_DROPPED, 0) - counts.get(ANSWERS_ADDED, 0)
        self.policies.update(counts)

    def _records(self, pools: Iterable[LabelledPool], qrels: TextIO) -> Iterator[PoolRecord]:
        seen: set[str] = set()
        for pool in pools:
            self.read["questions"] += 1
            self.read["candidates"] += len(pool.answer_ids) + pool.empty_dropped
            if pool.empty_dropped:
                self.policies[_EMPTY_DROPPED] += pool.empty_dropped
            if empty := sum(not text.strip() for text in pool.texts or ()):
                self.policies["empty_answers_kept"] += empty
            if not pool.answer_ids:
                self.policies["questions_without_candidates_dropped"] += 1
                continue
            record = self._clean(pool)
            if pool.question_id in seen:
                position = f"split {self._name!r}"
                raise InputError(
                    self._output, position=position, value=pool.question_id, expected="each question once"
                )
            seen.add(pool.question_id)
            if record is None:
                continue
            positives = {answer_id for answer_id, value in pool.relevance.items() if value > 0}
            relevant = len(positives.intersection(record.answer_ids))
            self.counts.add(len(record.answer_ids), relevant, judged=bool(pool.relevance))
            self.positives += len(positives)
            self.policies["relevant_missing_from_pool_kept"] += len(positives) - relevant
            qrels.writelines(f"{pool.question_id} 0 {a} {value}\n" for a, value in pool.relevance.items())
            yield record

    def _clean(self, pool: LabelledPool) -> PoolRecord | None:
        """Apply the policies to a pool; None if the question is dropped."""
        position = f"split {self._name!r}"
        check_id(self._output, position, "question_id", pool.question_id, of_question=True)
        position += f", question {pool.question_id!r}"
        for answer_id in dict.fromkeys([*pool.answer_ids, *pool.relevance]):
            check_id(self._output, position, "answer_id", answer_id)
        answer_ids = list(dict.fromkeys(pool.answer_ids))
        if not _keeps_question(self._questions, answer_ids, pool.relevance):
            self.policies[f"questions_dropped_not_{self._questions}"] += 1
            return None
        repeated = len(pool.answer_ids) - len(answer_ids)
        self.policies["duplicate_candidates_dropped"] += repeated
        texts = pool.texts
        if texts is not None and repeated:
            first = dict(zip(reversed(pool.answer_ids), reversed(texts), strict=True))
            texts = [first[answer_id] for answer_id in answer_ids]
        return PoolRecord(pool.question_id, pool.question, answer_ids, texts)


def write_collection(
    path: PathOrUrl,
    splits: Mapping[str, SplitPools | Iterable[LabelledPool]],
    *,
    name: str,
    source: str,
    questions: str = "all",
    details: Mapping[str, Any] | None = None,
    answers: Iterable[tuple[str, str]] | None = None,
    overwrite: bool = False,
) -> None:
    """Write a collection; the folder is replaced only if all pools are valid, and not by an equal collection.

    The splits are read one after the other, and are in memory as Arrow tables. Pools without a candidate are
    dropped and counted. ``questions`` keeps ``all`` questions, ``answerable`` ones (with a relevant answer in
    the pool or the qrels) or those with ``both-labels`` in the pool. ``details`` are further entries of the
    manifest. ``answers`` are ``(answer id, text)`` pairs that pools share; texts in pools are then not
    deduplicated.

    For an import, whose pools have a path, warnings on the pools are logged, and ``details.read`` has the
    counts before any policy.

    Example:
        >>> pool = LabelledPool("q1", "who?", ["a", "b"], ["me", "you"], {"a": 1})
        >>> write_collection("data/mine", {"train": [pool]}, name="mine", source="my own questions")
    """
    check_one_word("--name", name)
    check_choice("questions", questions, ("all", "answerable", "both-labels"))
    check_collection_output(path, name, overwrite=overwrite)
    output = location(path)
    written: dict[str, _Split] = {}
    is_import = False
    with suppress(_SameCollectionError), output_folder(output, MANIFEST) as folder:
        if answers is not None:
            write_answers(folder / ANSWERS, answers)
        for split, pools in splits.items():
            if not is_split(split):
                raise UsageError(f"split {split!r}: expected a name, such as train")
            content = pools if isinstance(pools, SplitPools) else SplitPools(pools)
            is_import = is_import or content.path is not None
            written[split] = _Split(output, split, questions)
            written[split].fill(content, folder / f"{split}{QRELS_SUFFIX}")
        if answers is None and written:
            _share_texts(written.values(), folder / ANSWERS)
        for split, of_split in written.items():
            write_tables(folder / f"{split}{POOLS_SUFFIX}", of_split.tables[0].schema, of_split.tables)
        read = {split: of_split.read for split, of_split in written.items()}
        manifest = {
            "format": 1,
            "name": name,
            "source": source,
            **_counts(written),
            "details": {**(details or {}), **({"questions": questions, "read": read} if is_import else {})},
            "files": {file.name: sha256_of(file) for file in sorted(folder.iterdir())},
        }
        check_document("collection", manifest, output / MANIFEST)
        (folder / MANIFEST).write_text(json_text(manifest), encoding="utf-8")
        present = manifest_beside(output / MANIFEST)
        if present == read_json(folder / MANIFEST):
            logger.info(f"{output}: it has this collection already")
            raise _SameCollectionError
        if not overwrite:
            check_output_folder(output)
    if present is not None:
        delete([output / name for name in present["files"].keys() - manifest["files"].keys()])
    if is_import:
        for split, of_split in written.items():
            log_warnings(split, of_split.counts)


class _SameCollectionError(Exception):
    """The folder has the collection already."""


def _counts(written: Mapping[str, _Split]) -> dict[str, Any]:
    """The entries ``splits`` and ``policies`` of the manifest."""
    sizes: dict[str, dict[str, int]] = {}
    policies: dict[str, dict[str, int]] = {}
    for split, of_split in written.items():
        sizes[split] = {
            "questions": of_split.counts.questions,
            "candidates": of_split.counts.candidates,
            "positives": of_split.positives,
        }
        for policy, rows in of_split.policies.items():
            policies.setdefault(policy, {})[split] = rows
    return {"splits": sizes, "policies": dict(sorted(policies.items()))}


def _share_texts(splits: Collection[_Split], answers: Path) -> None:
    """Write the texts of several pools as shared answers, and replace them in the pools by references."""
    tables = [table for split in splits for table in split.tables]
    pools = pl.concat([pl.DataFrame(table) for table in tables]).with_row_index("pool")
    pairs = pools.select("pool", "candidates").explode("candidates").unnest("candidates")
    shared = (
        pairs.drop_nulls("text")
        .group_by("text", maintain_order=True)
        .agg(pl.col("pool").n_unique(), pl.col("answer_id").first())
        .filter(pl.col("pool") > 1)
    )
    if shared.is_empty():
        return
    shared = shared.with_columns(text_id=pl.Series(_distinct_ids(shared["answer_id"])))
    write_answers(answers, shared.select("text_id", "text").iter_rows())
    pairs = pairs.join(shared.select("text", "text_id"), on="text", how="left", maintain_order="left")
    start = 0
    for split in splits:
        of_pairs = pairs.slice(start, split.counts.candidates)
        start += split.counts.candidates
        if of_pairs["text_id"].null_count() < of_pairs.height:
            split.tables = list(_joined(_with_references(split.tables, of_pairs)))


def _distinct_ids(answer_ids: Iterable[str]) -> list[str]:
    """Add numbers to repeated ids: ids may be local to a question, and are then ids of several texts."""
    used: dict[str, None] = {}
    for answer_id in answer_ids:
        text_id, number = answer_id, 2
        while text_id in used:
            text_id, number = f"{answer_id}-{number}", number + 1
        used[text_id] = None
    return list(used)


def _with_references(tables: Iterable[pa.Table], pairs: pl.DataFrame) -> Iterator[pa.Table]:
    """Replace the texts of pairs that have a ``text_id``; an id that is the pair's own is left out."""
    schema = arrow_schema("pools", optional=True)
    kind = schema.field("candidates").type
    text_id = pl.col("text_id")
    pairs = pairs.select(
        "answer_id",
        text=pl.when(text_id.is_null()).then("text"),
        text_id=pl.when(text_id != pl.col("answer_id")).then(text_id),
    )
    start = 0
    for table in tables:
        pools = table["candidates"].chunk(0)
        columns = pairs.slice(start, len(pools.values)).to_arrow().cast(pa.schema(list(kind.value_type)))
        start += len(pools.values)
        candidates = columns.combine_chunks().to_struct_array().chunk(0)
        column = pa.ListArray.from_arrays(pools.offsets, candidates, type=kind)
        yield pa.table([table["question_id"], table["question"], column], schema=schema)


def _joined(tables: Iterable[pa.Table]) -> Iterator[pa.Table]:
    """Join small tables to tables for row groups of the usual size."""
    joined: list[pa.Table] = []
    total = candidates = 0
    for table in tables:
        flat = table["candidates"].chunk(0).values
        size = 16 * len(flat) + (pc.sum(pc.binary_length(flat.field("text"))).as_py() or 0)
        if joined and (total + size > ROW_GROUP_BYTES or candidates + len(flat) > ROW_GROUP_CANDIDATES):
            yield pa.concat_tables(joined)
            joined, total, candidates = [], 0, 0
        joined.append(table)
        total, candidates = total + size, candidates + len(flat)
    yield pa.concat_tables(joined)


def check_collection_output(path: PathOrUrl, name: str, *, overwrite: bool = False) -> None:
    """Raise if a folder has files, except a collection of this name: the same one may be written again."""
    present = manifest_beside(location(path) / MANIFEST)
    is_same = present is not None and present["name"] == name
    check_output_folder(path, overwrite=overwrite or is_same)


def _keeps_question(questions: str, answer_ids: Iterable[str], relevance: Mapping[str, int]) -> bool:
    """Whether a questions policy keeps a pool; see ``write_collection``."""
    if questions == "all":
        return True
    if questions == "answerable":
        return any(value > 0 for value in relevance.values())
    return len({relevance.get(answer_id, 0) > 0 for answer_id in answer_ids}) == 2
