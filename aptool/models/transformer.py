"""Encoders on a pretrained network: texts read one by one, or their pieces for a pooling that reads pairs."""

from dataclasses import fields
from typing import Any, Self

from torch import Tensor, nn

from aptool.config import Recipe, TextOptions, VectorOptions
from aptool.errors import InputError
from aptool.models.backbone import Backbone, BackboneOptions
from aptool.models.encoder import Corpus, Encode, Encoder, Initialization, Shape
from aptool.models.pretrained import check_named, read_pretrained
from aptool.models.ragged import Ragged
from aptool.text.subwords import SubwordTokenizer

# What of a text's options means nothing where a network has its own tokenizer.
OF_WORDS = ("lowercase", "min_count")


class PretrainedEncoder(Encoder):
    """What encoders share that take their tokenizer and their weights from a pretrained network."""

    Options = BackboneOptions
    Tokenizer = SubwordTokenizer
    together = False  # whether the network reads a question and an answer as one text

    def __init__(self, shape: Shape, options: BackboneOptions) -> None:
        super().__init__()
        self.shape = shape
        self.size = shape.dim
        self.options = options

    @classmethod
    def built(cls, shape: Shape, options: Any) -> Self:
        """See ``Encoder.built``."""
        return cls(shape, options)

    @classmethod
    def check(cls, recipe: Recipe, options: Any) -> None:
        """See ``Encoder.check``: a network is named and can be loaded, and nothing is asked of words."""
        check_named(recipe.preset, options.name)
        text, vectors = TextOptions(), VectorOptions()
        asked = {f"text.{name}": (getattr(recipe.text, name), getattr(text, name)) for name in OF_WORDS}
        for option in fields(vectors):
            asked[f"vectors.{option.name}"] = (getattr(recipe.vectors, option.name), option.default)
        for place, (value, default) in asked.items():
            if value != default:
                wanted = "no change: a pretrained encoder has its own tokenizer and vectors"
                raise InputError(recipe.preset, place=place, value=value, expected=wanted)

    @classmethod
    def source(cls, recipe: Recipe) -> str:
        """See ``Encoder.source``: the network."""
        return str(recipe.encoder.get("name", ""))

    @classmethod
    def init(cls, recipe: Recipe, options: Any, corpus: Corpus) -> Initialization:
        """See ``Encoder.init``: the tokenizer and the weights of the network that is named."""
        found = read_pretrained(options.name, options.layers)
        tokenizer, text, pair = found.tokenizer, recipe.text, found.tokenizer.special_tokens()
        own, most = tokenizer.head + tokenizer.tail, found.longest
        # A pair may have more marks around it than its two texts have by themselves.
        more = max(0, len(pair.before + pair.between + pair.after) - 2 * own)
        limits = {
            "text.max_question_tokens": (text.max_question_tokens, most),
            "text.max_answer_tokens": (
                text.max_answer_tokens,
                most - text.max_question_tokens - more if cls.together else most,
            ),
        }
        for place, (value, largest) in limits.items():
            if not own + 1 <= value <= largest:
                wanted = f"{own + 1} to {largest}: {options.name} takes {most} tokens"
                raise InputError(recipe.preset, place=place, value=value, expected=wanted)
        backbone = {
            "network": found.config,
            "pair": pair._asdict(),
            "head": tokenizer.head,
            "tail": tokenizer.tail,
        }

        def load_weights(ranker: nn.Module) -> int:
            for part in ranker.modules():
                if isinstance(part, Backbone):
                    part.network.load_state_dict(found.weights)
            return len(tokenizer)

        return Initialization(
            tokenizer, recipe, Shape(len(tokenizer), found.size, backbone), load_weights, found.causal
        )

    def network(self) -> Backbone:
        """The network with fresh weights."""
        assert self.shape.backbone is not None
        return Backbone(self.shape.backbone["network"], self.options)


class TransformerEncoder(PretrainedEncoder):
    """The states of a pretrained network, one for each piece and for each mark around the text."""

    def __init__(self, shape: Shape, options: BackboneOptions) -> None:
        super().__init__(shape, options)
        self.backbone = self.network()

    def forward(self, tokens: Ragged) -> Ragged:
        """See ``Encoder.forward``."""
        return tokens.with_values(self.backbone(tokens, Ragged.of_lengths(tokens.lengths).values))

    def inference_encoder(self, tokens: int | None = None) -> Encode:
        """See ``Encoder.inference_encoder``."""

        def encode(tokens: Ragged, rows: Tensor) -> Tensor:
            states: Tensor = self.backbone(tokens, rows)
            return states

        return encode


class CrossInput(PretrainedEncoder):
    """The pieces of a text, not yet read: for a pooling that reads question and answer together."""

    output_kind = "ids"
    together = True

    def forward(self, tokens: Ragged) -> Ragged:
        """See ``Encoder.forward``: the ids, values (N,) int64."""
        return tokens
