"""Values by measure, looked up by any name of the measure."""

from collections.abc import Mapping
from typing import Any, TypeVar

from aptool.evaluation.names import common_name

Value = TypeVar("Value")


class MeasureValues(dict[str, Value]):
    """A dict by measure: its keys are in one naming, and any name of a measure finds its value.

    ``means["MAP"]``, ``means["map"]`` and ``means["AP"]`` are the same value; iteration yields each measure
    once.
    """

    @classmethod
    def from_any_names(cls, values: Mapping[str, Value]) -> "MeasureValues[Value]":
        """The values under the common names. A key that is not the name of a measure stays as it is."""
        return cls({common_name(name) or name: value for name, value in values.items()})

    def __missing__(self, name: str) -> Value:
        key = self._key(name)
        if key is None:
            raise KeyError(f"{name!r}: expected one of {', '.join(self)}")
        return self[key]

    def __contains__(self, name: object) -> bool:
        return super().__contains__(name) or self._key(name) is not None

    def get(self, name: str, default: Any = None) -> Any:
        """The value of a measure by any of its names; ``default`` if it is missing."""
        key = name if super().__contains__(name) else self._key(name)
        return default if key is None else self[key]

    def _key(self, name: object) -> str | None:
        """The key of the measure with a name that is not itself a key."""
        common = common_name(name) if isinstance(name, str) else None
        if common is None:
            return None
        return next((key for key in self if common_name(key) == common), None)
