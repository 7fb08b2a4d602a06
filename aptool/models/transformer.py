"""Encoders over a pretrained network, and cross-encoders.

A cross-encoder reads question and answer as one text (Nogueira and Cho, 2019). Nothing can be precomputed per
text: each pair is a forward pass of the network.
"""

import copy
from abc import abstractmethod
from collections.abc import Callable
from dataclasses import fields
from itertools import chain
from typing import Any, Literal, Self

import numpy as np
import torch
from torch import Tensor, nn
from typing_extensions import override

from aptool.config import Recipe, TextOptions, VectorOptions
from aptool.errors import InputError
from aptool.models.backbone import Backbone, BackboneOptions, Classifier, lower_precision
from aptool.models.device import send
from aptool.models.encoders import Encode, Encoder
from aptool.models.initialization import EncoderSpec, Initialization, TrainingTexts
from aptool.models.pooling import Pooling, scores_of_outputs
from aptool.models.pretrained import check_name, new_network, open_network, structure_of
from aptool.models.ragged import Ragged
from aptool.plugins import redefines
from aptool.text.subwords import SpecialTokens, SubwordTokenizer

# Options of ``text`` that apply only to word tokenizers.
WORD_OPTIONS = ("lowercase", "words", "min_count")


# The text of a pair that truncation shortens.
PairTruncation = Literal["longest_first", "only_first", "only_second"]


class PretrainedEncoder(Encoder):
    """An encoder with the tokenizer and the weights of a pretrained network."""

    Options = BackboneOptions
    Tokenizer = SubwordTokenizer

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
        _check_limits(recipe, tokenizer, opened.max_tokens)
        backbone = backbone_of(opened.network, tokenizer, tokenizer.special_tokens())

        def load_weights(ranker: nn.Module) -> int:
            for part in ranker.modules():
                if isinstance(part, Backbone):
                    part.network.load_state_dict(opened.network.state_dict())
            return len(tokenizer)

        spec = EncoderSpec(len(tokenizer), opened.network.config.hidden_size, backbone)
        return Initialization(tokenizer, recipe, spec, load_weights, opened.causal)

    def network(self) -> Backbone:
        """Build the network with new weights."""
        assert self.spec.backbone is not None
        backbone = Backbone(new_network(self.spec.backbone["network"], self.options.name), self.options)
        backbone.layer = self.spec.backbone.get("layer")
        forms = self.spec.backbone.get("forms", {"roles": {}})["roles"].values()
        backbone.has_fillers = any(form["filler"] >= 0 and not form["attend_filler"] for form in forms)
        return backbone


def backbone_of(
    network: Any, tokenizer: SubwordTokenizer, pair: SpecialTokens, **more: Any
) -> dict[str, Any]:
    """Describe a network and its special tokens, as in ``config.json``; ``more`` has further entries."""
    return {
        "network": structure_of(network),
        "pair": pair._asdict(),
        "prefix_length": tokenizer.prefix_length,
        "suffix_length": tokenizer.suffix_length,
        **more,
    }


class TransformerEncoder(PretrainedEncoder):
    """The states of a pretrained network, one per token, including special tokens."""

    def __init__(self, spec: EncoderSpec, options: BackboneOptions, backbone: Backbone | None = None) -> None:
        super().__init__(spec, options)
        self.backbone = backbone if backbone is not None else self.network()
        # Returns the states (N, c) of the texts of a training; None computes them.
        self.state_cache: Callable[[Ragged], Tensor] | None = None

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
        if redefines(self, TransformerEncoder, "forward", "all_states"):
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


class CrossInput(PretrainedEncoder):
    """The encoder of a cross-encoder: it returns token ids, and the pooling runs the network."""

    output_kind = "ids"

    @override
    def forward(self, tokens: Ragged) -> Ragged:
        return tokens


class PairPooling(Pooling):
    """A pooling that reads question and answer as one text."""

    kernel = "cross"
    input_kind = "ids"
    _special_ids: Tensor  # (before + between + after,) the special tokens of a pair
    _segment_types: Tensor  # (5,) token types of the five segments of a pair

    def __init__(self, backbone: dict[str, Any]) -> None:
        """Prepare to join texts, given the result of ``backbone_of``."""
        super().__init__()
        special = SpecialTokens(**backbone["pair"])
        self._prefix_length, self._suffix_length = backbone["prefix_length"], backbone["suffix_length"]
        self._max_tokens: int | None = backbone.get("max_tokens")  # of a pair
        self._truncation: PairTruncation = backbone.get("truncation", "longest_first")
        self._truncates_left = bool(backbone.get("truncates_left"))
        parts = [special.before, special.between, special.after]
        self._special_counts = [len(ids) for ids in parts]
        special_ids = torch.tensor(list(chain.from_iterable(parts)), dtype=torch.int64)
        types = torch.tensor(special.types, dtype=torch.int64)
        self.register_buffer("_special_ids", special_ids, persistent=False)
        self.register_buffer("_segment_types", types, persistent=False)

    @abstractmethod
    def score_joined(self, ids: Ragged, types: Tensor) -> Tensor:
        """(n,) fp32 scores of pairs from the output of ``join_pairs``."""

    @override
    def score_pairs(self, questions: Ragged, answers: Ragged) -> Tensor:
        return self.score_joined(*self.join_pairs(questions, answers))

    def join_pairs(self, questions: Ragged, answers: Ragged) -> tuple[Ragged, Tensor]:
        """Join pairs; return n sequences of token ids and the (N,) int64 token types.

        The special tokens around each text are replaced by the special tokens of a pair.
        """
        before, between, after = self._special_counts
        around = self._prefix_length + self._suffix_length
        length_q, length_a = questions.sizes - around, answers.sizes - around  # (n,)
        removed_q = removed_a = 0 * length_q
        if self._max_tokens is not None:
            room = self._max_tokens - len(self._special_ids)
            kept_q, kept_a = truncate_pairs(length_q, length_a, room, self._truncation)
            if self._truncates_left:
                removed_q, removed_a = length_q - kept_q, length_a - kept_a
            length_q, length_a = kept_q, kept_a
        # Five segments per pair: special tokens, question, special tokens, answer, special tokens.
        source = torch.cat([self._special_ids, questions.values, answers.values])
        first_q = before + between + after
        first_a = first_q + len(questions.values)
        before_q, before_a = first_q + self._prefix_length, first_a + self._prefix_length
        begin_q = before_q + np.cumsum(questions.sizes) - questions.sizes + removed_q
        begin_a = before_a + np.cumsum(answers.sizes) - answers.sizes + removed_a
        ones = np.ones_like(length_q)
        starts = np.stack([0 * ones, begin_q, before * ones, begin_a, (before + between) * ones], 1)
        counts = np.stack([before * ones, length_q, between * ones, length_a, after * ones], 1)  # (n, 5)
        segments = Ragged.of_sizes(source.new_empty(int(counts.sum())), counts.reshape(-1))
        shift = send(starts.reshape(-1), source.device) - segments.offsets[:-1]
        rows = segments.row_numbers() + segments.spread(shift)
        types = segments.spread(self._segment_types.repeat(len(length_q)))
        return Ragged.of_sizes(source[rows], counts.sum(1)), types


def truncate_pairs(
    first: np.ndarray, second: np.ndarray, room: int, strategy: PairTruncation
) -> tuple[np.ndarray, np.ndarray]:
    """Truncate the lengths of the texts of pairs to ``room`` tokens, by a strategy of ``tokenizers``."""
    if strategy == "longest_first":
        return longest_first(first, second, room)
    if strategy == "only_first":
        second = np.minimum(second, room)
        return np.minimum(first, room - second), second
    first = np.minimum(first, room)
    return first, np.minimum(second, room - first)


def longest_first(first: np.ndarray, second: np.ndarray, room: int) -> tuple[np.ndarray, np.ndarray]:
    """Truncate the lengths of the texts of pairs to ``room`` tokens in total, as the library ``tokenizers``.

    The shorter text stays complete if truncating the longer text suffices. Otherwise each text gets half of
    ``room``, and the longer text the odd token.
    """
    short, long = np.minimum(first, second), np.maximum(first, second)
    cut = np.where(short > room, short, np.minimum(long, np.maximum(short, room - short)))
    both_cut = short + cut > room
    short, long = np.where(both_cut, room // 2, short), np.where(both_cut, room // 2 + room % 2, cut)
    swapped = first > second
    return np.where(swapped, long, short), np.where(swapped, short, long)


class HeadPooling(PairPooling):
    """The score of a pair is the output of the network's classification head."""

    def __init__(self, network: Any, backbone: dict[str, Any], activation: str, relevant: int = 1) -> None:
        super().__init__(backbone)
        self.classifier = Classifier(network)
        self.activation = activation
        self.relevant = relevant

    @override
    def score_joined(self, ids: Ragged, types: Tensor) -> Tensor:
        return scores_of_outputs(self.classifier(ids, types), self.activation, self.relevant)

    @override
    def in_bf16(self) -> "HeadPooling":
        pooling = copy.deepcopy(self)
        lower_precision(pooling.classifier.network)
        return pooling


def _check_limits(recipe: Recipe, tokenizer: SubwordTokenizer, max_tokens: int) -> None:
    """Raise unless texts of the maximum lengths fit into the network."""
    special = tokenizer.prefix_length + tokenizer.suffix_length
    for name in ("max_question_tokens", "max_answer_tokens"):
        value = getattr(recipe.text, name)
        if not special + 1 <= value <= max_tokens:
            expected = f"{special + 1} to {max_tokens}: {recipe.encoder['name']} takes {max_tokens} tokens"
            raise InputError(recipe.preset, position=f"text.{name}", value=value, expected=expected)
