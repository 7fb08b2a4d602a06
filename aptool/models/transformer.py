"""Encoders over a pretrained network: states of a single text, or token ids for a cross-encoder."""

from collections.abc import Callable
from dataclasses import fields
from typing import Any, Self

from torch import Tensor, nn
from typing_extensions import override

from aptool.config import Recipe, TextOptions, VectorOptions
from aptool.errors import InputError
from aptool.models.backbone import Backbone, BackboneOptions, fresh_network
from aptool.models.encoders import Encode, Encoder
from aptool.models.initialization import Corpus, EncoderSpec, Initialization
from aptool.models.pretrained import Pretrained, check_named, read_pretrained
from aptool.models.ragged import Ragged
from aptool.text.subwords import SubwordTokenizer

# Options of ``text`` that apply only to word tokenizers.
WORD_OPTIONS = ("lowercase", "min_count")


class PretrainedEncoder(Encoder):
    """An encoder with the tokenizer and the weights of a pretrained network."""

    Options = BackboneOptions
    Tokenizer = SubwordTokenizer
    joint = False  # the network reads a question and an answer as one text

    def __init__(self, spec: EncoderSpec, options: BackboneOptions) -> None:
        super().__init__()
        self.spec = spec
        self.size = spec.dim
        self.options = options

    @classmethod
    @override
    def build(cls, spec: EncoderSpec, options: Any) -> Self:
        return cls(spec, options)

    @classmethod
    @override
    def check(cls, recipe: Recipe, options: Any) -> None:
        check_named(recipe.preset, options.name)
        text, vectors = TextOptions(), VectorOptions()
        settings = {
            f"text.{name}": (getattr(recipe.text, name), getattr(text, name)) for name in WORD_OPTIONS
        }
        for option in fields(vectors):
            settings[f"vectors.{option.name}"] = (getattr(recipe.vectors, option.name), option.default)
        for place, (value, default) in settings.items():
            if value != default:
                expected = "the default: a pretrained encoder has its own tokenizer and vectors"
                raise InputError(recipe.preset, place=place, value=value, expected=expected)

    @classmethod
    @override
    def source(cls, recipe: Recipe) -> str:
        return str(recipe.encoder.get("name", ""))

    @classmethod
    @override
    def init(cls, recipe: Recipe, options: Any, corpus: Corpus) -> Initialization:
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

    def network(self) -> Backbone:
        """Build the network with fresh weights."""
        assert self.spec.backbone is not None
        return Backbone(fresh_network(self.spec.backbone["network"], self.options.name), self.options)


class TransformerEncoder(PretrainedEncoder):
    """The states of a pretrained network, one per token, including special tokens.

    Attributes:
        memory: a cache; returns the states (N, c) of texts, and calls the given function for missing states.
    """

    def __init__(self, spec: EncoderSpec, options: BackboneOptions, backbone: Backbone | None = None) -> None:
        super().__init__(spec, options)
        self.backbone = backbone if backbone is not None else self.network()
        self.memory: Callable[[Ragged, Callable[[Ragged], Tensor]], Tensor] | None = None

    @property
    def is_frozen(self) -> bool:
        """Whether training does not change the states of a text."""
        return self.options.tune == "none" and self.options.precision == "fp32"

    @override
    def forward(self, tokens: Ragged) -> Ragged:
        if self.memory is not None:
            return tokens.with_values(self.memory(tokens, self.all_states))
        return tokens.with_values(self.all_states(tokens))

    @override
    def inference_encoder(self, tokens: int | None = None) -> Encode:
        def encode(tokens: Ragged, rows: Tensor) -> Tensor:
            if self.memory is not None:
                return self.memory(tokens, self.all_states).index_select(0, rows)
            states: Tensor = self.backbone(tokens, rows)
            return states

        return encode

    def all_states(self, tokens: Ragged) -> Tensor:
        """(N, c) states of all tokens, computed by the network."""
        states: Tensor = self.backbone(tokens, tokens.row_numbers())
        return states


class CrossInput(PretrainedEncoder):
    """The token ids of a text, for a pooling that reads question and answer together."""

    output_kind = "ids"
    joint = True

    def forward(self, tokens: Ragged) -> Ragged:
        """Return the ids, values (N,) int64."""
        return tokens


def _check_limits(recipe: Recipe, pretrained: Pretrained, joint: bool) -> None:
    """Raise unless texts of the recipe's maximum lengths fit into the network."""
    tokenizer, text = pretrained.tokenizer, recipe.text
    special, longest = tokenizer.prefix_length + tokenizer.suffix_length, pretrained.max_tokens
    pair = tokenizer.special_tokens()
    # A pair may have more special tokens than two single texts.
    extra = max(0, len(pair.before + pair.between + pair.after) - 2 * special)
    answer_limit = longest - text.max_question_tokens - extra if joint else longest
    for name, largest in (("max_question_tokens", longest), ("max_answer_tokens", answer_limit)):
        value = getattr(text, name)
        if not special + 1 <= value <= largest:
            expected = f"{special + 1} to {largest}: {recipe.encoder['name']} takes {longest} tokens"
            raise InputError(recipe.preset, place=f"text.{name}", value=value, expected=expected)
