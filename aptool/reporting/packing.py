"""Packed data of a page: blocks of JSON, gzipped, in base64.

The page unpacks a block when it is first needed. Base64 cannot end a script element or be read as markup,
whatever the texts contain.
"""

import base64
import gzip
import json
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from aptool.models.explain import TextWeights

# Weights are fixed-point numbers in this unit: exact to 6e-8, four characters each.
WEIGHT_UNIT = (1 << 24) - 1


class Block(NamedTuple):
    """One packed piece of a page's data."""

    id: str  # id of its element
    data: str  # base64


def pack(document: Any) -> str:
    """A JSON document as base64 of gzip; equal documents pack to equal strings."""
    text = json.dumps(document, ensure_ascii=False, separators=(",", ":"))
    packed = gzip.compress(text.encode(), compresslevel=6, mtime=0)
    return base64.b64encode(packed).decode("ascii")


def blocks(name: str, records: Sequence[Any], size: int) -> Iterator[Block]:
    """Records in blocks of ``size``: record i is in block ``NAME-(i // size)``."""
    for number, start in enumerate(range(0, len(records), size)):
        yield Block(f"{name}-{number}", pack(records[start : start + size]))


def packed_weights(weights: np.ndarray) -> str:
    """Weights as 24-bit fixed-point numbers in base64, four characters each.

    Args:
        weights: (L,) from 0 to 1 with sum 1; each is decoded to within 6e-8, and their sum to exactly 1.
    """
    exact = weights / weights.sum() * WEIGHT_UNIT
    units = np.floor(exact).astype(np.int64)
    # Largest remainder: the units lost by rounding down go to the weights that lost most.
    short = WEIGHT_UNIT - int(units.sum())
    units[np.argsort(units - exact, kind="stable")[:short]] += 1
    return base64.b64encode(units.astype(">u4").view(np.uint8).reshape(-1, 4)[:, 1:].tobytes()).decode(
        "ascii"
    )


def packed_spans(text: TextWeights) -> list[int]:
    """The spans of the words in UTF-16 units, as in JavaScript: gap, length, gap, length, ..."""
    numbers, end = [], 0
    for begin, stop in text.spans:
        numbers += [_units(text.text[end:begin]), _units(text.text[begin:stop])]
        end = stop
    return numbers


def _units(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode("utf-16-le")) // 2
