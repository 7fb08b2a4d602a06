"""A pretrained network over ragged texts: a state per token, or the logits of its head per text.

Training pads texts. Inference does not: texts share one row if the network supports it (``packed``),
otherwise a batch has texts of equal length. The states of a text are then equal to the bit for any other
texts in the batch.
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

# Maximum number of tokens per batch or row, with padding.
TOKENS_PER_BATCH = {"cpu": 4096, "cuda": 1 << 16}

# Smaller GEMMs use another kernel and round differently.
LEAST_ROWS = 4

# Padding, in tokens, that costs as much as one more batch in training.
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
    """A network of ``transformers`` that reads ragged texts, in batches of similar length."""

    def __init__(self, network: Any) -> None:
        super().__init__()
        self.network = network
        self.has_fillers = False  # texts may have unattended tokens (``aptool.text.forms``)
        self.is_packed = False  # texts go through the network in one row, which gives states but no logits
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
        """Yield the network's outputs, batch by batch.

        Args:
            tokens: ids with their flags (``aptool.text.forms``), values (N,) int64.
            order: (n,) indices of the texts, ascending in length.
            types: (N,) int64 token types, for a network that has them.
            embedded: (N, d) embeddings of the tokens, instead of their ids.
            share: let texts of different lengths share a batch if it costs little padding.
            least: minimum number of tokens per batch; the texts of a smaller batch are repeated.

        Yields:
            The outputs for (n', T) tokens, and the slots of these n' · T that have tokens; None for all.
        """
        ordered, offsets = tokens.rows(order), np.concatenate([[0], np.cumsum(tokens.sizes[order])])
        for texts, width in self._batches(tokens.sizes[order], share=share):
            rows = ordered[offsets[texts.start] : offsets[texts.stop]]
            sizes, copies = tokens.sizes[order[texts]], -(-least // len(rows))
            if copies > 1:
                rows, sizes = rows.repeat(copies), np.tile(sizes, copies)
            batch = Ragged.of_sizes(tokens.values[rows], sizes)
            inputs, slots = self._inputs(
                batch,
                width,
                types=None if types is None else types[rows],
                embedded=None if embedded is None else embedded[rows],
            )
            if copies > 1:
                slots = batch.row_numbers()[: len(rows) // copies]
            yield self.network(return_dict=True, **inputs), slots

    def _inputs(
        self, tokens: Ragged, width: int | None, types: Tensor | None, embedded: Tensor | None
    ) -> tuple[dict[str, Any], Tensor | None]:
        """Return the arguments for texts padded to ``width`` or in one row, and the tokens' slots."""
        if width is None:
            ids = tokens.with_values(tokens.values & TOKEN_ID)
            return packed_inputs(ids, types if self._has_types else None, self.network.config), None
        count, is_padded = len(tokens.sizes), len(tokens.values) < len(tokens.sizes) * width
        slots = tokens.slots(width) if is_padded else None

        def dense(values: Tensor, padding: int = 0) -> Tensor:
            """(n, T, ...) from (N, ...)."""
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
        """Split (n,) ascending lengths into batches: consecutive texts and their width, None for one row.

        With ``share``, texts of different lengths share a batch if it costs little padding.
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
    """A pretrained network without head (``bare_encoder``), which computes a state per token."""

    def __init__(self, network: Any, options: BackboneOptions) -> None:
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
        """(R, c) states of tokens, fp32, or in the precision of the weights if nothing is trained.

        Args:
            tokens: ids with their flags (``aptool.text.forms``), values (N,) int64.
            rows: (R,) int64 indices of tokens.
            types: (N,) int64 token types, for a network that has them.
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
        ordered = tokens.rows(order)
        index = torch.empty_like(ordered).index_copy_(0, ordered, tokens.row_numbers())
        return torch.cat(parts).index_select(0, index[rows])

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Register the packed attention in a process that unpickles the network."""
        super().__setstate__(state)  # type: ignore[no-untyped-call]  # of torch
        if self.is_packed:
            pack(self.network)

    def train(self, mode: bool = True) -> "Backbone":
        """Set the mode; a frozen network has no dropout in training either."""
        super().train(mode)
        if not self._is_trained:
            self.network.eval()
        return self

    def _embed(self, ids: Tensor) -> Tensor | None:
        """(N, d) embeddings of all tokens; None if the network accepts only ids.

        One lookup for all batches: its gradient is as large as the embedding table.
        """
        if not self._takes_embeddings:
            return None
        embedded: Tensor = self.network.get_input_embeddings()(ids & TOKEN_ID)
        return embedded

    def _freeze(self, layer_count: int, options: BackboneOptions) -> None:
        """Exclude from training the layers that the options do not tune."""
        if options.tune == "all":
            return
        self.network.requires_grad_(False)
        if options.tune == "none":
            return
        lists = [part for part in self.network.modules() if isinstance(part, nn.ModuleList)]
        layers = next((part for part in lists if len(part) == layer_count), None)
        if layers is None:
            expected = "all or none: the layers of this network share their weights"
            raise InputError(options.name, place="encoder.tune", value=options.tune, expected=expected)
        if options.last > layer_count:
            expected = f"at most {layer_count}"
            raise InputError(options.name, place="encoder.last", value=options.last, expected=expected)
        for layer in layers[-options.last :]:
            layer.requires_grad_(True)


class Classifier(BatchedNetwork):
    """A pretrained network with its classification head."""

    def forward(self, tokens: Ragged, types: Tensor | None = None) -> Tensor:
        """(n, labels) fp32 logits of n texts; arguments as in ``Backbone.forward``."""
        order = np.argsort(tokens.sizes, kind="stable")
        parts = [output.logits.float() for output, _ in self.run(tokens, order, types, share=False)]
        return torch.cat(parts)[send(np.argsort(order), tokens.values.device)]

    def lower_precision(self) -> None:
        """Compute in bf16, except in the head: many texts would tie."""
        body = self.network.base_model
        body.bfloat16()
        for part in self.network.children():
            if part is not body:
                part.register_forward_pre_hook(_in_fp32)


def fresh_network(config: dict[str, Any], name: str = "") -> Any:
    """Build a network without head from ``Pretrained.config``, with fresh weights; ``name`` is for errors."""
    transformers = network_library()
    kind = config.get("model_type")
    check_network_config(name or str(kind), config)
    try:
        network_config = transformers.AutoConfig.for_model(**config)
        return bare_encoder(transformers.AutoModel.from_config(network_config, trust_remote_code=False))
    except Exception as error:  # a damaged configuration can raise anything
        raise AptoolError(
            f"model_type {shortened(kind)}: transformers cannot build this network: "
            f"{one_line(first_line(error))}"
        ) from error


def _in_fp32(part: nn.Module, inputs: tuple[Any, ...]) -> tuple[Any, ...]:
    """Convert the inputs of a module to fp32; a hook."""
    return tuple(
        value.float() if isinstance(value, Tensor) and value.is_floating_point() else value
        for value in inputs
    )


def _shared_widths(sizes: np.ndarray, padding: int) -> np.ndarray:
    """(n,) widths: a length is raised to the next width if that costs at most ``padding`` tokens."""
    lengths, length_of, counts = np.unique(sizes, return_inverse=True, return_counts=True)
    widths = lengths.copy()
    for index in range(len(lengths) - 2, -1, -1):
        wider = widths[index + 1]
        if counts[index] * (wider - lengths[index]) <= padding:
            widths[index] = wider
    return widths[length_of]


def _enable_checkpointing(network: Any, name: str) -> None:
    """Recompute activations in the backward pass; the method's name depends on the library's version."""
    enable = (
        getattr(network, "activation_checkpointing_enable", None) or network.gradient_checkpointing_enable
    )
    try:
        enable({"use_reentrant": False})
    except ValueError as error:
        expected = f"false: {error}"
        raise InputError(name, place="encoder.checkpointing", value=True, expected=expected) from error
