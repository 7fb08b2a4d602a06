"""The states of texts by a network that is not trained: computed once, and kept in memory and in a store.

A network that is not trained gives a text the same states in every epoch, and in every training over it
whatever is trained behind it. Where they are kept, only what is trained takes time.
"""

import hashlib
import json
import logging
from collections.abc import Callable, Sequence
from importlib.metadata import version
from typing import Any

import numpy as np
import torch
from torch import Tensor

from aptool.environment import available_memory
from aptool.formats.location import Location
from aptool.models.ragged import Ragged
from aptool.models.ranker import Ranker
from aptool.models.transformer import TransformerEncoder
from aptool.scoring.answer_store import AnswerStore
from aptool.scoring.stored_answers import StoredAnswers
from aptool.text.tokenizer import Tokens

logger = logging.getLogger(__name__)

# States are kept if they take at most this share of the memory.
_SHARE = 0.5
# Tokens whose states are computed at a time.
_TOKENS_PER_BLOCK = 1 << 16

Encode = Callable[[Ragged], Tensor]


class StateMemory:
    """States of texts by their token ids, for ``TransformerEncoder.memory``.

    They are what the network computes for a text in any batch, to the bit, so that nothing depends on what is
    remembered.
    """

    def __init__(self, device: torch.device, stored: StoredAnswers | None = None) -> None:
        """An empty memory.

        Args:
            device: of the states.
            stored: a store that has states of earlier trainings, and gets those that it lacks.
        """
        self._device = device
        self._stored = stored
        self._states: dict[bytes, Tensor] = {}  # (L, c) of each text

    def __deepcopy__(self, memo: Any) -> None:
        """A copy of the network computes: it may be for another device, or in another precision."""

    def __call__(self, tokens: Ragged, encode: Encode) -> Tensor:
        """(N, c) states of the tokens of texts: known, in the store, or computed now.

        Args:
            tokens: ids, values (N,) int64.
            encode: (N', c) states of the tokens of some texts.
        """
        keys = _keys(tokens.values.cpu().numpy(), tokens.sizes)
        found = [self._states.get(key) for key in keys]
        unknown = [number for number, states in enumerate(found) if states is None]
        if unknown:
            some = tokens.select(np.array(unknown))
            offsets = np.concatenate([[0], np.cumsum(some.sizes)])
            texts = Tokens(some.values.cpu().numpy().astype(np.int32), offsets)
            for number, states in zip(unknown, self._computed(texts, encode), strict=True):
                found[number] = states
            if self._stored is not None:
                self._stored.flush(everything=False)
        return torch.cat([states for states in found if states is not None])

    def learn(self, texts: Tokens, encode: Encode) -> None:
        """Keeps the states of texts: read from the store, or computed, those of similar length together.

        Raises:
            InputError: the store cannot be written.
        """
        keys = np.array(_keys(texts.ids.astype(np.int64), texts.lengths), dtype=object)
        _, first = np.unique(keys, return_index=True)
        unknown = np.array([row for row in first if keys[row] not in self._states], dtype=np.int64)
        unknown = unknown[np.argsort(texts.lengths[unknown], kind="stable")]
        block = np.cumsum(texts.lengths[unknown]) // _TOKENS_PER_BLOCK
        for rows in np.split(unknown, np.flatnonzero(np.diff(block)) + 1) if len(unknown) else ():
            states = self._computed(texts.take(rows), encode)
            self._states.update(zip(keys[rows], states, strict=True))
            if self._stored is not None:
                self._stored.flush()

    def _computed(self, texts: Tokens, encode: Encode) -> Sequence[Tensor]:
        def encoded(some: Tokens) -> Ragged:
            tokens = Ragged.of(some, self._device)
            return tokens.with_values(encode(tokens))

        if self._stored is None:
            found = encoded(texts)
        else:
            found = self._stored.encoded(texts, encoded, 1, self._device)
        return found.values.split(found.sizes.tolist())


@torch.no_grad()
def remember_states(ranker: Ranker, texts: Sequence[Tokens], folder: Location | None = None) -> None:
    """Has a ranker remember the states of texts, if its network is not trained and they fit into memory.

    Args:
        ranker: on its device.
        texts: all that it will read.
        folder: where stores of states are, which other rankers over the same network share; None keeps them
            in memory only.

    Raises:
        InputError: the store cannot be read or written.
    """
    encoder = _frozen(ranker)
    if encoder is None:
        return
    device = next(ranker.parameters()).device
    needed = 4 * encoder.size * sum(len(some.ids) for some in texts)
    if needed > _SHARE * _memory(device):
        logger.info(f"states of all texts take {needed / 1e9:.1f} GB: they are computed in every epoch")
        return
    memory = StateMemory(device, None if folder is None else _stored(encoder, device, folder))
    encoder.eval()  # without dropout, which a new network has until its mode is set
    for some in texts:
        memory.learn(some, encoder.all_states)
    encoder.memory = memory


def recall_states(ranker: Ranker, folder: Location) -> None:
    """Has a ranker that scores read the states that trainings over its network have left in ``folder``.

    Raises:
        InputError: the store cannot be read or written.
    """
    encoder = _frozen(ranker)
    if encoder is not None:
        device = next(ranker.parameters()).device
        encoder.memory = StateMemory(device, _stored(encoder, device, folder))


def _frozen(ranker: Ranker) -> TransformerEncoder | None:
    """The encoder of a ranker in which a text has the same states at any time; None of another ranker."""
    encoder = ranker.encoder
    return encoder if isinstance(encoder, TransformerEncoder) and encoder.is_frozen else None


def _keys(ids: np.ndarray, sizes: np.ndarray) -> list[bytes]:
    """The token ids (N,) int64 of each text, as bytes."""
    data, ends = ids.tobytes(), (8 * np.cumsum(sizes)).tolist()
    return [data[begin:end] for begin, end in zip([0, *ends], ends, strict=False)]


def _stored(encoder: TransformerEncoder, device: torch.device, folder: Location) -> StoredAnswers:
    """The store of the states of a network, in a folder of its own."""
    digest = hashlib.sha256(json.dumps([encoder.spec.backbone, str(device)], sort_keys=True).encode())
    for library in ("torch", "transformers"):
        digest.update(version(library).encode())
    for name, weight in sorted(encoder.backbone.network.state_dict().items()):
        digest.update(name.encode())
        digest.update(weight.detach().cpu().contiguous().numpy())
    key = digest.hexdigest()[:16]
    store = AnswerStore(folder / key, "fp32", key)
    store.folder.mkdir(parents=True, exist_ok=True)
    store.refresh(repair=True)
    return StoredAnswers(store, fill=True)


def _memory(device: torch.device) -> int:
    """Bytes of memory of a device."""
    if device.type == "cuda":
        free: int = torch.cuda.mem_get_info(device)[0]
        return free
    return available_memory()
