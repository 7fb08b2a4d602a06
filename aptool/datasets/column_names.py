"""Which columns (or JSON keys) of a user's own data hold what."""

import difflib
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from aptool.datasets.pairs import Columns, Pair, parse_label
from aptool.datasets.policies import RELEVANT_OPTION, UNLABELLED_OPTION, SplitPolicies
from aptool.errors import AptoolError, InputError, UsageError
from aptool.formats.location import PathOrUrl


@dataclass(frozen=True)
class ColumnNames:
    """The columns (or JSON keys) of the parts of a pair, and the format of a table.

    Attributes:
        question: column (or key) of the question's text.
        answer: column of the candidate's text, or its key in a candidate; None: ``answer``, and in
            a candidate also ``text``.
        label: column of its relevance, or its key in a candidate; beside candidates that are plain texts the
            key of a list with the label of each.
        question_id: column of the question's id; None: identified by its text.
        answer_id: column of the candidate's id; None: identified by its text.
        candidates: key of the list of candidates.
        positions: beside candidates that are plain texts, key of the list of positions, from 0, of the
            relevant ones.
        field: path of keys, joined by dots, to the list of objects in a JSON document; None: the document is
            the list.
        header: names of the columns of a table without a header line; None: the first line has them.
        delimiter: column separator; None: a comma if the name ends in .csv or .csv.gz, else a tab.
        quotes: ``literal``: quotation marks are text; ``csv``: they enclose fields, in which the delimiter
            and line breaks are text; None: ``literal`` where the delimiter is a tab, else ``csv``.
    """

    question: str = "question"
    answer: str | None = None
    label: str = "label"
    question_id: str | None = None
    answer_id: str | None = None
    candidates: str = "candidates"
    positions: str = "relevant"
    field: str | None = None
    header: tuple[str, ...] | None = None
    delimiter: str | None = None
    quotes: Literal["literal", "csv"] | None = None

    @property
    def columns(self) -> Columns:
        """The names of the parts, for messages."""
        question_id, answer_id = self.question_id or self.question, self.answer_id or self.pair_answer
        return Columns(question_id, self.question, answer_id, self.pair_answer, self.label)

    @property
    def pair_answer(self) -> str:
        """Column of the candidate's text in a row that is a pair."""
        return self.answer or "answer"

    def candidate_answer(self, candidate: Mapping[str, Any]) -> str:
        """Key of the text in a candidate that is an object."""
        return self.answer or ("answer" if "answer" in candidate and "text" not in candidate else "text")


def with_ids(pairs: Iterator[Pair], names: ColumnNames, split: str) -> Iterator[Pair]:
    """Pairs with ids; where the file has none, they number the texts of a split by first appearance.

    The split is part of the id, so that a run of one split fits no other's qrels.
    """
    questions: dict[str, str] = {}
    answers: dict[str, dict[str, str]] = {}
    for pair in pairs:
        if names.question_id is None:
            pair = pair._replace(
                question_id=questions.setdefault(pair.question, f"{split}-Q{len(questions)}")
            )
        if names.answer_id is None:
            known = answers.setdefault(pair.question_id, {})
            if pair.answer is None:
                yield pair
                continue
            answer_id = known.setdefault(pair.answer, f"{pair.question_id}-{len(known)}")
            pair = pair._replace(answer_id=answer_id)
        yield pair


def listed(names: Sequence[str]) -> str:
    """Names of columns for a message: quoted, shortened, at most twenty."""
    shown = [repr(name if len(name) <= 30 else name[:29] + "…") for name in names[:20]]
    return ", ".join(shown) + (", …" if len(names) > 20 else "")


def nearest(name: str, names: Sequence[str]) -> str:
    """``; 'NAME' perhaps``, with the name among ``names`` that is like the one that is missing, or ''."""
    lowered = {column.casefold(): column for column in names}
    near = difflib.get_close_matches(name.casefold(), lowered, n=1, cutoff=0.5)
    return f"; {lowered[near[0]]!r} perhaps" if near else ""


RawPair: TypeAlias = tuple[Pair, str]
"""A pair without relevance, and its label as text."""

# More distinct labels than this are no labels, but ids or texts.
MOST_LABELS = 100
_MOST_ROWS = 100_000  # read after an unknown label, to list the labels of the file
_INTEGER = re.compile(r"[+-]?[0-9]{1,9}")
_NUMBER = re.compile(r"[+-]?[0-9]*\.?[0-9]+(?:[eE][+-]?[0-9]+)?|(?i:nan)")
_TRUTH = {"true": 1, "false": 0}
_MISSING = ("", "null")


class Labels:
    """Turns the labels of all splits into relevance.

    Without ``relevant``, a label is a whole number, or true or false. With it, these labels are relevant (1)
    and all others are not (0).
    """

    def __init__(self, relevant: Sequence[str] | None = None) -> None:
        self._relevant = frozenset(label.strip() for label in relevant) if relevant is not None else None
        self._relevance: dict[str, int] = {}

    def judged(
        self, path: PathOrUrl, unit: str, column: str, rows: Iterator[RawPair], policies: SplitPolicies
    ) -> Iterator[Pair]:
        """The pairs with their relevance.

        Args:
            path: the file, for messages.
            unit: what a pair's place counts.
            column: name of the label's column.
            rows: pairs with their labels.
            policies: of their split; the label of a candidate that is left out may be missing.

        Raises:
            InputError: a label is not a whole number; the message lists the labels of the file.
        """
        drops_empty = policies.empty == "drop"
        for pair, text in rows:
            if pair.answer is None or (drops_empty and text in _MISSING and not pair.answer.strip()):
                yield pair
                continue
            relevance = self._relevance.get(text)
            if relevance is None:
                relevance = self._parse(text)
                if relevance is None:
                    hint = self._hint(text, rows, policies.split)
                    expected = f"a whole number: 0 not relevant, 1 or more relevant{hint}"
                    raise InputError(
                        path, place=pair.where(unit), column=column, value=text, expected=expected
                    )
                self._relevance[text] = relevance
                if self._relevant is not None and len(self._relevance) > MOST_LABELS:
                    problem = f"more than {MOST_LABELS} distinct labels"
                    raise InputError(path, column=column, problem=problem, expected="a column of labels")
            yield pair._replace(relevance=relevance)

    def check_use(self) -> None:
        """Checks that each label of ``relevant`` occurs.

        Raises:
            UsageError: one does not; the message lists the labels that do.
        """
        missing = sorted((self._relevant or frozenset()) - self._relevance.keys())
        if missing and self._relevance:
            labels = listed(sorted(self._relevance))
            raise UsageError(f"{RELEVANT_OPTION} {missing[0]!r}: no such label; expected some of {labels}")

    def _parse(self, text: str) -> int | None:
        if self._relevant is not None:
            return int(text in self._relevant)
        if _INTEGER.fullmatch(text):
            return int(text)
        return _TRUTH.get(text.casefold())

    def _hint(self, text: str, rows: Iterator[RawPair], split: str) -> str:
        """The option that reads such labels, if one does."""
        labels = {**dict.fromkeys(self._relevance), text: None}
        with suppress(AptoolError):
            for _, (_, label) in zip(range(_MOST_ROWS), rows, strict=False):
                labels[label] = None
                if len(labels) > MOST_LABELS:
                    return ""
        if all(label in _MISSING for label in labels):
            return f" ({UNLABELLED_OPTION} {split} if the split has no labels)"
        words = [label for label in labels if label not in _MISSING]
        if text in _MISSING or all(_NUMBER.fullmatch(label) for label in words):
            return ""
        return (
            f"; of the labels {listed(sorted(words))}, name the relevant ones: {RELEVANT_OPTION} LABEL,LABEL"
        )


def label_text(value: Any) -> str:
    """A label as text: ``1`` for true and for 1.0, ``null`` where there is none."""
    if isinstance(value, bool):
        value = int(value)
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if isinstance(value, str):
        return value.strip()
    return json.dumps(value, default=repr)


def label_of(path: PathOrUrl, place: str, column: str, value: Any) -> int:
    """The relevance in a value of JSON or Parquet.

    Raises:
        InputError: it is not a whole number.
    """
    return parse_label(path, place, column, label_text(value), graded=True)
