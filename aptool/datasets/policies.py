"""Policies of an import that a user chooses; each option of the command has the name of its attribute here.

Error messages name options by the constants below, so that a message and the command line agree.
"""

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
    """What an import does with rows that are not plain pairs.

    Attributes:
        questions: which questions are kept; see `CollectionWriter`.
        conflicts: a pair with different labels: ``error`` refuses it; ``max`` or ``min`` keeps that label.
        empty: candidates without text: ``drop`` leaves them out and counts them, ``keep`` imports them,
            ``refuse`` is an error.
        relevant: labels that count as relevant, all others do not; None: labels are whole numbers.
        unlabelled: splits without labels, which get pools and no qrels.
    """

    questions: str = "all"
    conflicts: Resolution = "error"
    empty: Empty = "drop"
    relevant: tuple[str, ...] | None = None
    unlabelled: tuple[str, ...] = ()

    def check(self, splits: Sequence[str]) -> None:
        """Checks the values.

        Raises:
            UsageError: a policy has an unknown value, or an unlabelled split is not among ``splits``.
        """
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


class SplitPolicies:
    """The policies applied to one split, with the number of rows that each touched.

    Attributes:
        split: name of the split.
        labelled: whether the split has labels.
        empty: see `ImportPolicies`.
        conflicts: contradictory labels of the split.
        counts: policy -> rows.
    """

    def __init__(self, split: str, policies: ImportPolicies) -> None:
        self.split = split
        self.labelled = split not in policies.unlabelled
        self.empty = policies.empty
        self.conflicts = Conflicts(policies.conflicts)
        self.counts: Counter[str] = Counter()
