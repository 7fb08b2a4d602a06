"""Data as a page carries it: JSON, gzipped, in base64, a block at a time.

The page unpacks a block when it is first looked at. Nothing in base64 can end a script element or be read as
markup, whatever the texts hold.
"""

import base64
import gzip
import json
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from aptool.reporting.heatmap import Side

# Weights are kept as multiples of this: exact to 6e-8, four characters each.
WEIGHT_UNIT = (1 << 24) - 1


class Block(NamedTuple):
    """One packed piece of a page's data."""

    id: str  # of its element
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
        weights: (L,) from 0 to 1 with sum 1; each comes out within 6e-8 of itself, and their sum exactly 1.
    """
    exact = weights / weights.sum() * WEIGHT_UNIT
    units = np.floor(exact).astype(np.int64)
    # What rounding down has lost goes to those who lost most.
    short = WEIGHT_UNIT - int(units.sum())
    units[np.argsort(units - exact, kind="stable")[:short]] += 1
    return base64.b64encode(units.astype(">u4").view(np.uint8).reshape(-1, 4)[:, 1:].tobytes()).decode(
        "ascii"
    )


def packed_spans(side: Side) -> list[int]:
    """Where the words of a text are, in UTF-16 units as JavaScript counts: gap, length, gap, length, ..."""
    numbers, end = [], 0
    for begin, stop in side.spans:
        numbers += [_units(side.text[end:begin]), _units(side.text[begin:stop])]
        end = stop
    return numbers


def _units(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode("utf-16-le")) // 2


def total(packed: Iterable[Block]) -> int:
    """Characters in blocks."""
    return sum(len(block.data) for block in packed)
