"""Importer of tables with a row per question and candidate, in files or in memory.

Without ids, a question is identified by its text, and a candidate by its text within the question.
"""

import logging
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass

from aptool.data.candidates import add_candidates
from aptool.data.importing import UNLABELLED_DROPPED, SplitPools, collection_name, write_collection
from aptool.data.near_copies import divide
from aptool.data.pairs import SPELLINGS_JOINED, Columns, Pair, pools_of
from aptool.data.table_files import Row, TextFormat, column_value, read_table, table_files
from aptool.data.values import GRADE, comparable, id_text, parse_label
from aptool.data.writing import read_manifest
from aptool.errors import InputError, UsageError
from aptool.paths import PathOrUrl, location

logger = logging.getLogger(__name__)

_LABEL = "label"
_RATIO = re.compile(r"[1-9][0-9]{0,3}(?::[1-9][0-9]{0,3}){1,2}")


@dataclass(frozen=True)
class ColumnNames:
    """The columns of the parts of a pair."""

    question: str = "question"  # the question's text
    answer: str = "answer"  # the candidate's text
    label: str = _LABEL  # the relevance
    question_id: str | None = None  # None: the text identifies the question
    answer_id: str | None = None  # None: the text identifies the candidate

    @property
    def columns(self) -> Columns:
        """The columns, for messages; a text replaces a missing id."""
        question_id, answer_id = self.question_id or self.question, self.answer_id or self.answer
        return Columns(question_id, self.question, answer_id, self.answer, self.label)


@dataclass(frozen=True)
class ImportPolicies:
    """Policies for rows that are not plain pairs; each has the name of its command-line option."""

    questions: str = "all"  # see `CollectionWriter`
    unlabelled: str = "refuse"  # rows without a label: ``refuse``, or ``drop`` and count them
    add_candidates: str | None = None  # ``all`` answers of the split become candidates of each question
    split_ratio: str | None = None  # ``TRAIN:DEV`` or ``TRAIN:DEV:TEST``, to split one table by question

    @property
    def shares(self) -> list[int]:
        """The numbers of ``split_ratio``; empty without one."""
        if self.split_ratio is None:
            return []
        if not _RATIO.fullmatch(str(self.split_ratio)):
            expected = "TRAIN:DEV or TRAIN:DEV:TEST, such as 80:10:10"
            raise UsageError(f"--split-ratio {self.split_ratio!r}: expected {expected}")
        return [int(number) for number in self.split_ratio.split(":")]

    def check(self, splits: Sequence[str]) -> None:
        """Check the values for tables of these splits."""
        if self.shares and len(splits) != 1:
            raise UsageError(f"--split-ratio: expected one table, not {', '.join(splits)}")
        if self.add_candidates not in (None, "all"):
            raise UsageError(f"--add-candidates {self.add_candidates!r}: expected all")
        if self.unlabelled not in ("refuse", "drop"):
            raise UsageError(f"--unlabelled {self.unlabelled!r}: expected refuse or drop")


def import_table(
    out: PathOrUrl,
    splits: Mapping[str, str | Iterable[Row]],
    names: ColumnNames | None = None,
    policies: ImportPolicies | None = None,
    text: TextFormat | None = None,
    *,
    name: str | None = None,
    overwrite: bool = False,
) -> None:
    """Import each split from a file, a folder, a glob, or rows in memory; see `table_files`.

    The default name of the collection is that of its folder.
    """
    names, policies, text = names or ColumnNames(), policies or ImportPolicies(), text or TextFormat()
    if policies.shares and len(splits) == 1:
        splits = {"table": next(iter(splits.values()))}  # in ids of questions, which no split names
    policies.check(list(splits))
    sources = {
        split: _split_pools(split, content, names, policies, text) for split, content in splits.items()
    }
    if policies.shares:
        sources = divide(sources["table"], policies.shares)
    if policies.add_candidates:
        has_ids = names.answer_id is not None
        sources = {
            split: content._replace(pools=add_candidates(content, has_answer_ids=has_ids))
            for split, content in sources.items()
        }
    layout = {**asdict(names), **asdict(text)}
    details: dict[str, object] = {
        "layout": {key: value for key, value in layout.items() if value is not None}
    }
    for option in ("add_candidates", "split_ratio"):
        if value := getattr(policies, option):
            details[option] = value
    files = [
        content.rstrip("/").rsplit("/", 1)[-1] for content in splits.values() if isinstance(content, str)
    ]
    write_collection(
        out,
        name=name or collection_name(out),
        source=f"imported from {', '.join(files) or 'rows in memory'}",
        splits=sources,
        questions=policies.questions,
        details=details,
        overwrite=overwrite,
    )
    for split, counts in read_manifest(location(out))["splits"].items():
        if not policies.add_candidates and counts["candidates"] < 2 * counts["questions"]:
            message = "--add-candidates all makes the answers of other questions candidates as well"
            logger.warning(f"{split}: {message}")


def _split_pools(
    split: str, content: str | Iterable[Row], names: ColumnNames, policies: ImportPolicies, text: TextFormat
) -> SplitPools:
    if isinstance(content, str):
        path, rows = content, _read_files(table_files(content), text, names)
    else:
        path, rows = f"rows of {split!r}", ((f"row {number}", row) for number, row in enumerate(content))
    counts: dict[str, int] = {}
    pairs = _with_ids(_read_pairs(path, split, rows, names, policies, counts), split, names, counts)
    pools = pools_of(path, pairs, names.columns, drop_empty=True)
    return SplitPools(path, pools, counts)


def _read_files(files: list[str], text: TextFormat, names: ColumnNames) -> Iterator[tuple[str, Row]]:
    for file in files:
        prefix = f"{file.rsplit('/', 1)[-1]}, " if len(files) > 1 else ""
        for position, row in read_table(file, text, names.columns):
            yield prefix + position, row


def _read_pairs(
    path: str,
    split: str,
    rows: Iterable[tuple[str, Row]],
    names: ColumnNames,
    policies: ImportPolicies,
    counts: dict[str, int],
) -> Iterator[Pair]:
    """Read the pairs of rows; ids that no column has are empty."""
    labels = _Labels(path, split, names.label, policies)

    def id_of(position: str, row: Row, column: str | None, option: str) -> str:
        if column is None:
            return ""
        return id_text(path, position, column, column_value(path, position, row, column, option))

    for position, row in rows:
        question = column_value(path, position, row, names.question, "--question NAME")
        answer = column_value(path, position, row, names.answer, "--answer NAME")
        if answer is None or answer != answer:  # a missing value of a data frame is null or NaN
            answer = ""
        for column, value in ((names.question, question), (names.answer, answer)):
            if not isinstance(value, str):
                raise InputError(path, position=position, column=column, value=value, expected="a text")
        question_id = id_of(position, row, names.question_id, "--question-id NAME")
        answer_id = id_of(position, row, names.answer_id, "--answer-id NAME")
        relevance = labels.relevance(position, row, answer)
        if relevance is None:
            counts[UNLABELLED_DROPPED] = counts.get(UNLABELLED_DROPPED, 0) + 1
            continue
        yield Pair(position, question_id, question, answer_id, answer, relevance)


class _Labels:
    """Reads the labels of a split. With added candidates, rows without labels have a relevant answer each."""

    def __init__(self, path: str, split: str, column: str, policies: ImportPolicies) -> None:
        self._path, self._split, self._column = path, split, column
        self._drop = policies.unlabelled == "drop"
        self._may_lack_labels = policies.add_candidates is not None and column == _LABEL
        self._all_relevant: bool | None = None  # None before the first row

    def relevance(self, position: str, row: Row, answer: str) -> int | None:
        """The relevance of a row; None for a row to drop."""
        if self._all_relevant is None:
            self._all_relevant = self._may_lack_labels and _LABEL not in row
            if self._all_relevant:
                logger.info(f"{self._split}: no column {_LABEL!r}: each answer is relevant for its question")
        if self._all_relevant:
            if _LABEL in row:
                problem = "a row with this column after rows without it"
                raise InputError(
                    self._path, position=position, column=_LABEL, problem=problem, expected=GRADE
                )
            return 1
        hint = "--label NAME"
        if self._column == _LABEL:
            hint += ", or --add-candidates all if each row is a question with its right answer"
        label = column_value(self._path, position, row, self._column, hint)
        if not answer.strip():  # a candidate that is dropped as empty needs no label
            return 0
        if label is None or label == "" or label != label:  # null, or NaN of a data frame
            if self._drop:
                return None
            expected = f"{GRADE} (--unlabelled drop leaves such rows out)"
            raise InputError(
                self._path, position=position, column=self._column, value=label, expected=expected
            )
        return parse_label(self._path, position, self._column, label, graded=True)


def _with_ids(
    pairs: Iterable[Pair], split: str, names: ColumnNames, counts: dict[str, int]
) -> Iterator[Pair]:
    """Number the texts by first appearance, where the table has no ids; an id fits no other split's qrels."""
    questions: dict[str, tuple[str, str]] = {}  # comparable text -> id, first text
    spellings: set[str] = set()
    answers: dict[str, dict[str, str]] = {}
    for pair in pairs:
        if names.question_id is None:
            first = f"{split}-Q{len(questions)}", pair.question
            question_id, question = questions.setdefault(comparable(pair.question), first)
            if question != pair.question:
                spellings.add(pair.question)
                counts[SPELLINGS_JOINED] = len(spellings)
            pair = pair._replace(question_id=question_id, question=question)
        if names.answer_id is None:
            ids = answers.setdefault(pair.question_id, {})
            pair = pair._replace(answer_id=ids.setdefault(pair.answer, f"{pair.question_id}-{len(ids)}"))
        yield pair
