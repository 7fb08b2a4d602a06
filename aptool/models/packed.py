"""Attention within texts that are packed into one row.

On a CPU, attention is computed at once for texts of equal length, because padding would change the last bits.
On a GPU, texts are padded to few shapes (``padded_batches``): kernels for a new shape take long to prepare.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from aptool.models.device import send
from aptool.models.ragged import padded_batches, rows_of


class PaddedTexts(NamedTuple):
    """Texts of a row that attention pads to (n, T) on a GPU."""

    rows: Tensor  # (n, T) int64 tokens of each text; padding repeats the last token
    kept: Tensor  # (K,) int64 tokens in (n · T,) that belong to the texts, without repetitions
    lengths: Tensor  # (n,) int64


def pad_texts(sizes: np.ndarray, device: torch.device) -> list[PaddedTexts]:
    """Pad n texts of a row, of lengths (n,), in batches of few shapes."""
    order = np.argsort(sizes, kind="stable")
    starts = np.cumsum(sizes) - sizes
    arrays = []
    for batch in padded_batches(sizes[order], share=False):
        texts = order[batch.members]
        step = np.minimum(np.arange(batch.width), sizes[texts, None] - 1)  # (n, T)
        once = order[batch.texts]
        kept = rows_of(np.arange(len(once)) * batch.width, sizes[once])
        arrays += [(starts[texts, None] + step).reshape(-1), kept, sizes[texts]]
    parts = iter(send(np.concatenate(arrays), device).split([len(array) for array in arrays]))
    return [
        PaddedTexts(rows.view(len(lengths), -1), kept, lengths)
        for rows, kept, lengths in zip(parts, parts, parts, strict=True)
    ]


def attend_padded(
    query: Tensor, key: Tensor, value: Tensor, batches: Sequence[PaddedTexts], scaling: float | None
) -> Tensor:
    """(1, N, h, d) attention within texts, on a GPU, from query, key and value (1, h, N, d)."""
    states = [tensor[0].transpose(0, 1) for tensor in (query, key, value)]  # (N, h, d)
    attended = torch.empty(states[0].shape, dtype=query.dtype, device=query.device)
    for rows, kept, lengths in batches:
        flat, width = rows.view(-1), rows.shape[1]
        q, k, v = (part.index_select(0, flat).unflatten(0, rows.shape).transpose(1, 2) for part in states)
        mask = (torch.arange(width, device=flat.device) < lengths[:, None])[:, None, None]  # (n, 1, 1, T)
        output = F.scaled_dot_product_attention(q, k, v, mask, scale=scaling)
        output = output.transpose(1, 2).flatten(0, 1).index_select(0, kept)
        attended.index_copy_(0, flat.index_select(0, kept), output)
    return attended[None]


def attend(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    text_sizes: np.ndarray | None = None,
    padded_texts: Sequence[PaddedTexts] = (),
    scaling: float | None = None,
    **options: Any,
) -> tuple[Tensor, None]:
    """Compute attention within the texts of a row; a function for ``transformers.AttentionInterface``.

    Returns (1, N, h, d) from query, key and value (1, h, N, d) of h heads, and None instead of the weights.
    ``text_sizes`` has the lengths of the texts on a CPU, ``padded_texts`` the texts on a GPU. Without
    both, it is the attention of the library.
    """
    if padded_texts:
        return attend_padded(query, key, value, padded_texts, scaling), None
    if text_sizes is None:
        from transformers.integrations.sdpa_attention import sdpa_attention_forward

        dense: tuple[Tensor, None] = sdpa_attention_forward(
            module, query, key, value, attention_mask, scaling=scaling, **options
        )
        return dense
    rows = [tensor[0].transpose(0, 1) for tensor in (query, key, value)]  # (N, h, d)
    attended = torch.empty(rows[0].shape, dtype=query.dtype, device=query.device)
    begin, changes = 0, np.flatnonzero(np.diff(text_sizes)) + 1
    for group in np.split(text_sizes, changes):
        count, length = len(group), int(group[0])
        texts = [tensor[begin : begin + count * length].unflatten(0, (count, length)) for tensor in rows]
        queries, keys, values = (tensor.transpose(1, 2) for tensor in texts)  # (n, h, length, d)
        output = F.scaled_dot_product_attention(queries, keys, values, scale=scaling)
        attended[begin : begin + count * length] = output.transpose(1, 2).flatten(0, 1)
        begin += count * length
    return attended[None], None
