"""The public class `EncodedTexts`, and checks of the texts that a model encodes."""

import copy
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from aptool.errors import InputError
from aptool.library.arguments import check_list, check_text

if TYPE_CHECKING:
    import torch


class EncodedTexts:
    """Answers that `Model.encode` encoded once, for `Model.rank` and `Model.score`.

    Selections such as ``encoded[2]``, ``encoded[:10]`` and ``encoded[[0, 7]]`` share memory with the original
    object. Objects are immutable, so several threads may use them.

    Attributes:
        preset: the preset of the model.
        fingerprint: the fingerprint of the model.
        device: the device of the encoded answers.

    Example:
        >>> encoded = aptool.load("models/wikiqa").encode(["She wrote it.", "Nobody knows."])
        >>> len(encoded), encoded[1].texts
        (2, ['Nobody knows.'])
    """

    def __init__(
        self,
        prepared: Any,
        rows: np.ndarray,
        texts: list[str],
        *,
        preset: str,
        fingerprint: str,
        device: "torch.device",
    ) -> None:
        self.prepared = prepared  # the distinct answers: `PreparedAnswers`, or their tokens
        self.rows = rows  # (n,) int64 index in `prepared` of each text
        self.preset, self.fingerprint, self.device = preset, fingerprint, device
        self._texts = texts

    @property
    def texts(self) -> list[str]:
        """The texts of the answers, in order."""
        return list(self._texts)

    @property
    def nbytes(self) -> int:
        """Bytes of the encoded answers, including those that are not selected."""
        return sum(batch.nbytes for batch in self.prepared.encoded.batches)

    def __len__(self) -> int:
        return len(self._texts)

    def __getitem__(self, rows: int | slice | Sequence[int] | np.ndarray) -> "EncodedTexts":
        """Select texts by a row, several rows, a slice or a mask."""
        chosen = np.arange(len(self))[rows] if isinstance(rows, slice) else self._checked(rows)
        selected = copy.copy(self)
        selected._texts = [self._texts[row] for row in chosen.tolist()]
        selected.rows = self.rows[chosen]
        return selected

    def __repr__(self) -> str:
        return f"EncodedTexts({len(self):,} texts, {self.nbytes:,} bytes, {self.preset} on {self.device})"

    def _checked(self, rows: Any) -> np.ndarray:
        """(k,) int64 rows from a row, several rows, or a mask of n booleans."""
        chosen = np.asarray(rows)
        if chosen.dtype == bool and chosen.shape == (len(self),):
            return np.flatnonzero(chosen)
        if chosen.ndim > 1 or (chosen.size and chosen.dtype.kind not in "iu"):
            raise InputError("rows", value=rows, expected="a row, a list of rows or a slice")
        chosen = np.atleast_1d(chosen).astype(np.int64)
        if chosen.size and not -len(self) <= chosen.min() <= chosen.max() < len(self):
            raise IndexError(f"rows: expected rows from 0 to {len(self) - 1}")
        return np.where(chosen < 0, chosen + len(self), chosen)


def check_texts(name: str, texts: object) -> list[str]:
    """Return a list of texts, which may be empty."""
    items = check_list(name, texts, "a list of texts", empty=True)
    return [check_text(name, text, f"item {number}") for number, text in enumerate(items)]


def check_pairs(pairs: object) -> tuple[list[str], np.ndarray, list[str]]:
    """Return the distinct questions of pairs, (pairs,) int64 indices of questions, and the answers."""
    expected = "a list of pairs of texts (question, answer)"
    questions: list[str] = []
    answers: list[str] = []
    for number, pair in enumerate(check_list("pairs", pairs, expected, empty=True)):
        position = f"item {number}"
        if isinstance(pair, str | bytes) or not isinstance(pair, Sequence) or len(pair) != 2:
            raise InputError(
                "pairs", position=position, value=pair, expected="a pair of texts (question, answer)"
            )
        questions.append(check_text("pairs", pair[0], f"{position}, question"))
        answers.append(check_text("pairs", pair[1], f"{position}, answer"))
    distinct, rows = distinct_texts(questions)
    return distinct, rows, answers


def distinct_texts(texts: list[str]) -> tuple[list[str], np.ndarray]:
    """Return the distinct texts in order of appearance, and (n,) int64 indices of the texts."""
    rows = {text: row for row, text in enumerate(dict.fromkeys(texts))}
    return list(rows), np.array([rows[text] for text in texts], dtype=np.int64)
