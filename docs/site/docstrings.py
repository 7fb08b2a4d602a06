"""Docstrings of the reference: a section ``Example:`` is one of examples, which keep their lines."""

import re
from typing import Any

import griffe


class Examples(griffe.Extension):
    """Rename the sections ``Example:``, which Google's style has in the plural."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        """Rename the section in the docstring of an object."""
        if obj.docstring is not None:
            obj.docstring.value = re.sub(r"(?m)^Example:$", "Examples:", obj.docstring.value)
