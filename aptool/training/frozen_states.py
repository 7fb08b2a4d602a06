"""States of a frozen network: computed once per text and kept in memory for all epochs."""

import logging
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from aptool.environment import available_memory
from aptool.models.ragged import Ragged
from aptool.models.ranker import Ranker
from aptool.text.tokenizer import Tokens

logger = logging.getLogger(__name__)

# Maximum share of the free memory for states.
MEMORY_SHARE = 0.5
TOKENS_PER_BLOCK = 1 << 16


class StateMemory:
    """A cache of states by token ids, for ``TransformerEncoder.state_cache``.

    A text has the same states in every batch, to the bit, so the cache changes no result.
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._states: dict[bytes, Tensor] = {}  # (L, c) per text

    def __call__(self, tokens: Ragged) -> Tensor:
        """(N, c) states of cached texts, from their token ids, values (N,) int64."""
        keys = _keys(tokens.values.cpu().numpy(), tokens.sizes)
        return torch.cat([self._states[key] for key in keys])

    def add(self, texts: Tokens, encode: Callable[[Ragged], Tensor]) -> None:
        """Cache the states of texts, which ``encode`` computes in blocks of texts of similar length."""
        keys = np.array(_keys(texts.ids.astype(np.int64), texts.lengths), dtype=object)
        _, first = np.unique(keys, return_index=True)
        missing = np.array([row for row in first if keys[row] not in self._states], dtype=np.int64)
        missing = missing[np.argsort(texts.lengths[missing], kind="stable")]
        block = np.cumsum(texts.lengths[missing]) // TOKENS_PER_BLOCK
        for rows in np.split(missing, np.flatnonzero(np.diff(block)) + 1) if len(missing) else ():
            tokens = Ragged.of(texts.take(rows), self._device)
            self._states.update(zip(keys[rows], encode(tokens).split(tokens.sizes.tolist()), strict=True))


@torch.no_grad()
def keep_states(ranker: Ranker, texts: Sequence[Tokens]) -> None:
    """Cache the states of all texts of a training, if the network is frozen and they fit into memory."""
    encoder: Any = ranker.encoder  # a ``TransformerEncoder``
    if not encoder.is_frozen:
        return
    device = next(ranker.parameters()).device
    size = 4 * encoder.size * sum(len(tokens.ids) for tokens in texts)
    free = torch.cuda.mem_get_info(device)[0] if device.type == "cuda" else available_memory()
    if size > MEMORY_SHARE * free:
        logger.info(f"states of all texts take {size / 1e9:.1f} GB: they are computed in every epoch")
        return
    memory = StateMemory(device)
    encoder.eval()  # disables dropout
    for tokens in texts:
        memory.add(tokens, encoder.all_states)
    encoder.state_cache = memory


def _keys(ids: np.ndarray, sizes: np.ndarray) -> list[bytes]:
    """Return the token ids of each text as bytes, from (N,) int64 ids."""
    data, ends = ids.tobytes(), (8 * np.cumsum(sizes)).tolist()
    return [data[begin:end] for begin, end in zip([0, *ends], ends, strict=False)]
