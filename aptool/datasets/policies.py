"""Policies of an import, chosen by a user. Error messages name options by the constants of this module."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias, get_args

from aptool.errors import UsageError

Resolution: TypeAlias = Literal["error", "max", "min"]
Empty: TypeAlias = Literal["drop", "keep", "refuse"]

CONFLICTS_HINT = "--conflicts max or --conflicts min keeps one label"
EMPTY_HINT = "--empty drop leaves such candidates out, --empty keep imports them"
RELEVANT_OPTION = "--relevant"
UNLABELLED_OPTION = "--unlabelled"
FIELD_OPTION = "--field"
COLUMNS_OPTION = "--columns"
DELIMITER_OPTION = "--delimiter"

EMPTY_DROPPED = "empty_candidates_dropped"


@dataclass(frozen=True)
class ImportPolicies:
    """Policies for rows that are not plain pairs; each has the name of its command-line option.

    Attributes:
        questions: see `CollectionWriter`.
        conflicts: for a pair with different labels: ``error``, or keep the ``max`` or the ``min``.
        empty: for candidates without text: ``drop`` and count them, ``keep`` or ``refuse``.
        relevant: labels that count as relevant, all others do not; None: labels are whole numbers.
        unlabelled: splits without labels, which get pools and no qrels.
    """

    questions: str = "all"
    conflicts: Resolution = "error"
    empty: Empty = "drop"
    relevant: tuple[str, ...] | None = None
    unlabelled: tuple[str, ...] = ()

    def check(self, splits: Sequence[str]) -> None:
        """Check the values; unlabelled splits must be among ``splits``."""
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


class Conflicts:
    """Resolves and counts the pairs that have different labels in different rows.

    Attributes:
        resolution: the label to keep: ``max`` or ``min``; ``error``: such pairs are refused.
    """

    def __init__(self, resolution: Resolution = "error") -> None:
        self.resolution = resolution
        self._pairs: set[tuple[str, str]] = set()

    @property
    def count(self) -> int:
        """Number of resolved pairs."""
        return len(self._pairs)

    def resolve(self, question_id: str, answer_id: str, first: int, second: int) -> int:
        """Choose one of two labels of a pair."""
        self._pairs.add((question_id, answer_id))
        return max(first, second) if self.resolution == "max" else min(first, second)


class SplitPolicies:
    """The policies for one split, with the number of rows that each policy affected.

    Attributes:
        split: name of the split.
        labelled: whether the split has labels.
        empty: see `ImportPolicies`.
        conflicts: see `Conflicts`.
        counts: policy -> rows.
    """

    def __init__(self, split: str, policies: ImportPolicies) -> None:
        self.split = split
        self.labelled = split not in policies.unlabelled
        self.empty = policies.empty
        self.conflicts = Conflicts(policies.conflicts)
        self.counts: Counter[str] = Counter()
