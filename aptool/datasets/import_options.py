"""Options of an import of a user's own data: its columns, the policies on its rows, and its labels.

Error messages name command-line options by the constants of this module.
"""

import difflib
import logging
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from typing import Any, Literal, NamedTuple, TypeAlias, get_args

from aptool.datasets.pairs import GRADE, INTEGER, Columns, Conflicts, Empty, Pair, Resolution, label_text
from aptool.errors import AptoolError, InputError, UsageError
from aptool.formats.location import PathOrUrl

logger = logging.getLogger(__name__)

RELEVANT_OPTION = "--relevant"
UNLABELLED_OPTION = "--unlabelled"
COLUMNS_OPTION = "--columns"
DELIMITER_OPTION = "--delimiter"
ENCODING_OPTION = "--encoding"
ADD_CANDIDATES_OPTION = "--add-candidates"
SPLIT_RATIO_OPTION = "--split-ratio"
LABEL = "label"

Quotes: TypeAlias = Literal["literal", "csv"]

RawPair: TypeAlias = tuple[Pair, str]
"""A pair without relevance, and its label as text."""

# A column with more distinct values holds ids or texts, not labels.
MOST_LABELS = 100
_MOST_ROWS = 100_000  # read after an unknown label, to list the labels of the file
_DELIMITER = re.compile(r'[^"\r\n]')
_RULE = re.compile(r"(bm25:)?([1-9][0-9]{0,8})")
_RATIO = re.compile(r"[1-9][0-9]{0,3}(?::[1-9][0-9]{0,3}){1,2}")
_NUMBER = re.compile(r"[+-]?[0-9]*\.?[0-9]+(?:[eE][+-]?[0-9]+)?|(?i:nan)")
_MISSING = ("", "null")
# A class whose name begins so, followed by no letter, is not relevant.
_NOT_RELEVANT = re.compile(
    r"(?:no|not|non|neg|negative|false|wrong|bad|incorrect|irrelevant)(?![A-Za-z])", re.I
)


@dataclass(frozen=True)
class ColumnNames:
    """The columns (or JSON keys) of the parts of a pair, and the format of a table."""

    question: str = "question"  # column (or key) of the question's text
    answer: str | None = None  # of the candidate's text; None: ``answer``, and in a candidate also ``text``
    label: str = LABEL  # of the relevance label, or of the list of labels of candidates that are texts
    question_id: str | None = None  # column of the question's id; None: the text identifies the question
    answer_id: str | None = None  # column of the candidate's id; None: the text identifies the candidate
    candidates: str = "candidates"  # key of the list of candidates
    positions: str = "relevant"  # key of the positions, from 0, of the relevant candidates that are texts
    field: str | None = None  # dotted path to the list of objects in a JSON document; None: it is the list
    header: tuple[str, ...] | None = None  # columns of a table; None: its first line has their names
    # Of a table in text; None: recognised from its first lines.
    delimiter: str | None = None
    # ``literal``: quotation marks are text; ``csv``: they enclose fields, in which the delimiter and line
    # breaks are text.
    quotes: Quotes | None = None
    encoding: str | None = None
    sheet: str | None = None  # of an Excel workbook; None: the first

    def __post_init__(self) -> None:
        """Check the format of a table."""
        if self.encoding is not None:
            try:
                "".encode(self.encoding)
            except LookupError as error:
                expected = "a text encoding of Python, such as cp1252"
                raise UsageError(f"{ENCODING_OPTION} {self.encoding!r}: expected {expected}") from error
        if self.delimiter is not None and not _DELIMITER.fullmatch(str(self.delimiter)):
            expected = "one character other than a quotation mark"
            raise UsageError(f"{DELIMITER_OPTION} {self.delimiter!r}: expected {expected}")
        if self.quotes is not None and self.quotes not in get_args(Quotes):
            raise UsageError(f"--quotes {self.quotes!r}: expected {' or '.join(get_args(Quotes))}")

    @property
    def columns(self) -> Columns:
        """The columns of a row that is a pair; a text replaces a missing id."""
        question_id, answer_id = self.question_id or self.question, self.answer_id or self.pair_answer
        return Columns(question_id, self.question, answer_id, self.pair_answer, self.label)

    @property
    def pair_answer(self) -> str:
        """Column of the candidate's text in a row that is a pair."""
        return self.answer or "answer"

    def candidate_answer(self, candidate: Mapping[str, object]) -> str:
        """Key of the text in a candidate that is an object."""
        return self.answer or ("answer" if "answer" in candidate and "text" not in candidate else "text")


@dataclass(frozen=True)
class ImportPolicies:
    """Policies for rows that are not plain pairs; each has the name of its command-line option."""

    questions: str = "all"  # see `CollectionWriter`
    conflicts: Resolution = "error"  # for a pair with different labels: keep the ``max`` or the ``min``
    empty: Empty = "drop"  # for candidates without text: ``drop`` and count them, ``keep`` or ``refuse``
    relevant: tuple[str, ...] | None = None  # the relevant labels; None: labels are whole numbers
    unlabelled: tuple[str, ...] = ()  # splits without labels, which get pools and no qrels
    add_candidates: str | None = (
        None  # ``all``, N or ``bm25:N`` answers of other questions; see `AddedAnswers`
    )
    seed: int = 0  # of the N answers that are drawn at random
    split_ratio: str | None = None  # ``TRAIN:DEV`` or ``TRAIN:DEV:TEST``, to split one table by question
    strip_html: bool = False  # remove the tags of HTML from questions and answers

    @property
    def added_answers(self) -> "AddedAnswers | None":
        """The answers of other questions that become candidates."""
        if self.add_candidates is None:
            return None
        match = _RULE.fullmatch(str(self.add_candidates))
        if match is not None:
            return AddedAnswers(int(match[2]), match[1] is not None)
        if self.add_candidates != "all":
            expected = "all, a number N, or bm25:N"
            raise UsageError(f"{ADD_CANDIDATES_OPTION} {self.add_candidates!r}: expected {expected}")
        return AddedAnswers(None)

    @property
    def shares(self) -> list[int]:
        """The numbers of ``split_ratio``; empty without one."""
        if self.split_ratio is None:
            return []
        if not _RATIO.fullmatch(str(self.split_ratio)):
            expected = "TRAIN:DEV or TRAIN:DEV:TEST, such as 80:10:10"
            raise UsageError(f"{SPLIT_RATIO_OPTION} {self.split_ratio!r}: expected {expected}")
        return [int(number) for number in self.split_ratio.split(":")]

    def check(self, splits: Sequence[str]) -> None:
        """Check the values; unlabelled splits must be among ``splits``."""
        if self.shares and len(splits) != 1:
            raise UsageError(f"{SPLIT_RATIO_OPTION}: expected one table, not {', '.join(splits)}")
        _ = self.added_answers  # raises for another value
        for name, choices in (("conflicts", get_args(Resolution)), ("empty", get_args(Empty))):
            value = getattr(self, name)
            if value not in choices:
                raise UsageError(f"--{name} {value!r}: expected one of {', '.join(choices)}")
        if self.relevant is not None and not all(label.strip() for label in self.relevant or ("",)):
            raise UsageError(f"{RELEVANT_OPTION}: expected labels, such as Good,PotentiallyUseful")
        for split in self.unlabelled:
            if split not in splits:
                expected = f"one of the imported splits: {', '.join(splits)}"
                raise UsageError(f"{UNLABELLED_OPTION} {split!r}: expected {expected}")


class AddedAnswers(NamedTuple):
    """Which answers of other questions become candidates of a question."""

    number: int | None  # per question; None: all answers of the split
    is_bm25: bool = False  # the best by BM25; else drawn at random
    counts_relevant: bool = False  # whether ``number`` is the size of the pool, relevant answers included

    @property
    def is_random(self) -> bool:
        """Whether answers are drawn."""
        return self.number is not None and not self.is_bm25


class SplitPolicies:
    """The policies for one split, with the number of rows that each policy affected."""

    def __init__(self, split: str, policies: ImportPolicies) -> None:
        self.split = split
        self.labelled = split not in policies.unlabelled
        self.empty = policies.empty
        self.relevant = policies.relevant
        self.conflicts = Conflicts(policies.conflicts)
        self.counts: Counter[str] = Counter()  # policy -> rows
        self.strip_html = policies.strip_html
        # Label of each pair if no column has it.
        self.implied_label = None if self.labelled else ""
        self._may_lack_labels = policies.add_candidates is not None and policies.relevant is None
        self._logged: set[str] = set()

    def reads_label(self, path: str, position: str | None, column: str, columns: Sequence[str]) -> bool:
        """Whether pairs have a label column. With --add-candidates, each answer may be right instead."""
        if self.labelled and self._may_lack_labels and column == LABEL:
            is_missing = column not in columns
            if self.implied_label is not None and not is_missing:
                problem = "a row with this column after rows without it"
                raise InputError(path, position=position, column=column, problem=problem, expected=GRADE)
            if is_missing:
                self.implied_label = "1"
                self.log_once(f"no column {column!r}: each answer is relevant for its question")
            self._may_lack_labels = is_missing
        return self.implied_label is None

    def log_once(self, message: str) -> None:
        """Log a message that several files of the split may cause."""
        if message not in self._logged:
            logger.info(f"{self.split}: {message}")
            self._logged.add(message)


class Labels:
    """Maps labels to relevance: numbers, true and false, or with ``relevant`` these to 1, others to 0."""

    def __init__(self, relevant: Sequence[str] | None = None) -> None:
        self._relevant = frozenset(map(label_text, relevant)) if relevant is not None else None
        self._relevance: dict[str, int] = {}

    def apply(
        self, path: PathOrUrl, column: str, rows: Iterator[RawPair], policies: SplitPolicies
    ) -> Iterator[Pair]:
        """Set the relevance of pairs. A candidate that is dropped as empty needs no label."""
        drops_empty = policies.empty == "drop"
        for pair, text in rows:
            if pair.answer is None or (drops_empty and text in _MISSING and not pair.answer.strip()):
                yield pair
                continue
            relevance = self._relevance.get(text)
            if relevance is None:
                relevance = self._parse(text)
                if relevance is None:
                    expected = GRADE + self._hint(text, rows, policies.split)
                    raise InputError(
                        path, position=pair.position, column=column, value=text, expected=expected
                    )
                self._relevance[text] = relevance
                if self._relevant is not None and len(self._relevance) > MOST_LABELS:
                    problem = f"more than {MOST_LABELS} distinct labels"
                    raise InputError(path, column=column, problem=problem, expected="a column of labels")
            yield pair._replace(relevance=relevance)

    def check_use(self) -> None:
        """Check that each label of ``relevant`` occurs in the data."""
        missing = sorted((self._relevant or frozenset()) - self._relevance.keys())
        if missing and self._relevance:
            labels = quoted_names(sorted(self._relevance))
            raise UsageError(f"{RELEVANT_OPTION} {missing[0]!r}: no such label; expected some of {labels}")

    def _parse(self, text: str) -> int | None:
        if self._relevant is not None:
            return int(text in self._relevant)
        return int(text) if INTEGER.fullmatch(text) else None

    def _hint(self, text: str, rows: Iterator[RawPair], split: str) -> str:
        """Name the option that reads the labels of the file, if one does."""
        labels = {*self._relevance, text}
        with suppress(AptoolError):
            for _, label in islice(rows, _MOST_ROWS):
                labels.add(label)
                if len(labels) > MOST_LABELS:
                    return ""
        words = sorted(labels.difference(_MISSING))
        if not words:
            return f" ({UNLABELLED_OPTION} {split} if the split has no labels)"
        if text in _MISSING or all(map(_NUMBER.fullmatch, words)):
            return ""
        return f"; of the labels {quoted_names(words)}, name the relevant ones: {RELEVANT_OPTION} LABEL,LABEL"


class ClassNames:
    """The names of the classes of a column of labels, as data sets of the hub declare them."""

    def __init__(self, source: str, column: str, features: Any) -> None:
        """Find the names in ``features``, a description of columns by the library datasets."""
        self._source, self._column = source, column
        self.names = [str(name) for name in _find_names(features, column)]

    def grades(self, policies: SplitPolicies) -> dict[str, str]:
        """The label of each class, by its number; raise if the names do not show which is relevant."""
        numbered = {str(number): label_text(name) for number, name in enumerate(self.names)}
        relevant = set(map(label_text, policies.relevant or ()))
        if not self.names or not policies.labelled or (relevant and relevant <= numbered.keys()):
            return {}
        grades = numbered | {"-1": "null"}  # as in splits without labels
        if relevant or all(map(INTEGER.fullmatch, numbered.values())):
            return grades
        negative = [number for number, name in enumerate(self.names) if _NOT_RELEVANT.match(name)]
        if len(self.names) != 2 or len(negative) != 1:
            expected = f"{RELEVANT_OPTION} LABEL,LABEL, with the relevant ones"
            problem = f"labels are classes, {quoted_names(self.names)}"
            raise InputError(self._source, column=self._column, problem=problem, expected=expected)
        name = self.names[1 - negative[0]]
        policies.log_once(f"of the classes {quoted_names(self.names)}, {name!r} is relevant")
        return grades | {str(number): str(int(number not in negative)) for number in range(2)}


def _find_names(features: Any, column: str) -> list[Any]:
    """The names of the classes of a column, at any depth of a description of columns; empty if none."""
    if isinstance(features, list):  # of a card: {"name": column, "dtype": {"class_label": {"names": {...}}}}
        entries = [entry for entry in features if isinstance(entry, dict)]
        features = {str(entry.get("name")): entry for entry in entries}
    if not isinstance(features, dict):
        return []
    feature = features.get(column)
    if isinstance(feature, dict):
        declared = feature.get("dtype")
        if isinstance(declared, dict):
            feature = declared.get("class_label", feature)
        names = feature.get("names")
        if isinstance(names, dict):
            names = [names[key] for key in sorted(names, key=lambda key: (len(str(key)), str(key)))]
        if isinstance(names, list) and names:
            return names
    return next((names for inner in features.values() if (names := _find_names(inner, column))), [])


def quoted_names(names: Sequence[str]) -> str:
    """List at most twenty names for a message, quoted and shortened."""
    shown = [repr(name if len(name) <= 30 else name[:29] + "…") for name in names[:20]]
    return (", ".join(shown) or "none") + (", …" if len(names) > 20 else "")


def option_hint(part: str, split: str, column: str = "") -> str:
    """Name the options that help if the column of a part, such as ``question_id``, is missing from rows."""
    hint = f"--{part.replace('_', '-')} NAME"
    if part != "label":
        return hint
    hint += f", or {UNLABELLED_OPTION} {split} for a split without labels"
    if column != LABEL:
        return hint
    return f"{hint}, or {ADD_CANDIDATES_OPTION} all if each row is a question with its right answer"


def missing_column(
    path: str, position: str | None, name: str, names: Sequence[str], hint: str = ""
) -> InputError:
    """The error for a missing column: lists the columns, the nearest name and the options that help."""
    expected = "this column" + (f", or {hint}" if hint else "")
    lowered = {column.casefold(): column for column in names}
    near = difflib.get_close_matches(name.casefold(), lowered, n=1, cutoff=0.5)
    if near:
        expected += f"; did you mean {lowered[near[0]]!r}?"
    problem = f"not found among {quoted_names(names)}"
    return InputError(path, position=position, column=name, problem=problem, expected=expected)
