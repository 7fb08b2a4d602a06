"""Encoders over a pretrained network: states of each text by itself, or its token ids for a cross-encoder."""

from dataclasses import dataclass, fields
from inspect import signature
from typing import Any, Literal, Self

import numpy as np
import torch
from torch import Tensor, nn

from aptool.config import Recipe, TextOptions, VectorOptions, bounded
from aptool.errors import AptoolError, InputError, first_line, one_line, shortened
from aptool.models.encoders import Encode, Encoder
from aptool.models.initialization import Corpus, EncoderSpec, Initialization
from aptool.models.network_config import check_network_config
from aptool.models.pretrained import (
    Pretrained,
    bare_encoder,
    check_named,
    network_library,
    read_pretrained,
)
from aptool.models.ragged import Ragged
from aptool.text.subwords import SubwordTokenizer

# For inference, texts of equal length go through the network together, without any padding: the states of a
# text are then the same to the bit whatever it is encoded with.

# Tokens, padding included, that go through the network in one batch.
TOKENS_PER_BATCH = {"cpu": 4096, "cuda": 1 << 16}

# Padding, in tokens, that costs as much as one more batch. Only training trades one for the other.
PADDING_PER_BATCH = {"cpu": 64, "cuda": 1 << 14}

# Options of ``text`` that only apply to word tokenizers.
WORD_OPTIONS = ("lowercase", "min_count")


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


class PretrainedEncoder(Encoder):
    """What encoders with the tokenizer and the weights of a pretrained network have in common."""

    Options = BackboneOptions
    Tokenizer = SubwordTokenizer
    joint = False  # whether the network reads a question and an answer as one text

    def __init__(self, spec: EncoderSpec, options: BackboneOptions) -> None:
        super().__init__()
        self.spec = spec
        self.size = spec.dim
        self.options = options

    @classmethod
    def build(cls, spec: EncoderSpec, options: Any) -> Self:
        """See ``Encoder.build``."""
        return cls(spec, options)

    @classmethod
    def check(cls, recipe: Recipe, options: Any) -> None:
        """See ``Encoder.check``: the network can be loaded, and no option of word encoders is set."""
        check_named(recipe.preset, options.name)
        text, vectors = TextOptions(), VectorOptions()
        settings = {
            f"text.{name}": (getattr(recipe.text, name), getattr(text, name)) for name in WORD_OPTIONS
        }
        for option in fields(vectors):
            settings[f"vectors.{option.name}"] = (getattr(recipe.vectors, option.name), option.default)
        for place, (value, default) in settings.items():
            if value != default:
                wanted = "the default: a pretrained encoder has its own tokenizer and vectors"
                raise InputError(recipe.preset, place=place, value=value, expected=wanted)

    @classmethod
    def source(cls, recipe: Recipe) -> str:
        """See ``Encoder.source``: the network."""
        return str(recipe.encoder.get("name", ""))

    @classmethod
    def init(cls, recipe: Recipe, options: Any, corpus: Corpus) -> Initialization:
        """See ``Encoder.init``: the tokenizer and the weights of the network that the recipe names."""
        pretrained = read_pretrained(options.name, options.layers)
        tokenizer = pretrained.tokenizer
        _check_limits(recipe, pretrained, cls.joint)
        backbone = {
            "network": pretrained.config,
            "pair": tokenizer.special_tokens()._asdict(),
            "prefix_length": tokenizer.prefix_length,
            "suffix_length": tokenizer.suffix_length,
        }

        def load_weights(ranker: nn.Module) -> int:
            for part in ranker.modules():
                if isinstance(part, Backbone):
                    part.network.load_state_dict(pretrained.weights)
            return len(tokenizer)

        spec = EncoderSpec(len(tokenizer), pretrained.size, backbone)
        return Initialization(tokenizer, recipe, spec, load_weights, pretrained.causal)

    def network(self) -> "Backbone":
        """The network with fresh weights."""
        assert self.spec.backbone is not None
        return Backbone(self.spec.backbone["network"], self.options)


class TransformerEncoder(PretrainedEncoder):
    """The states of a pretrained network, one per token, special tokens included."""

    def __init__(self, spec: EncoderSpec, options: BackboneOptions) -> None:
        super().__init__(spec, options)
        self.backbone = self.network()

    def forward(self, tokens: Ragged) -> Ragged:
        """See ``Encoder.forward``."""
        return tokens.with_values(self.backbone(tokens, tokens.row_numbers()))

    def inference_encoder(self, tokens: int | None = None) -> Encode:
        """See ``Encoder.inference_encoder``."""

        def encode(tokens: Ragged, rows: Tensor) -> Tensor:
            states: Tensor = self.backbone(tokens, rows)
            return states

        return encode


class CrossInput(PretrainedEncoder):
    """The token ids of a text, not encoded, for a pooling that reads question and answer together."""

    output_kind = "ids"
    joint = True

    def forward(self, tokens: Ragged) -> Ragged:
        """The ids themselves, values (N,) int64."""
        return tokens


class Backbone(nn.Module):
    """A pretrained network that computes a state for each token of a text."""

    def __init__(self, config: dict[str, Any], options: BackboneOptions) -> None:
        """A network with fresh weights.

        Args:
            config: the network's configuration (``Pretrained.config``).
            options: options of the encoder.

        Raises:
            AptoolError: ``transformers`` is not installed, or does not know such a network.
            InputError: the network has fewer layers than the options name, or its configuration leads to
                code that is not of ``transformers`` itself.
        """
        super().__init__()
        transformers = network_library()
        check_network_config(options.name or str(config.get("model_type")), config)
        try:
            described = transformers.AutoConfig.for_model(**config)
            self.network = bare_encoder(
                transformers.AutoModel.from_config(described, trust_remote_code=False)
            )
        except Exception as error:  # whatever a network of any kind can raise on a damaged configuration
            kind = config.get("model_type")
            raise AptoolError(
                f"model_type {shortened(kind)}: transformers cannot build this network: "
                f"{one_line(first_line(error))}"
            ) from error
        self.size: int = described.hidden_size
        self._pad = int(described.pad_token_id or 0)
        self._has_types = getattr(described, "type_vocab_size", 0) > 1
        self._precision = options.precision
        self._is_trained = options.tune != "none"
        self._takes_embeddings = "inputs_embeds" in signature(self.network.forward).parameters
        self._freeze(described.num_hidden_layers, options)
        if options.checkpointing and self._is_trained:
            _enable_checkpointing(self.network, options.name)

    def forward(self, tokens: Ragged, rows: Tensor, types: Tensor | None = None) -> Tensor:
        """States of tokens.

        Args:
            tokens: ids, values (N,) int64.
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
            places, offsets = tokens.rows(order), np.concatenate([[0], np.cumsum(tokens.sizes[order])])
            parts = []
            for texts, width in self._batches(tokens.sizes[order], share=training):
                some = places[offsets[texts.start] : offsets[texts.stop]]
                part = Ragged.of_sizes(tokens.values[some], tokens.sizes[order[texts]])
                states = self._encode_batch(
                    part,
                    width,
                    types=None if types is None else types[some],
                    embedded=None if embedded is None else embedded[some],
                )
                parts.append(states.float() if bf16 else states)
        index = torch.empty_like(places).index_copy_(0, places, tokens.row_numbers())
        return torch.cat(parts).index_select(0, index[rows])

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
        embedded: Tensor = self.network.get_input_embeddings()(ids)
        return embedded

    def _encode_batch(
        self, tokens: Ragged, width: int, types: Tensor | None, embedded: Tensor | None
    ) -> Tensor:
        """(N, c) states of the tokens of n texts that are padded to one width."""
        count, is_padded = len(tokens.sizes), len(tokens.values) < len(tokens.sizes) * width
        slots = tokens.slots(width) if is_padded else None

        def dense(values: Tensor, padding: int = 0) -> Tensor:
            """(n, T, ...) of values (N, ...)."""
            if slots is not None:
                filled = values.new_full((count * width, *values.shape[1:]), padding)
                values = filled.index_copy(0, slots, values)
            return values.view(count, width, *values.shape[1:])

        inputs = {}
        if slots is not None:
            inputs["attention_mask"] = dense(torch.ones_like(tokens.values))
        if embedded is None:
            inputs["input_ids"] = dense(tokens.values, self._pad)
        else:
            inputs["inputs_embeds"] = dense(embedded)
        if types is not None and self._has_types:
            inputs["token_type_ids"] = dense(types)
        states: Tensor = self.network(return_dict=True, **inputs).last_hidden_state.flatten(0, 1)
        return states if slots is None else states.index_select(0, slots)

    def _batches(self, sizes: np.ndarray, share: bool) -> list[tuple[slice, int]]:
        """Consecutive texts that go through the network together, and the width they are padded to.

        Args:
            sizes: (n,) tokens of each text, ascending.
            share: whether texts of different lengths share a batch where it costs little padding; without it
                nothing is padded.
        """
        kind = "cpu" if next(self.parameters()).device.type == "cpu" else "cuda"
        widths = _shared_widths(sizes, PADDING_PER_BATCH[kind]) if share else sizes
        batches = []
        ends = [*(np.flatnonzero(np.diff(widths)) + 1).tolist(), len(widths)]
        for begin, end in zip([0, *ends], ends, strict=False):
            width = int(widths[begin])
            most = max(1, TOKENS_PER_BATCH[kind] // width)
            batches += [(slice(at, min(at + most, end)), width) for at in range(begin, end, most)]
        return batches

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


def _check_limits(recipe: Recipe, pretrained: Pretrained, joint: bool) -> None:
    """Checks that texts of the recipe's greatest lengths fit into the network."""
    tokenizer, text = pretrained.tokenizer, recipe.text
    own, longest = tokenizer.prefix_length + tokenizer.suffix_length, pretrained.max_tokens
    pair = tokenizer.special_tokens()
    # A pair may have more special tokens than its two texts by themselves.
    extra = max(0, len(pair.before + pair.between + pair.after) - 2 * own)
    answer_limit = longest - text.max_question_tokens - extra if joint else longest
    for name, largest in (("max_question_tokens", longest), ("max_answer_tokens", answer_limit)):
        value = getattr(text, name)
        if not own + 1 <= value <= largest:
            wanted = f"{own + 1} to {largest}: {recipe.encoder['name']} takes {longest} tokens"
            raise InputError(recipe.preset, place=f"text.{name}", value=value, expected=wanted)


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
