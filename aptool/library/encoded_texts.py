"""Texts that a model has encoded, to score them with questions to come."""

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from aptool.errors import InputError, UsageError
from aptool.formats.location import location
from aptool.library.arguments import PathLike, check_path

if TYPE_CHECKING:
    from aptool.scoring.scorer import PreparedAnswers


class EncodedTexts:
    """Answers encoded once by ``Model.encode``, for ``Model.rank`` and ``Model.score``.

    ``encoded[2]``, ``encoded[:10]`` and ``encoded[[0, 7]]`` are selections; they share the memory of the
    whole. Never changed, so several threads may use it.

    Attributes:
        preset: the preset of the model.
        fingerprint: the fingerprint of the model.
        device: the device that holds the encoded answers.
    """

    def __init__(
        self,
        prepared: "PreparedAnswers",
        rows: np.ndarray,
        texts: list[str],
        *,
        preset: str,
        fingerprint: str,
        device: torch.device,
    ) -> None:
        """Wraps encoded answers; see ``Model.encode``.

        Args:
            prepared: the distinct answers, encoded.
            rows: (n,) int64 row of each text in ``prepared``.
            texts: the n texts.
            preset: see the attribute.
            fingerprint: see the attribute.
            device: see the attribute.
        """
        self.prepared, self.rows = prepared, rows
        self.preset, self.fingerprint, self.device = preset, fingerprint, device
        self._texts = texts

    @property
    def texts(self) -> list[str]:
        """The texts, in order."""
        return list(self._texts)

    @property
    def nbytes(self) -> int:
        """Bytes of the stored representation, shared by all selections."""
        return sum(batch.nbytes for batch in self.prepared.encoded.batches)

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, rows: int | slice | Sequence[int] | np.ndarray) -> "EncodedTexts":
        """The texts at some rows, in that order."""
        chosen = np.arange(len(self))[rows] if isinstance(rows, slice) else self._checked(rows)
        return EncodedTexts(
            self.prepared,
            self.rows[chosen],
            [self._texts[row] for row in chosen.tolist()],
            preset=self.preset,
            fingerprint=self.fingerprint,
            device=self.device,
        )

    def __repr__(self) -> str:
        return f"EncodedTexts({len(self):,} texts, {self.nbytes:,} bytes, {self.preset} on {self.device})"

    def _checked(self, rows: Any) -> np.ndarray:
        """(k,) int64 rows from one row, several rows, or a mask of n booleans.

        Raises:
            IndexError: a row is out of range.
            InputError: the rows have another form.
        """
        chosen = np.asarray(rows)
        if chosen.dtype == bool and chosen.shape == (len(self),):
            return np.flatnonzero(chosen)
        if chosen.ndim > 1 or (chosen.size and chosen.dtype.kind not in "iu"):
            raise InputError("rows", value=rows, expected="a row, a list of rows or a slice")
        chosen = np.atleast_1d(chosen).astype(np.int64)
        if chosen.size and not -len(self) <= chosen.min() <= chosen.max() < len(self):
            raise IndexError(f"rows: expected rows from 0 to {len(self) - 1}")
        return np.where(chosen < 0, chosen + len(self), chosen)


def check_encoded(encoded: PathLike | None, fill: bool, precision: str) -> str | None:
    """The folder of the store, if there is one.

    Raises:
        UsageError: ``fill`` without a store, or texts are to be encoded in another precision than its own.
    """
    if encoded is None:
        if fill:
            raise UsageError("fill: expected encoded, the store to add to (--fill requires --encoded)")
        return None
    if precision not in ("auto", "fp32"):
        raise UsageError(f"precision {precision!r}: expected auto or fp32 with encoded answers")
    return check_path("encoded", encoded)


def filling(store: str | None, fill: bool) -> AbstractContextManager[None]:
    """Claims the store while the block runs, if answers will be added to it."""
    if store is None or not fill:
        return nullcontext()
    from aptool.scoring.answer_store import MANIFEST, writing_to

    if not (location(store) / MANIFEST).is_file():
        return nullcontext()  # that there is no store is said as it is opened
    return writing_to(store)
