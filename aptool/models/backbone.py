"""A pretrained network over ragged texts: a state for each token, or the logits of its own head for a text.

Texts are padded for the network only, and in training only.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from inspect import signature
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor, nn

from aptool.errors import AptoolError, InputError, first_line, one_line, shortened
from aptool.models.device import send
from aptool.models.packed import pack, packed_inputs
from aptool.models.pretrained import bare_encoder, check_network_config, network_library
from aptool.models.ragged import Ragged
from aptool.options import bounded
from aptool.text.forms import TOKEN_ID, UNATTENDED

# For inference, texts go through the network without any padding, many in one row where that is possible
# (``packed``), otherwise those of equal length together: the states of a text are then the same to the bit
# whatever it is encoded with.

# Tokens, padding included, that go through the network in one batch or row.
TOKENS_PER_BATCH = {"cpu": 4096, "cuda": 1 << 16}

# A product with fewer rows is computed in another way, with other last bits.
LEAST_ROWS = 4

# Padding, in tokens, that costs as much as one more batch. Only training trades one for the other.
PADDING_PER_BATCH = {"cpu": 64, "cuda": 1 << 14}


@dataclass(frozen=True)
class BackboneOptions:
    """Options of an encoder over a pretrained network.

    Attributes:
        name: Folder of a network in the Hugging Face layout, or its name on the hub.
        layers: Number of layers to keep, counted from the first; 0 keeps all.
        tune: What is trained: ``all`` of the network, its ``last`` layers, or ``none`` of it.
        last: Number of layers that ``tune = "last"`` trains.
        checkpointing: Recompute activations in the backward pass: less memory, more time.
        precision: Precision of the network in training; with ``bf16`` it computes in bf16 and keeps its
            weights in fp32.
    """

    name: str = ""
    layers: int = bounded(0)
    tune: Literal["all", "last", "none"] = "all"
    last: int = bounded(2, least=1)
    checkpointing: bool = False
    precision: Literal["fp32", "bf16"] = "fp32"


class BatchedNetwork(nn.Module):
    """A network of ``transformers`` that reads ragged texts, in batches of similar length.

    Attributes:
        has_fillers: whether texts may have tokens that no other token attends to (``aptool.text.forms``).
        is_packed: whether texts go through the network in one row; only their states can be had so.
    """

    def __init__(self, network: Any) -> None:
        super().__init__()
        self.network = network
        self.has_fillers = False
        self.is_packed = False
        self._pad = int(network.config.pad_token_id or 0)
        self._has_types = getattr(network.config, "type_vocab_size", 0) > 1

    def run(
        self,
        tokens: Ragged,
        order: np.ndarray,
        types: Tensor | None,
        embedded: Tensor | None = None,
        *,
        share: bool,
        least: int = 1,
    ) -> Iterator[tuple[Any, Tensor | None]]:
        """The network's outputs, batch by batch.

        Args:
            tokens: ids with their flags (``aptool.text.forms``), values (N,) int64.
            order: (n,) the texts in the order in which they are read, ascending in length.
            types: (N,) int64 token types, for a network that has them.
            embedded: (N, d) embeddings of the tokens, in place of their ids.
            share: whether texts of different lengths share a batch where it costs little padding.
            least: tokens of a batch, without padding; the texts of one that has fewer are repeated.

        Yields:
            The outputs for (n', T) tokens, and which of these n' · T slots have tokens; None for all.
        """
        places, offsets = tokens.rows(order), np.concatenate([[0], np.cumsum(tokens.sizes[order])])
        for texts, width in self._batches(tokens.sizes[order], share=share):
            some = places[offsets[texts.start] : offsets[texts.stop]]
            sizes, copies = tokens.sizes[order[texts]], -(-least // len(some))
            if copies > 1:
                some, sizes = some.repeat(copies), np.tile(sizes, copies)
            part = Ragged.of_sizes(tokens.values[some], sizes)
            inputs, slots = self._inputs(
                part,
                width,
                types=None if types is None else types[some],
                embedded=None if embedded is None else embedded[some],
            )
            if copies > 1:
                slots = part.row_numbers()[: len(some) // copies]
            yield self.network(return_dict=True, **inputs), slots

    def _inputs(
        self, tokens: Ragged, width: int | None, types: Tensor | None, embedded: Tensor | None
    ) -> tuple[dict[str, Any], Tensor | None]:
        """The network's arguments for texts padded to one width, or in one row; the slots of their tokens."""
        if width is None:
            ids = tokens.with_values(tokens.values & TOKEN_ID)
            return packed_inputs(ids, types if self._has_types else None, self.network.config), None
        count, is_padded = len(tokens.sizes), len(tokens.values) < len(tokens.sizes) * width
        slots = tokens.slots(width) if is_padded else None

        def dense(values: Tensor, padding: int = 0) -> Tensor:
            """(n, T, ...) of values (N, ...)."""
            if slots is not None:
                filled = values.new_full((count * width, *values.shape[1:]), padding)
                values = filled.index_copy(0, slots, values)
            return values.view(count, width, *values.shape[1:])

        inputs: dict[str, Any] = {}
        if slots is not None or self.has_fillers:
            inputs["attention_mask"] = dense(((tokens.values & UNATTENDED) == 0).long())
        if embedded is None:
            inputs["input_ids"] = dense(tokens.values & TOKEN_ID, self._pad)
        else:
            inputs["inputs_embeds"] = dense(embedded)
        if types is not None and self._has_types:
            inputs["token_type_ids"] = dense(types)
        return inputs, slots

    def _batches(self, sizes: np.ndarray, share: bool) -> list[tuple[slice, int | None]]:
        """Consecutive texts that go through the network together, and the width they are padded to.

        The width is None for texts in one row.

        Args:
            sizes: (n,) tokens of each text, ascending.
            share: whether texts of different lengths share a batch where it costs little padding; without it
                nothing is padded.
        """
        kind = "cpu" if next(self.parameters()).device.type == "cpu" else "cuda"
        if self.is_packed and not (share or self.has_fillers):
            row = (np.cumsum(sizes) - 1) // TOKENS_PER_BATCH[kind]
            ends = [*(np.flatnonzero(np.diff(row)) + 1).tolist(), len(sizes)]
            return [(slice(begin, end), None) for begin, end in zip([0, *ends], ends, strict=False)]
        widths = _shared_widths(sizes, PADDING_PER_BATCH[kind]) if share else sizes
        batches: list[tuple[slice, int | None]] = []
        ends = [*(np.flatnonzero(np.diff(widths)) + 1).tolist(), len(widths)]
        for begin, end in zip([0, *ends], ends, strict=False):
            width = int(widths[begin])
            most = max(1, TOKENS_PER_BATCH[kind] // width)
            batches += [(slice(at, min(at + most, end)), width) for at in range(begin, end, most)]
        return batches


class Backbone(BatchedNetwork):
    """A pretrained network that computes a state for each token of a text."""

    def __init__(self, network: Any, options: BackboneOptions) -> None:
        """Wraps a network.

        Args:
            network: a network without head (``bare_encoder``).
            options: options of the encoder.
        """
        super().__init__(network)
        self.size: int = network.config.hidden_size
        self._precision = options.precision
        self._is_trained = options.tune != "none"
        self.is_packed = pack(network)
        self._takes_embeddings = "inputs_embeds" in signature(network.forward).parameters
        self._freeze(network.config.num_hidden_layers, options)
        if options.checkpointing and self._is_trained:
            _enable_checkpointing(network, options.name)

    def forward(self, tokens: Ragged, rows: Tensor, types: Tensor | None = None) -> Tensor:
        """States of tokens.

        Args:
            tokens: ids with their flags (``aptool.text.forms``), values (N,) int64.
            rows: (R,) int64 which of the N tokens.
            types: (N,) int64 token types, for a network that has them.

        Returns:
            (R, c) fp32, or in the precision of the weights where nothing is trained.
        """
        device = tokens.values.device
        bf16 = self.training and self._precision == "bf16"
        with_grad = torch.is_grad_enabled() and self._is_trained
        with torch.set_grad_enabled(with_grad), torch.autocast(device.type, torch.bfloat16, enabled=bf16):
            training = with_grad and self.training
            embedded = self._embed(tokens.values) if training else None
            order = np.argsort(tokens.sizes, kind="stable")
            parts = []
            least = 1 if training else LEAST_ROWS
            for output, slots in self.run(tokens, order, types, embedded, share=training, least=least):
                states = output.last_hidden_state.flatten(0, 1)
                states = states if slots is None else states.index_select(0, slots)
                parts.append(states.float() if bf16 else states)
        places = tokens.rows(order)
        index = torch.empty_like(places).index_copy_(0, places, tokens.row_numbers())
        return torch.cat(parts).index_select(0, index[rows])

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Has this process's ``transformers`` know the attention of a network from another process."""
        super().__setstate__(state)  # type: ignore[no-untyped-call]  # of torch
        if self.is_packed:
            pack(self.network)

    def train(self, mode: bool = True) -> "Backbone":
        """As of any module, except that a network that is not trained has no dropout in training either."""
        super().train(mode)
        if not self._is_trained:
            self.network.eval()
        return self

    def _embed(self, ids: Tensor) -> Tensor | None:
        """(N, d) embeddings of all tokens at once: their gradient, as large as the table, is made only once.

        None for a network that accepts only ids.
        """
        if not self._takes_embeddings:
            return None
        embedded: Tensor = self.network.get_input_embeddings()(ids & TOKEN_ID)
        return embedded

    def _freeze(self, layer_count: int, options: BackboneOptions) -> None:
        """Excludes from training what the options do not tune."""
        if options.tune == "all":
            return
        self.network.requires_grad_(False)
        if options.tune == "none":
            return
        lists = [part for part in self.network.modules() if isinstance(part, nn.ModuleList)]
        layers = next((part for part in lists if len(part) == layer_count), None)
        if layers is None:
            wanted = "all or none: the layers of this network share their weights"
            raise InputError(options.name, place="encoder.tune", value=options.tune, expected=wanted)
        if options.last > layer_count:
            wanted = f"at most {layer_count}"
            raise InputError(options.name, place="encoder.last", value=options.last, expected=wanted)
        for layer in layers[-options.last :]:
            layer.requires_grad_(True)


class Classifier(BatchedNetwork):
    """A pretrained network with its own head: the logits of each text."""

    def forward(self, tokens: Ragged, types: Tensor | None = None) -> Tensor:
        """(n, labels) fp32 logits of n texts; ``tokens`` and ``types`` are those of ``Backbone.forward``."""
        order = np.argsort(tokens.sizes, kind="stable")
        parts = [output.logits.float() for output, _ in self.run(tokens, order, types, share=False)]
        return torch.cat(parts)[send(np.argsort(order), tokens.values.device)]

    def lower_precision(self) -> None:
        """Has the network compute in bf16, but not its head, or many texts would tie."""
        body = self.network.base_model
        body.bfloat16()
        for part in self.network.children():
            if part is not body:
                part.register_forward_pre_hook(_in_fp32)


def fresh_network(config: dict[str, Any], name: str = "") -> Any:
    """A network without head, with fresh weights.

    Args:
        config: the network's configuration (``Pretrained.config``).
        name: where it is from, for errors.
    """
    transformers = network_library()
    kind = config.get("model_type")
    check_network_config(name or str(kind), config)
    try:
        described = transformers.AutoConfig.for_model(**config)
        return bare_encoder(transformers.AutoModel.from_config(described, trust_remote_code=False))
    except Exception as error:  # whatever a network of any kind can raise on a damaged configuration
        raise AptoolError(
            f"model_type {shortened(kind)}: transformers cannot build this network: "
            f"{one_line(first_line(error))}"
        ) from error


def _in_fp32(part: nn.Module, inputs: tuple[Any, ...]) -> tuple[Any, ...]:
    """A hook: the tensors that a part of a network reads, in fp32."""
    return tuple(
        one.float() if isinstance(one, Tensor) and one.is_floating_point() else one for one in inputs
    )


def _shared_widths(sizes: np.ndarray, padding: int) -> np.ndarray:
    """(n,) widths: a length is raised to the next one where that costs at most ``padding`` tokens."""
    lengths, which, counts = np.unique(sizes, return_inverse=True, return_counts=True)
    widths = lengths.copy()
    for place in range(len(lengths) - 2, -1, -1):
        wider = widths[place + 1]
        if counts[place] * (wider - lengths[place]) <= padding:
            widths[place] = wider
    return widths[which]


def _enable_checkpointing(network: Any, name: str) -> None:
    """Has activations recomputed in the backward pass; the method's name depends on the library's version."""
    enable = (
        getattr(network, "activation_checkpointing_enable", None) or network.gradient_checkpointing_enable
    )
    try:
        enable({"use_reentrant": False})
    except ValueError as error:
        wanted = f"false: {error}"
        raise InputError(name, place="encoder.checkpointing", value=True, expected=wanted) from error
