"""Collections are written: folders with a manifest, pools and qrels per split, and shared answers.

``CollectionWriter`` applies the policies for duplicates, unanswerable questions and relevant answers missing
from a pool; the manifest counts the affected rows.

A text of several pools is stored once, in ``answers.parquet``, with the id of its first candidate. The other
candidates keep their ids and refer to the text by ``text_id``, so run files and qrels do not depend on the
storage of texts.
"""

import logging
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, suppress
from dataclasses import dataclass
from types import TracebackType
from typing import Any, NamedTuple

import polars as pl
import pyarrow as pa
import pyarrow.compute as pc

from aptool.arguments import check_choice
from aptool.data import ids
from aptool.data.parquet import arrow_schema, parquet_writer
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
from aptool.paths import Location, PathOrUrl, location, why_missing

logger = logging.getLogger(__name__)

MANIFEST = "collection.json"
POOLS_SUFFIX = ".pools.parquet"
QRELS_SUFFIX = ".qrels"
# A random order of five candidates, of which one is relevant, has an expected MRR of 0.46.
SMALL_POOL = 5
_EMPTY_DROPPED = "empty_candidates_dropped"
_SPLIT = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]*")


class LabelledPool(NamedTuple):
    """A question, its candidates and their relevance, from an importer."""

    question_id: str  # a legal id, see ``data.ids``
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


class CollectionWriter(AbstractContextManager["CollectionWriter"]):
    """Context manager that writes a collection; the folder is replaced only if the block succeeds.

    with CollectionWriter("data/mine", name="mine", source="my own questions") as writer:
        writer.add_split("train", pools)
    """

    def __init__(
        self,
        path: PathOrUrl,
        *,
        name: str,
        source: str,
        questions: str = "all",
        details: dict[str, Any] | None = None,
        overwrite: bool = False,
    ) -> None:
        """Prepare to write. An existing folder is an error, except with ``overwrite`` or the same content.

        The policy ``questions`` keeps ``all``, ``answerable`` ones (with a relevant answer in the pool or the
        qrels) or those with ``both-labels`` in the pool. ``details``, further entries of the manifest, may be
        changed until the block ends.
        """
        ids.check_one_word("--name", name)
        check_choice("questions", questions, ("all", "answerable", "both-labels"))
        self._path = location(path)
        self._questions, self._overwrite = questions, overwrite
        self._policies: dict[str, Counter[str]] = defaultdict(Counter)
        self.pool_counts: dict[str, PoolCounts] = {}  # split -> counts of its pools
        self._positives: Counter[str] = Counter()
        self._tables: dict[str, list[pa.Table]] = {}  # split -> its row groups
        self._manifest = {"format": 1, "name": name, "source": source}
        self._details = details if details is not None else {}

    def __enter__(self) -> "CollectionWriter":
        check_collection_output(self._path, str(self._manifest["name"]), overwrite=self._overwrite)
        self._entered = ExitStack()
        self._into = self._entered.enter_context(output_folder(self._path, MANIFEST))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        if kind is not None:
            return self._entered.__exit__(kind, error, trace)
        with suppress(_SameCollectionError), self._entered:
            if self._tables and not (self._into / ANSWERS).exists():  # else ``add_answers`` wrote it
                self._share_texts()
            for split, tables in self._tables.items():
                with parquet_writer(self._into / f"{split}{POOLS_SUFFIX}", tables[0].schema) as writer:
                    for table in tables:
                        writer.write_table(table)
            manifest = self._write_manifest()
            present = manifest_beside(self._path / MANIFEST)
            if present == manifest:
                logger.info(f"{self._path}: it has this collection already")
                raise _SameCollectionError
            if not self._overwrite:
                check_output_folder(self._path)
        if present is not None:
            delete([self._path / name for name in present["files"].keys() - manifest["files"].keys()])
        return None

    def count(self, policy: str, split: str, rows: int) -> None:
        """Count ``rows`` rows of a split that a policy of the importer affected."""
        self._policies[policy][split] += rows

    def add_answers(self, answers: Iterable[tuple[str, str]]) -> None:
        """Write shared answers, as ``(answer id, text)`` pairs; texts in pools are then not deduplicated."""
        write_answers(self._into / ANSWERS, answers)

    def add_split(
        self, split: str, pools: Iterable[LabelledPool], source: PathOrUrl | None = None
    ) -> dict[str, int]:
        """Add a split; its pools are in memory, as Arrow tables, until the block ends.

        Pools without a candidate are dropped and counted. ``source`` is that of the pools, for errors.

        Returns:
            the numbers of ``questions`` and ``candidates`` before any policy.
        """
        if not is_split(split):
            raise UsageError(f"split {split!r}: expected a name, such as train")
        read = {"questions": 0, "candidates": 0}
        self.pool_counts[split] = PoolCounts()
        self._tables[split] = list(pool_tables(self._records(split, pools, read)))
        if not self._tables[split]:
            expected = "at least one question"
            if self._questions != "all":
                expected += f" that is {self._questions}"
            if _EMPTY_DROPPED in self._policies:
                expected += " with a candidate that is not empty"
            problem = counted(read["questions"], "question")
            raise InputError(source or self._path, problem=problem, expected=expected)
        return read

    def _records(
        self, split: str, pools: Iterable[LabelledPool], read: dict[str, int]
    ) -> Iterator[PoolRecord]:
        """Apply the policies, count the rows, and write the qrels of a split."""
        seen: set[str] = set()
        with (self._into / f"{split}{QRELS_SUFFIX}").open("w", encoding="utf-8", newline="\n") as qrels:
            for pool in pools:
                read["questions"] += 1
                read["candidates"] += len(pool.answer_ids) + pool.empty_dropped
                if pool.empty_dropped:
                    self.count(_EMPTY_DROPPED, split, pool.empty_dropped)
                if empty := sum(not text.strip() for text in pool.texts or ()):
                    self.count("empty_answers_kept", split, empty)
                if not pool.answer_ids:
                    self.count("questions_without_candidates_dropped", split, 1)
                    continue
                record = self._clean(split, pool)
                if pool.question_id in seen:
                    position = f"split {split!r}"
                    raise InputError(
                        self._path, position=position, value=pool.question_id, expected="each question once"
                    )
                seen.add(pool.question_id)
                if record is None:
                    continue
                positives = {answer_id for answer_id, value in pool.relevance.items() if value > 0}
                relevant = len(positives.intersection(record.answer_ids))
                self.pool_counts[split].add(len(record.answer_ids), relevant, judged=bool(pool.relevance))
                self._positives[split] += len(positives)
                self.count("relevant_missing_from_pool_kept", split, len(positives) - relevant)
                qrels.writelines(f"{pool.question_id} 0 {a} {value}\n" for a, value in pool.relevance.items())
                yield record

    def _clean(self, split: str, pool: LabelledPool) -> PoolRecord | None:
        """Apply the policies to a pool; None if the question is dropped."""
        position = f"split {split!r}, question {pool.question_id!r}"
        ids.check_question_id(self._path, f"split {split!r}", pool.question_id, "question_id")
        for answer_id in dict.fromkeys([*pool.answer_ids, *pool.relevance]):
            ids.check_answer_id(self._path, position, answer_id, "answer_id")
        answer_ids = list(dict.fromkeys(pool.answer_ids))
        if not keeps_question(self._questions, answer_ids, pool.relevance):
            self.count(f"questions_dropped_not_{self._questions}", split, 1)
            return None
        repeated = len(pool.answer_ids) - len(answer_ids)
        self.count("duplicate_candidates_dropped", split, repeated)
        texts = pool.texts
        if texts is not None and repeated:
            first = dict(zip(reversed(pool.answer_ids), reversed(texts), strict=True))
            texts = [first[answer_id] for answer_id in answer_ids]
        return PoolRecord(pool.question_id, pool.question, answer_ids, texts)

    def _share_texts(self) -> None:
        """Write the texts of several pools as shared answers, and replace them in the pools by references."""
        tables = [table for of_split in self._tables.values() for table in of_split]
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
        write_answers(self._into / ANSWERS, shared.select("text_id", "text").iter_rows())
        pairs = pairs.join(shared.select("text", "text_id"), on="text", how="left", maintain_order="left")
        start = 0
        for split, of_split in self._tables.items():
            size = sum(len(table["candidates"].chunk(0).values) for table in of_split)
            of_pairs = pairs.slice(start, size)
            start += size
            if of_pairs["text_id"].null_count() < size:
                self._tables[split] = list(_joined(_with_references(of_split, of_pairs)))

    def _write_manifest(self) -> dict[str, Any]:
        files = sorted(file for file in self._into.iterdir() if file.is_file())
        manifest = {
            **self._manifest,
            "splits": {
                split: {
                    "questions": counts.questions,
                    "candidates": counts.candidates,
                    "positives": self._positives[split],
                }
                for split, counts in self.pool_counts.items()
            },
            "policies": {name: dict(rows) for name, rows in sorted(self._policies.items())},
            "details": self._details,
            "files": {file.name: sha256_of(file) for file in files},
        }
        check_document("collection", manifest, self._path / MANIFEST)
        (self._into / MANIFEST).write_text(json_text(manifest), encoding="utf-8")
        return read_json(self._into / MANIFEST)


class _SameCollectionError(Exception):
    """The folder has the collection already."""


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


def keeps_question(questions: str, answer_ids: Iterable[str], relevance: Mapping[str, int]) -> bool:
    """Whether a questions policy keeps a pool; see ``CollectionWriter``."""
    if questions == "all":
        return True
    if questions == "answerable":
        return any(value > 0 for value in relevance.values())
    return len({relevance.get(answer_id, 0) > 0 for answer_id in answer_ids}) == 2
