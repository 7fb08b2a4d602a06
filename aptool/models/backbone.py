"""A pretrained network at work: texts in, a state for each token out, in training as in scoring."""

from dataclasses import dataclass
from inspect import signature
from typing import Any, Literal

import torch
from torch import Tensor, nn

from aptool.config import bounded
from aptool.errors import AptoolError, InputError, first_line
from aptool.models.pretrained import bare, network_library, positions
from aptool.models.ragged import Ragged

# A text is padded to the next multiple of this beyond its own length, whatever it is encoded with. Its states
# are then the same to the bit in any company: what is padded, and by how much, is its own affair. There is
# always some padding, as a network may take another way through a batch that has none.
WIDTH = 8

# Tokens, padding among them, that go through the network at one time.
TOKENS_AT_ONCE = {"cpu": 4096, "cuda": 1 << 16}

# Tokens of padding that cost as much as a batch more. In training nothing hangs on what a text is padded to.
PADDING_FOR_A_BATCH = {"cpu": 64, "cuda": 1 << 14}


@dataclass(frozen=True)
class BackboneOptions:
    """Options of an encoder on a pretrained network.

    Attributes:
        name: a folder with a network in the Hugging Face layout, or a name on its hub.
        layers: layers kept, from the first on; 0 keeps all.
        tune: what training changes: ``all`` of the network, its ``last`` layers, or ``none``.
        last: how many layers ``last`` means.
        checkpointing: in training, work states out again in place of keeping them: less memory, more time.
        precision: of the network in training: ``bf16`` computes in it, and keeps weights in fp32.
    """

    name: str = ""
    layers: int = bounded(0)
    tune: Literal["all", "last", "none"] = "all"
    last: int = bounded(2, least=1)
    checkpointing: bool = False
    precision: Literal["fp32", "bf16"] = "fp32"


class Backbone(nn.Module):
    """A network that gives a state to each token of a text."""

    def __init__(self, config: dict[str, Any], options: BackboneOptions) -> None:
        """A network with fresh weights.

        Args:
            config: as ``pretrained.Pretrained`` has it.
            options: of the encoder.

        Raises:
            AptoolError: ``transformers`` is not installed, or does not know such a network.
            InputError: there are not as many layers as the options name.
        """
        super().__init__()
        transformers = network_library()
        try:
            described = transformers.AutoConfig.for_model(**config)
            self.network = bare(transformers.AutoModel.from_config(described))
        except Exception as error:  # whatever a network of any kind can raise of a config that is not one
            kind = config.get("model_type")
            raise AptoolError(
                f"{kind}: transformers cannot make such a network: {first_line(error)}"
            ) from error
        self.size: int = described.hidden_size
        self._pad = int(described.pad_token_id or 0)
        self._typed = getattr(described, "type_vocab_size", 0) > 1
        self._positions = positions(self.network)
        self._precision = options.precision
        self._trained = options.tune != "none"
        self._takes_embedded = "inputs_embeds" in signature(self.network.forward).parameters
        self._hold(described.num_hidden_layers, options)
        if options.checkpointing and self._trained:
            _keep_less(self.network, options.name)

    def forward(self, tokens: Ragged, rows: Tensor, types: Tensor | None = None) -> Tensor:
        """States of tokens.

        Args:
            tokens: ids, values (N,) int64.
            rows: (R,) which of the N tokens.
            types: (N,) int64 of tokens, for a network that tells types apart.

        Returns:
            (R, c) fp32, or what the weights are in where nothing is trained.
        """
        device = tokens.values.device
        bf16 = self.training and self._precision == "bf16"
        learns = torch.is_grad_enabled() and self._trained
        with torch.set_grad_enabled(learns), torch.autocast(device.type, torch.bfloat16, enabled=bf16):
            trains = learns and self.training
            embedded = self._embedded(tokens.values) if trains else None
            parts, order = [], []
            for some, width in self._batches(tokens.lengths, alone=not trains):
                here = tokens.rows(some)
                states = self._states(
                    tokens.select(some),
                    width,
                    types=None if types is None else types[here],
                    embedded=None if embedded is None else embedded[here],
                )
                parts.append(states.float() if bf16 else states)
                order.append(here)
        where = torch.empty(len(tokens.values), dtype=torch.int64, device=device)
        where[torch.cat(order)] = torch.arange(len(where), device=device)
        return torch.cat(parts).index_select(0, where[rows])

    def train(self, mode: bool = True) -> "Backbone":
        """A network that is not trained reads without dropout in training too."""
        super().train(mode)
        if not self._trained:
            self.network.eval()
        return self

    def _embedded(self, ids: Tensor) -> Tensor | None:
        """(N, d) embeddings of all tokens, so that their gradient, as large as the table, is made but once.

        None for a network that takes nothing but ids.
        """
        if not self._takes_embedded:
            return None
        embedded: Tensor = self.network.get_input_embeddings()(ids)
        return embedded

    def _states(self, tokens: Ragged, width: int, types: Tensor | None, embedded: Tensor | None) -> Tensor:
        """(N, c) states of the tokens of texts that are padded to one width."""
        place, _ = tokens.positions()
        text = torch.arange(len(tokens.lengths), device=place.device).repeat_interleave(tokens.lengths)
        ids = tokens.values.new_full((len(tokens.lengths), width), self._pad)  # (n, T)
        mask = torch.zeros_like(ids)
        mask[text, place] = 1
        more = {}
        if embedded is None:
            ids[text, place] = tokens.values
            more["input_ids"] = ids
        else:
            more["inputs_embeds"] = embedded.new_zeros(*ids.shape, embedded.shape[1]).index_put(
                (text, place), embedded
            )
        if types is not None and self._typed:
            more["token_type_ids"] = torch.zeros_like(ids)
            more["token_type_ids"][text, place] = types
        found = self.network(attention_mask=mask, return_dict=True, **more)
        states: Tensor = found.last_hidden_state[text, place]
        return states

    def _batches(self, lengths: Tensor, alone: bool) -> list[tuple[Tensor, int]]:
        """Texts that are padded to one width, and the width; no more at one time than are good.

        ``alone`` pads each text by its own length and nothing else.
        """
        at_once = TOKENS_AT_ONCE.get(lengths.device.type, 4096)
        widths = (lengths // WIDTH + 1) * WIDTH
        widths = torch.minimum(widths, widths.new_tensor(self._positions).maximum(lengths))
        if not alone:
            widths = _shared(widths, PADDING_FOR_A_BATCH.get(lengths.device.type, 64))
        # Only at the longest that a network takes is a text not padded at all; it stays among such.
        kinds, members = (widths * 2 + (widths == lengths)).unique(return_inverse=True)
        batches = []
        for number, kind in enumerate(kinds.tolist()):
            texts, width = (members == number).nonzero().squeeze(1), kind // 2
            batches += [(some, width) for some in texts.split(max(1, at_once // width))]
        return batches

    def _hold(self, count: int, options: BackboneOptions) -> None:
        """Leaves what is not to be trained as it is."""
        if options.tune == "all":
            return
        self.network.requires_grad_(False)
        if options.tune == "none":
            return
        lists = [part for part in self.network.modules() if isinstance(part, nn.ModuleList)]
        layers = next((part for part in lists if len(part) == count), None)
        if layers is None:
            wanted = "all or none: the network has no layers apart from each other"
            raise InputError(options.name, place="encoder.tune", value=options.tune, expected=wanted)
        if options.last > count:
            raise InputError(
                options.name, place="encoder.last", value=options.last, expected=f"at most {count}"
            )
        for layer in layers[-options.last :]:
            layer.requires_grad_(True)


def _shared(widths: Tensor, padding: int) -> Tensor:
    """(n,) widths at which texts share batches: as wide as the next wider where that costs little padding."""
    kinds, counts = widths.unique(return_counts=True)
    wider, shared = 0, {}
    for width, count in zip(reversed(kinds.tolist()), reversed(counts.tolist()), strict=True):
        if not wider or count * (wider - width) > padding:
            wider = width
        shared[width] = wider
    table = widths.new_tensor([shared[width] for width in kinds.tolist()])
    return table[torch.searchsorted(kinds, widths)]


def _keep_less(network: Any, name: str) -> None:
    """Has states worked out again in the backward pass; the method has one name or the other."""
    enable = (
        getattr(network, "activation_checkpointing_enable", None) or network.gradient_checkpointing_enable
    )
    try:
        enable({"use_reentrant": False})
    except ValueError as error:
        raise InputError(
            name, place="encoder.checkpointing", value=True, expected=f"false: {error}"
        ) from error
