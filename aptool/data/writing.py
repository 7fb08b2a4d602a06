"""Collections are written: folders with a manifest, pools and qrels per split, and shared answers.

``CollectionWriter`` applies the policies for duplicates, unanswerable questions and relevant answers missing
from a pool; the manifest counts the affected rows. A text of several pools is stored once.
"""

import hashlib
import json
import logging
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, suppress
from types import TracebackType
from typing import Any, NamedTuple

from aptool.data import ids
from aptool.data.pools import (
    ANSWERS,
    PoolRecord,
    PoolsWriter,
    write_answers,
)
from aptool.data.schemas import check_document, load_schema
from aptool.data.shared_texts import SharedTexts
from aptool.documents import json_text, read_json
from aptool.errors import AptoolError, InputError, UsageError
from aptool.files import sha256_of
from aptool.outputs import check_output_folder, delete, output_folder
from aptool.paths import Location, PathOrUrl, location, why_missing

logger = logging.getLogger(__name__)

MANIFEST = "collection.json"
POOLS_SUFFIX = ".pools.parquet"
QRELS_SUFFIX = ".qrels"
QUESTION_POLICIES = ("all", "answerable", "both-labels")


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
    of_splits = {f"{split}{end}" for split in manifest["splits"] for end in (POOLS_SUFFIX, QRELS_SUFFIX)}
    for file in sorted(manifest["files"].keys() - of_splits):
        if file.endswith((POOLS_SUFFIX, QRELS_SUFFIX)):  # its questions would be missing silently
            expected = f"a file of one of the splits {', '.join(manifest['splits'])}"
            raise InputError(path, position="files", value=file, expected=expected)
    return manifest


def manifest_beside(file: Location) -> dict[str, Any] | None:
    """The manifest of the collection in the folder of a file, such as its pools; None without a valid one."""
    if not (file.parent / MANIFEST).is_file():
        return None
    try:
        return read_manifest(file.parent)
    except InputError:  # a file of another program
        return None


def fingerprint_of(manifest: Mapping[str, Any]) -> str:
    """A hash of the contents of all files of a collection."""
    files = json.dumps(manifest["files"], sort_keys=True)
    return hashlib.sha256(files.encode()).hexdigest()[:16]


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
        if questions not in QUESTION_POLICIES:
            raise UsageError(
                f"questions policy {questions!r}: expected one of {', '.join(QUESTION_POLICIES)}"
            )
        self._path = location(path)
        self._questions, self._overwrite = questions, overwrite
        self._policies: dict[str, Counter[str]] = defaultdict(Counter)
        self._splits: dict[str, dict[str, int]] = {}
        self._texts = SharedTexts()
        self._manifest = {"format": 1, "name": name, "source": source, "details": details or {}}

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
            answers = self._into / ANSWERS
            if not answers.exists():  # else ``add_answers`` wrote it
                self._texts.move([self._into / f"{split}{POOLS_SUFFIX}" for split in self._splits], answers)
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
        write_answers(self._into / ANSWERS, self._with_legal_ids(answers))

    def add_split(self, split: str, pools: Iterable[LabelledPool]) -> None:
        """Write a split, with one row group and the judgements of one pool in memory."""
        legal = load_schema("collection")["properties"]["splits"]["propertyNames"]["pattern"]
        if not re.fullmatch(legal, split):
            raise InputError(self._path, position="split", value=split, expected="a name, such as test")
        counts: Counter[str] = Counter()
        seen: set[str] = set()
        with (
            PoolsWriter(self._into / f"{split}{POOLS_SUFFIX}") as writer,
            (self._into / f"{split}{QRELS_SUFFIX}").open("w", encoding="utf-8", newline="\n") as qrels,
        ):
            for pool in pools:
                record = self._clean(split, pool)
                if pool.question_id in seen:
                    position = f"split {split!r}"
                    raise InputError(
                        self._path, position=position, value=pool.question_id, expected="each question once"
                    )
                seen.add(pool.question_id)
                if record is None:
                    continue
                writer.write(record)
                self._texts.count(record.texts or ())
                in_pool = set(record.answer_ids)
                positives = [answer for answer, value in pool.relevance.items() if value > 0]
                counts["questions"] += 1
                counts["candidates"] += len(record.answer_ids)
                counts["positives"] += len(positives)
                self._policies["relevant_missing_from_pool_kept"][split] += sum(
                    a not in in_pool for a in positives
                )
                qrels.writelines(f"{pool.question_id} 0 {a} {value}\n" for a, value in pool.relevance.items())
        if not counts["questions"]:
            raise AptoolError(f"{self._path}: split {split!r}: no question left, expected at least one")
        self._splits[split] = {key: counts[key] for key in ("questions", "candidates", "positives")}

    def _clean(self, split: str, pool: LabelledPool) -> PoolRecord | None:
        """Apply the policies to a pool; None if the question is dropped."""
        position = f"split {split!r}, question {pool.question_id!r}"
        if not pool.answer_ids:
            raise InputError(
                self._path, position=position, value=[], expected="a pool of at least one candidate"
            )
        ids.check_question_id(self._path, f"split {split!r}", pool.question_id, "question_id")
        for answer_id in dict.fromkeys([*pool.answer_ids, *pool.relevance]):
            ids.check_answer_id(self._path, position, answer_id, "answer_id")
        answer_ids = list(dict.fromkeys(pool.answer_ids))
        if not keeps_question(self._questions, answer_ids, pool.relevance):
            self._policies[f"questions_dropped_not_{self._questions}"][split] += 1
            return None
        repeated = len(pool.answer_ids) - len(answer_ids)
        self._policies["duplicate_candidates_dropped"][split] += repeated
        texts = pool.texts
        if texts is not None and repeated:
            first = {answer_id: texts[i] for i, answer_id in reversed(list(enumerate(pool.answer_ids)))}
            texts = [first[answer_id] for answer_id in answer_ids]
        return PoolRecord(pool.question_id, pool.question, answer_ids, texts)

    def _with_legal_ids(self, answers: Iterable[tuple[str, str]]) -> Iterator[tuple[str, str]]:
        for answer_id, text in answers:
            ids.check_answer_id(self._path, ANSWERS, answer_id, "answer_id")
            yield answer_id, text

    def _write_manifest(self) -> dict[str, Any]:
        files = sorted(file for file in self._into.iterdir() if file.is_file())
        manifest = {
            **self._manifest,
            "splits": self._splits,
            "policies": {name: dict(rows) for name, rows in sorted(self._policies.items())},
            "files": {file.name: sha256_of(file) for file in files},
        }
        check_document("collection", manifest, self._path / MANIFEST)
        ordered = {key: manifest[key] for key in load_schema("collection")["properties"] if key in manifest}
        (self._into / MANIFEST).write_text(json_text(ordered), encoding="utf-8")
        return read_json(self._into / MANIFEST)


class _SameCollectionError(Exception):
    """The folder has the collection already."""


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
