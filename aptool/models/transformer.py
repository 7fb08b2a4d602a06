"""The encoder over a pretrained network.

In training, texts are padded. In inference they are packed into one row if the network supports it
(``pack``), otherwise batches have texts of equal length. The states of a text are then equal to the bit in
all batches.

In a packed row, embeddings, products and normalizations are computed for all tokens at once, and attention
stays within a text (``attend``): on a CPU at once for texts of equal length, because padding would change the
last bits. On a GPU, texts are padded to few shapes (``padded_batches``): kernels for a new shape take long to
prepare.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields
from inspect import signature
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from typing_extensions import override

from aptool.config import Recipe, TextOptions, VectorOptions
from aptool.errors import InputError
from aptool.models.device import batch_sizes, send
from aptool.models.encoders import Encode, Encoder, EncoderSpec
from aptool.models.pretrained import (
    check_name,
    max_positions,
    network_library,
    new_network,
    open_network,
    structure_of,
)
from aptool.models.ragged import MIN_ROWS, Ragged, TextBatch, padded_batches, rows_of
from aptool.text.tokenizer import SubwordTokenizer

# Options of ``text`` that apply only to word tokenizers.
WORD_OPTIONS = ("lowercase", "min_count")

# Networks with absolute positions and full attention.
_ABSOLUTE = ("albert", "bert", "distilbert", "electra")

# RoBERTa's family counts positions from the id of the padding token, and skips padding tokens.
_AFTER_PADDING = ("camembert", "roberta", "xlm-roberta")

# Name of ``attend`` in transformers.
_PACKED = "aptool_packed"

# Tokens of padding that cost as much as one more batch, in training on a CPU.
PADDING = 1 << 6


@dataclass(frozen=True)
class TransformerOptions:
    """Options of an encoder over a pretrained network.

    Attributes:
        name: Folder of a network in the Hugging Face layout, or its name on the hub.
        tune: Part of the network to train: ``all`` of it, or ``none``.
        precision: Precision of the network in training; with ``bf16`` it computes in bf16 and keeps its
            weights in fp32.
    """

    name: str = ""
    tune: Literal["all", "none"] = "all"
    precision: Literal["fp32", "bf16"] = "fp32"


class TransformerEncoder(Encoder):
    """The states of a pretrained network without head, one per token, including special tokens.

    The tokenizer and the initial weights are those of the network.
    """

    Options = TransformerOptions
    Tokenizer = SubwordTokenizer

    def __init__(self, spec: EncoderSpec, options: TransformerOptions) -> None:
        super().__init__(spec)
        assert spec.network is not None
        self.size = spec.dim
        self.options = options
        self.network = new_network(spec.network)
        self.is_packed = self.pack()  # texts can share one row
        self._is_trained = options.tune != "none"
        self._pad = int(self.network.config.pad_token_id or 0)
        self._widest = max_positions(self.network)
        self._takes_embeddings = "inputs_embeds" in signature(self.network.forward).parameters
        if not self._is_trained:
            self.network.requires_grad_(False)
        # Returns the states (N, c) of the texts of a training; None computes them.
        self.state_cache: Callable[[Ragged], Tensor] | None = None

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Register the attention in the process that unpickles the network."""
        super().__setstate__(state)  # type: ignore[no-untyped-call]  # of torch
        if self.is_packed:
            self.pack()

    def pack(self) -> bool:
        """Let the network attend within texts in one row; return whether it supports that."""
        config = self.network.config
        if config.model_type not in (*_ABSOLUTE, *_AFTER_PADDING) or getattr(config, "is_decoder", False):
            return False
        from transformers.masking_utils import sdpa_mask

        transformers = network_library()
        transformers.AttentionInterface.register(_PACKED, attend)
        transformers.AttentionMaskInterface.register(_PACKED, sdpa_mask)
        self.network.set_attn_implementation(_PACKED)
        return True

    @classmethod
    @override
    def check(cls, recipe: Recipe, options: Any) -> None:
        check_name(recipe.preset, options.name)
        text, vectors = TextOptions(), VectorOptions()
        settings = {
            f"text.{name}": (getattr(recipe.text, name), getattr(text, name)) for name in WORD_OPTIONS
        }
        for option in fields(vectors):
            settings[f"vectors.{option.name}"] = (getattr(recipe.vectors, option.name), option.default)
        for position, (value, default) in settings.items():
            if value != default:
                expected = "the default: a pretrained encoder has its own tokenizer and vectors"
                raise InputError(recipe.preset, position=position, value=value, expected=expected)

    @classmethod
    def pretrained(
        cls, recipe: Recipe, options: TransformerOptions
    ) -> tuple[SubwordTokenizer, EncoderSpec, dict[str, Tensor]]:
        """Open the network of a recipe: its tokenizer, its sizes and its weights."""
        opened = open_network(options.name)
        tokenizer = opened.tokenizer
        special = tokenizer.prefix_length + tokenizer.suffix_length
        for name in ("max_question_tokens", "max_answer_tokens"):
            value = getattr(recipe.text, name)
            if not special + 1 <= value <= opened.max_tokens:
                expected = (
                    f"{special + 1} to {opened.max_tokens}: {options.name} takes {opened.max_tokens} tokens"
                )
                raise InputError(recipe.preset, position=f"text.{name}", value=value, expected=expected)

        spec = EncoderSpec(len(tokenizer), opened.network.config.hidden_size, structure_of(opened.network))
        weights = opened.network.state_dict(prefix="network.")
        return tokenizer, spec, weights

    @property
    @override
    def is_frozen(self) -> bool:
        return self.options.tune == "none" and self.options.precision == "fp32"

    @override
    def forward(self, tokens: Ragged) -> Ragged:
        return tokens.with_values(self.states(tokens, tokens.row_numbers()))

    @override
    def inference_encoder(self, tokens: int | None = None) -> Encode:
        if type(self) is not TransformerEncoder:  # a subclass has its own definition
            return super().inference_encoder(tokens)
        return self.states

    def states(self, tokens: Ragged, rows: Tensor) -> Tensor:
        """(R, c) states of the tokens at ``rows``, in fp32, or in the precision of frozen weights."""
        if self.state_cache is not None:
            return self.state_cache(tokens).index_select(0, rows)
        device = tokens.values.device
        bf16 = self.training and self.options.precision == "bf16"
        with_grad = torch.is_grad_enabled() and self._is_trained
        with torch.set_grad_enabled(with_grad), torch.autocast(device.type, torch.bfloat16, enabled=bf16):
            training = with_grad and self.training
            embedded = None
            if training and self._takes_embeddings:
                # One lookup for all batches, because its gradient is as large as the embedding table.
                embedded = self.network.get_input_embeddings()(tokens.values)
            order = np.argsort(tokens.sizes, kind="stable")
            parts = []
            for states in self._states(tokens, order, embedded, training=training):
                parts.append(states.float() if bf16 else states)
        ordered = tokens.rows(order)
        index = torch.empty_like(ordered).index_copy_(0, ordered, tokens.row_numbers())
        return torch.cat(parts).index_select(0, index[rows])

    def _states(
        self, tokens: Ragged, order: np.ndarray, embedded: Tensor | None, *, training: bool
    ) -> Iterator[Tensor]:
        """Yield the states of the tokens of texts, batch by batch.

        Args:
            tokens: values (N,) int64.
            order: (n,) indices of the texts, ascending in length.
            embedded: (N, d) embeddings of the tokens, instead of their ids.
            training: let texts of different lengths share a batch if it costs little padding. Otherwise
                small batches repeat their texts.
        """
        least = 1 if training else MIN_ROWS
        batches = self._batches(tokens.sizes[order], share=training, least=least)
        members = [order[batch.members] for batch in batches]
        counts = [int(tokens.sizes[texts].sum()) for texts in members]
        all_rows = tokens.rows(np.concatenate(members)).split(counts)
        for batch, texts, rows in zip(batches, members, all_rows, strict=True):
            part = Ragged.of_sizes(tokens.values[rows], tokens.sizes[texts])
            if not batch.width:
                inputs, slots = self._packed_inputs(part), None
            else:
                part_embedded = None if embedded is None else embedded[rows]
                inputs, slots = self._padded_inputs(part, batch.width, part_embedded)
            if batch.height > batch.size:
                slots = part.row_numbers() if slots is None else slots
                slots = slots[: int(part.sizes[: batch.size].sum())]
            states = self.network(return_dict=True, **inputs).last_hidden_state.flatten(0, 1)
            yield states if slots is None else states.index_select(0, slots)

    def _packed_inputs(self, tokens: Ragged) -> dict[str, Any]:
        """Return the network's arguments for texts in one row; texts of equal length are adjacent."""
        ids, config = tokens.values, self.network.config
        if config.model_type in _AFTER_PADDING:
            is_token = (ids != config.pad_token_id).long()
            counted = is_token.cumsum(0)
            before = (counted - is_token).index_select(0, tokens.offsets[:-1])
            positions = (counted - tokens.spread(before)) * is_token + config.pad_token_id
        else:
            positions = tokens.positions()[0]
        inputs = {"input_ids": ids[None], "position_ids": positions[None]}
        if ids.is_cuda:
            inputs["padded_texts"] = pad_texts(tokens.sizes, ids.device)
        else:
            inputs["text_sizes"] = tokens.sizes
        return inputs

    def _padded_inputs(
        self, tokens: Ragged, width: int, embedded: Tensor | None = None
    ) -> tuple[dict[str, Any], Tensor | None]:
        """Return the network's arguments for texts padded to ``width``, and the slots of their tokens."""
        count, is_padded = len(tokens.sizes), len(tokens.values) < len(tokens.sizes) * width
        slots = tokens.slots(width) if is_padded else None

        def dense(values: Tensor, padding: int = 0) -> Tensor:
            """(n, T, ...) from (N, ...)."""
            if slots is not None:
                filled = values.new_full((count * width, *values.shape[1:]), padding)
                values = filled.index_copy(0, slots, values)
            return values.view(count, width, *values.shape[1:])

        inputs: dict[str, Any] = {}
        if slots is not None:
            inputs["attention_mask"] = dense(torch.ones_like(tokens.values))
        if embedded is None:
            inputs["input_ids"] = dense(tokens.values, self._pad)
        else:
            inputs["inputs_embeds"] = dense(embedded)
        return inputs, slots

    def _batches(self, sizes: np.ndarray, *, share: bool, least: int) -> list[TextBatch]:
        """Split texts of ascending lengths (n,) into batches of at least ``least`` tokens."""
        device = next(self.parameters()).device
        limit = batch_sizes(device).network
        batches: list[tuple[slice, int]] = []
        if self.is_packed and not share:
            row = (np.cumsum(sizes) - 1) // limit
            ends = [*(np.flatnonzero(np.diff(row)) + 1).tolist(), len(sizes)]
            batches = [(slice(begin, end), 0) for begin, end in zip([0, *ends], ends, strict=False)]
        elif device.type == "cuda":
            return padded_batches(sizes, self._widest, share=share)
        else:
            widths = _shared_widths(sizes, PADDING) if share else sizes
            ends = [*(np.flatnonzero(np.diff(widths)) + 1).tolist(), len(widths)]
            for begin, end in zip([0, *ends], ends, strict=False):
                width = int(widths[begin])
                most = max(1, limit // width)
                batches += [(slice(at, min(at + most, end)), width) for at in range(begin, end, most)]
        return [
            TextBatch(texts, (texts.stop - texts.start) * -(-least // int(sizes[texts].sum())), width)
            for texts, width in batches
        ]

    @override
    def train(self, mode: bool = True) -> "TransformerEncoder":
        """Set the mode; a frozen network stays in evaluation mode, without dropout."""
        super().train(mode)
        if not self._is_trained:
            self.network.eval()
        return self


def _shared_widths(sizes: np.ndarray, padding: int) -> np.ndarray:
    """(n,) padded lengths: a length is raised to the next one if that costs at most ``padding`` tokens."""
    lengths, length_of, counts = np.unique(sizes, return_inverse=True, return_counts=True)
    widths = lengths.copy()
    for index in range(len(lengths) - 2, -1, -1):
        wider = widths[index + 1]
        if counts[index] * (wider - lengths[index]) <= padding:
            widths[index] = wider
    return widths[length_of]


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
