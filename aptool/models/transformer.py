"""Encoders over a pretrained network."""

from collections.abc import Callable
from dataclasses import fields
from typing import Any, Self

from torch import Tensor, nn
from typing_extensions import override

from aptool.config import Recipe, TextOptions, VectorOptions
from aptool.errors import InputError
from aptool.models.backbone import Backbone, BackboneOptions
from aptool.models.encoders import Encode, Encoder
from aptool.models.initialization import EncoderSpec, Initialization, TrainingTexts
from aptool.models.pretrained import check_name, new_network, open_network, structure_of
from aptool.models.ragged import Ragged
from aptool.text.tokenizer import SubwordTokenizer

# Options of ``text`` that apply only to word tokenizers.
WORD_OPTIONS = ("lowercase", "words", "min_count")


class TransformerEncoder(Encoder):
    """The states of a pretrained network, one per token, including special tokens.

    The tokenizer and the initial weights are those of the network.
    """

    Options = BackboneOptions
    Tokenizer = SubwordTokenizer

    def __init__(self, spec: EncoderSpec, options: BackboneOptions) -> None:
        super().__init__()
        assert spec.network is not None
        self.spec = spec
        self.size = spec.dim
        self.options = options
        self.backbone = Backbone(new_network(spec.network), options)
        # Returns the states (N, c) of the texts of a training; None computes them.
        self.state_cache: Callable[[Ragged], Tensor] | None = None

    @classmethod
    @override
    def build(cls, spec: EncoderSpec, options: Any) -> Self:
        return cls(spec, options)

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
    @override
    def source(cls, recipe: Recipe) -> str:
        return str(recipe.encoder.get("name", ""))

    @classmethod
    @override
    def init(cls, recipe: Recipe, options: Any, texts: TrainingTexts) -> Initialization:
        opened = open_network(options.name)
        tokenizer = SubwordTokenizer(opened.tokenizer.backend_tokenizer)
        special = tokenizer.prefix_length + tokenizer.suffix_length
        for name in ("max_question_tokens", "max_answer_tokens"):
            value = getattr(recipe.text, name)
            if not special + 1 <= value <= opened.max_tokens:
                expected = (
                    f"{special + 1} to {opened.max_tokens}: {options.name} takes {opened.max_tokens} tokens"
                )
                raise InputError(recipe.preset, position=f"text.{name}", value=value, expected=expected)

        def load_weights(ranker: nn.Module) -> int:
            for part in ranker.modules():
                if isinstance(part, Backbone):
                    part.network.load_state_dict(opened.network.state_dict())
            return len(tokenizer)

        spec = EncoderSpec(len(tokenizer), opened.network.config.hidden_size, structure_of(opened.network))
        return Initialization(tokenizer, recipe, spec, load_weights)

    @property
    @override
    def is_frozen(self) -> bool:
        return self.options.tune == "none" and self.options.precision == "fp32"

    @override
    def forward(self, tokens: Ragged) -> Ragged:
        states = self.all_states if self.state_cache is None else self.state_cache
        return tokens.with_values(states(tokens))

    @override
    def inference_encoder(self, tokens: int | None = None) -> Encode:
        if type(self) is not TransformerEncoder:  # a subclass has its own definition
            return super().inference_encoder(tokens)

        def encode(tokens: Ragged, rows: Tensor) -> Tensor:
            if self.state_cache is not None:
                return self.state_cache(tokens).index_select(0, rows)
            states: Tensor = self.backbone(tokens, rows)
            return states

        return encode

    def all_states(self, tokens: Ragged) -> Tensor:
        """(N, c) states of all tokens, computed by the network without the cache."""
        states: Tensor = self.backbone(tokens, tokens.row_numbers())
        return states
