"""Labels of a user's data, and the relevance that they mean."""

import json
import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from itertools import islice
from typing import Any, TypeAlias

from aptool.datasets.column_names import quoted_names
from aptool.datasets.pairs import Pair
from aptool.datasets.policies import RELEVANT_OPTION, UNLABELLED_OPTION, SplitPolicies
from aptool.errors import AptoolError, InputError, UsageError
from aptool.formats.location import PathOrUrl

RawPair: TypeAlias = tuple[Pair, str]
"""A pair without relevance, and its label as text."""

# A column with more distinct values holds ids or texts, not labels.
MOST_LABELS = 100
_MOST_ROWS = 100_000  # read after an unknown label, to list the labels of the file
_INTEGER = re.compile(r"[+-]?[0-9]{1,9}")
_NUMBER = re.compile(r"[+-]?[0-9]*\.?[0-9]+(?:[eE][+-]?[0-9]+)?|(?i:nan)")
_BOOLEANS = {"true": 1, "false": 0}
_MISSING = ("", "null")


class Labels:
    """Maps the labels of all splits to relevance.

    Without ``relevant``, a label is a whole number, or true or false. With it, these labels are relevant (1)
    and all other labels are not (0).
    """

    def __init__(self, relevant: Sequence[str] | None = None) -> None:
        self._relevant = frozenset(label.strip() for label in relevant) if relevant is not None else None
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
                    expected = "a whole number: 0 not relevant, 1 or more relevant"
                    expected += self._hint(text, rows, policies.split)
                    raise InputError(path, place=pair.place, column=column, value=text, expected=expected)
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
        return int(text) if _INTEGER.fullmatch(text) else _BOOLEANS.get(text.casefold())

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


def label_text(value: Any) -> str:
    """A label as text: ``1`` for true and for 1.0, ``null`` for none."""
    if isinstance(value, str):
        return value.strip()
    if isinstance(value, bool) or (isinstance(value, float) and value.is_integer()):
        value = int(value)
    return json.dumps(value, default=repr)
