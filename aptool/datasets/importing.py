"""Shared by all importers: rows become pools, pools become a collection, and every row is counted.

An importer reads its format into `Pair`s. `pools_of` groups them by question and checks what a collection
requires, so that an error names the line. `write_collection` passes the pools to `CollectionWriter`, which
applies the policies, and records how much was read.
"""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Literal, NamedTuple, TypeAlias

from aptool.errors import AptoolError, InputError, UsageError
from aptool.formats.collection import MANIFEST, Collection, CollectionWriter, LabelledPool
from aptool.formats.ids import check_answer_id, check_question_id
from aptool.formats.location import PathOrUrl, location

Resolution: TypeAlias = Literal["error", "max", "min"]

_INTEGER = re.compile(r"[+-]?[0-9]{1,9}")
_OWN_POLICIES = ("empty_answers_kept", "questions_without_candidates_dropped")
_SPLIT = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]*")


class Pair(NamedTuple):
    """One question with one candidate, as a row of a file has it.

    Attributes:
        place: number of the row or line, for messages.
        question_id: the same for all pairs of a question.
        question: its text, the same in all of them.
        answer_id: id of the candidate; None: made from its position in the pool.
        answer: its text.
        relevance: its judgement.
    """

    place: int
    question_id: str
    question: str
    answer_id: str | None
    answer: str
    relevance: int


class Columns(NamedTuple):
    """The names of the parts of a pair in a format, for messages."""

    question_id: str = "question_id"
    question: str = "question"
    answer_id: str = "answer_id"
    answer: str = "answer"
    label: str = "label"


class Conflicts:
    """Pairs that have different labels in different rows: refused, or resolved and counted.

    Attributes:
        resolution: ``error``, or which of the labels stays: ``max`` or ``min``.
        count: how many pairs were resolved.
    """

    def __init__(self, resolution: Resolution = "error") -> None:
        self.resolution = resolution
        self._pairs: set[tuple[str, str]] = set()

    @property
    def count(self) -> int:
        """How many pairs were resolved."""
        return len(self._pairs)

    def resolve(self, question_id: str, answer_id: str, first: int, again: int) -> int:
        """The label that stays."""
        self._pairs.add((question_id, answer_id))
        return max(first, again) if self.resolution == "max" else min(first, again)


class _Pool:
    """A pool under construction."""

    def __init__(self, pair: Pair) -> None:
        self.place = pair.place
        self.question = pair.question
        self.answer_ids: list[str] = []
        self.texts: list[str] = []
        self.places: list[int] = []
        self.rows: dict[str, int] = {}  # answer id -> where in the lists it came first
        self.relevance: dict[str, int] = {}


def pools_of(
    path: PathOrUrl,
    pairs: Iterable[Pair],
    columns: Columns,
    *,
    unit: str = "line",
    empty_answers: bool,
    conflicts: Conflicts | None = None,
) -> Iterator[LabelledPool]:
    """Groups pairs by question id, in the order in which the questions first appear.

    Memory holds the file's text: the pairs of a question need not be adjacent.

    Args:
        path: where the pairs come from, for messages.
        pairs: the rows.
        columns: the names of their parts, for messages.
        unit: what a place counts: ``line`` or ``row``.
        empty_answers: whether a candidate may have an empty text.
        conflicts: what becomes of a pair with different labels; None refuses it.

    Raises:
        InputError: there is no pair, an id or a text is not valid, or two rows contradict each other.
    """
    pools: dict[str, _Pool] = {}
    conflicts = conflicts if conflicts is not None else Conflicts()
    for pair in pairs:
        place = f"{unit} {pair.place}"
        pool = pools.get(pair.question_id)
        if pool is None:
            check_question_id(path, place, pair.question_id, columns.question_id)
            check_text(path, place, columns.question, pair.question)
            pool = pools[pair.question_id] = _Pool(pair)
        elif pool.question != pair.question:
            expected = f"the text that question {pair.question_id!r} has in {unit} {pool.place}"
            raise InputError(
                path, place=place, column=columns.question, value=pair.question, expected=expected
            )
        check_text(path, place, columns.answer, pair.answer, empty=empty_answers)
        _add(path, unit, pool, pair, columns, conflicts)
    if not pools:
        raise InputError(path, problem=f"no {unit}", expected="at least one question with a candidate")
    for question_id in list(pools):
        pool = pools.pop(question_id)
        yield LabelledPool(question_id, pool.question, pool.answer_ids, pool.texts, pool.relevance)


def _add(path: PathOrUrl, unit: str, pool: _Pool, pair: Pair, columns: Columns, conflicts: Conflicts) -> None:
    place = f"{unit} {pair.place}"
    if pair.answer_id is None:
        answer_id = f"{pair.question_id}-{len(pool.answer_ids)}"
    else:
        answer_id = pair.answer_id
        check_answer_id(path, place, answer_id, columns.answer_id)
    relevance = pair.relevance
    first = pool.rows.setdefault(answer_id, len(pool.answer_ids))
    if first < len(pool.answer_ids):
        said = f"that candidate {answer_id!r} of this question has in {unit} {pool.places[first]}"
        if pool.texts[first] != pair.answer:
            expected = f"the text {said}"
            raise InputError(path, place=place, column=columns.answer, value=pair.answer, expected=expected)
        before = pool.relevance[answer_id]
        if before != relevance and conflicts.resolution == "error":
            expected = f"the label {before} {said}"
            raise InputError(path, place=place, column=columns.label, value=relevance, expected=expected)
        if before != relevance:
            relevance = conflicts.resolve(pair.question_id, answer_id, before, relevance)
    pool.answer_ids.append(answer_id)
    pool.texts.append(pair.answer)
    pool.places.append(pair.place)
    pool.relevance[answer_id] = relevance


def check_text(path: PathOrUrl, place: str, column: str, value: str, *, empty: bool = False) -> None:
    """Checks a text.

    Raises:
        InputError: it is blank and ``empty`` is False, or it has a NUL character or a lone surrogate.
    """
    if not empty and not value.strip():
        raise InputError(path, place=place, column=column, value=value, expected="a text")
    if "\0" in value or (not value.isascii() and any("\ud800" <= c <= "\udfff" for c in value)):
        wanted = "a text without NUL characters and lone surrogates"
        raise InputError(path, place=place, column=column, value=value, expected=wanted)


def parse_label(path: PathOrUrl, place: str, column: str, value: str, *, graded: bool = False) -> int:
    """A relevance label: 0 or 1, or where ``graded`` any whole number of at most nine digits.

    Raises:
        InputError: it is not.
    """
    if value in ("0", "1") or (graded and _INTEGER.fullmatch(value)):
        return int(value)
    expected = "a whole number: 0 not relevant, 1 or more relevant" if graded else "0 or 1"
    raise InputError(path, place=place, column=column, value=value, expected=expected)


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
    """The pools of one split, the file that they are read from, and its contradictory labels."""

    path: PathOrUrl
    pools: Iterable[LabelledPool]
    conflicts: Conflicts | None = None


def write_collection(
    out: PathOrUrl,
    *,
    name: str,
    source: str,
    splits: Mapping[str, SplitPools],
    questions: str = "all",
    details: Mapping[str, Any] | None = None,
    answers: Iterable[tuple[str, str]] | None = None,
) -> Collection:
    """Writes a collection; its manifest's ``details.read`` says what was read before any policy.

    Args:
        out: the folder; an existing collection is replaced on success.
        name: one word.
        source: description of where the text comes from.
        splits: split -> its pools, read one after the other.
        questions: which questions are kept, see `CollectionWriter`.
        details: further entries of the manifest.
        answers: the ``(answer id, text)`` pairs that the pools share.

    Raises:
        AptoolError: a pool cannot be read, or no question of a split is left.
    """
    check_output(out)
    read: dict[str, dict[str, int]] = {}
    # The manifest is written last, so it sees what `read` has become by then.
    everything = {**(details or {}), "questions": questions, "read": read}
    with CollectionWriter(out, name=name, source=source, questions=questions, details=everything) as writer:
        if answers is not None:
            writer.add_answers(answers)
        for split, (path, pools, conflicts) in splits.items():
            counts: Counter[str] = Counter()
            try:
                writer.add_split(split, _counted(pools, counts))
            except InputError:
                raise
            except AptoolError as error:  # the writer knows the output only
                kept = "at least one question" + (f" that is {questions}" if questions != "all" else "")
                raise InputError(path, problem=f"{counts['questions']} questions", expected=kept) from error
            read[split] = {key: counts[key] for key in ("questions", "candidates")}
            for policy in _OWN_POLICIES:
                if counts[policy]:
                    writer.count(policy, split, counts[policy])
            if conflicts is not None and conflicts.count:
                writer.count(f"contradictory_labels_{conflicts.resolution}_kept", split, conflicts.count)
    return Collection(out)


def _counted(pools: Iterable[LabelledPool], counts: Counter[str]) -> Iterator[LabelledPool]:
    """The pools that have a candidate; counts what was read."""
    for pool in pools:
        counts["questions"] += 1
        counts["candidates"] += len(pool.answer_ids)
        if pool.texts is not None:
            counts["empty_answers_kept"] += sum(not text.strip() for text in pool.texts)
        if pool.answer_ids:
            yield pool
        else:
            counts["questions_without_candidates_dropped"] += 1
