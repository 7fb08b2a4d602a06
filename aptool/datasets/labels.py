"""Labels of a user's data as relevance: whole numbers, or words of which some count as relevant."""

import json
import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Any, TypeAlias

from aptool.datasets.column_names import listed
from aptool.datasets.pairs import Pair, parse_label
from aptool.datasets.policies import RELEVANT_OPTION, UNLABELLED_OPTION, SplitPolicies
from aptool.errors import AptoolError, InputError, UsageError
from aptool.formats.location import PathOrUrl

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
