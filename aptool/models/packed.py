"""Packed sequences: texts of any lengths in one row of tokens, without padding.

Embeddings, products and normalizations are computed for all tokens at once; attention stays within a text,
for all texts of one length at once. The states equal those of each text alone, to the bit.
"""

from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from aptool.models.pretrained import network_library
from aptool.models.ragged import Ragged

# Networks with absolute positions and full attention.
ABSOLUTE = ("albert", "bert", "distilbert", "electra")

# RoBERTa's family counts positions from the padding's id, and skips padding tokens.
AFTER_PADDING = ("camembert", "roberta", "xlm-roberta")

# Name of ``attend`` in transformers.
NAME = "aptool_packed"


def pack(network: Any) -> bool:
    """Let a network attend within texts if it receives their sizes; return whether it supports that."""
    config = network.config
    if config.model_type not in (*ABSOLUTE, *AFTER_PADDING) or getattr(config, "is_decoder", False):
        return False
    transformers = network_library()
    from transformers.masking_utils import sdpa_mask

    transformers.AttentionInterface.register(NAME, attend)
    transformers.AttentionMaskInterface.register(NAME, sdpa_mask)
    network.set_attn_implementation(NAME)
    return True


def packed_inputs(ids: Ragged, types: Tensor | None, config: Any) -> dict[str, Any]:
    """Return the arguments of a network for texts in one row.

    Args:
        ids: token ids, values (N,) int64; texts of one length are adjacent.
        types: (N,) int64 token types, for a network that has them.
        config: the network's configuration.
    """
    if config.model_type in AFTER_PADDING:
        is_token = (ids.values != config.pad_token_id).long()
        counted = is_token.cumsum(0)
        before = (counted - is_token).index_select(0, ids.offsets[:-1])
        positions = (counted - ids.spread(before)) * is_token + config.pad_token_id
    else:
        positions = ids.positions()[0]
    inputs = {"input_ids": ids.values[None], "position_ids": positions[None], "text_sizes": ids.sizes}
    if types is not None:
        inputs["token_type_ids"] = types[None]
    return inputs


def attend(
    module: torch.nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    text_sizes: np.ndarray | None = None,
    scaling: float | None = None,
    **options: Any,
) -> tuple[Tensor, None]:
    """Attend within texts; a function for ``transformers.AttentionInterface``.

    Args:
        module: the module that attends.
        query: (1, h, N, d), h heads.
        key: (1, h, N, d).
        value: (1, h, N, d).
        attention_mask: None with ``text_sizes``.
        text_sizes: lengths of the texts in the row; None is full attention.
        scaling: factor of the products of queries and keys.
        options: of the library's attention.

    Returns:
        (1, N, h, d), and None instead of the weights.
    """
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
