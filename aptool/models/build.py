"""The ranker: encode both texts, pool their states, score the pair; its construction from a recipe.

``Ranker`` is the differentiable definition of a score; faster kernels are tested against it.
"""

import copy
import inspect
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, TypeAlias, final

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from aptool.config import Recipe, build_options
from aptool.environment import versions_of
from aptool.errors import InputError
from aptool.models.attention import AttentivePooling
from aptool.models.encoders import (
    BiLstmEncoder,
    CnnEncoder,
    Encode,
    Encoder,
    EncoderSpec,
    WordEncoder,
    WordVectorEncoder,
)
from aptool.models.features import COLUMNS, HEADS, Head, NoHead, PairFeatures, WordBags
from aptool.models.pooling import (
    SIMILARITIES,
    Cosine,
    JoinedPooling,
    MaxPooling,
    MeanPooling,
    Pooling,
    VectorPooling,
    orthonormal_projection,
)
from aptool.models.ragged import Ragged
from aptool.plugins import Registry, load_plugins, sources_of
from aptool.text.tokenizer import UNK, Tokens

# From the (P,) questions and (P,) answers of pairs to their features.
FeaturesOf: TypeAlias = Callable[[np.ndarray, np.ndarray], Tensor | None]


@final
class Ranker(nn.Module):
    """Scores s(q, a), usually the similarity of r_q and r_a (eq. 11)."""

    def __init__(
        self,
        encoder: Encoder,
        pooling: Pooling,
        dropout: float = 0.0,
        word_dropout: float = 0.0,
        *,
        projection: nn.Module | None = None,
        head: Head | None = None,
        features: PairFeatures | None = None,
    ) -> None:
        super().__init__()
        self.encoder = encoder  # token ids to states
        self.projection = projection  # of states (N, c), before pooling
        self.pooling = pooling  # states of a pair to one or several columns
        self.head = head if head is not None else NoHead(1, 0, NoHead.Options())  # columns to the score
        self.features = features  # further columns
        self.dropout = dropout
        self.word_dropout = word_dropout

    def forward(self, questions: Ragged, answers: Ragged, features: Tensor | None = None) -> Tensor:
        """(n,) scores of pairs, question i with answer i, from their token ids and features (n, F)."""
        return self.score_pairs(self.encode(questions), self.encode(answers), features)

    def encode(self, tokens: Ragged) -> Ragged:
        """Compute the states of texts, values (N, c), with dropout of words and features in training."""
        if self.word_dropout and self.training:
            dropped = torch.rand(len(tokens.values), device=tokens.values.device) < self.word_dropout
            tokens = tokens.with_values(tokens.values.masked_fill(dropped, UNK))
        states: Ragged = self.encoder(tokens)
        if self.projection is not None:
            states = states.with_values(self.projection(states.values))
        if not self.dropout:
            return states
        return states.with_values(F.dropout(states.values, self.dropout, self.training))

    @property
    def reads_table(self) -> bool:
        """Whether inference looks up the states in a table."""
        return self.projection is None and self.encoder.reads_table

    def inference_encoder(self, tokens: int | None = None) -> Encode:
        """Return the encoder's ``inference_encoder``, followed by the projection."""
        encode, projection = self.encoder.inference_encoder(tokens), self.projection
        if projection is None:
            return encode

        def encode_projected(tokens: Ragged, rows: Tensor) -> Tensor:
            states: Tensor = projection(encode(tokens, rows))
            return states

        return encode_projected

    def in_bf16(self) -> "Ranker":
        """Return a ranker that encodes texts in bf16 and shares head and features with this ranker."""
        projection = copy.deepcopy(self.projection)
        if projection is not None:
            projection.bfloat16()
        encoder = self.encoder.in_bf16()
        return Ranker(encoder, self.pooling, projection=projection, head=self.head, features=self.features)

    def score_pairs(self, questions: Ragged, answers: Ragged, features: Tensor | None = None) -> Tensor:
        """(n,) scores of pairs from their states and (n, F) features."""
        return self.from_columns(self.pooling.score_pairs(questions, answers), features)

    def score_matrix(self, questions: Ragged, answers: Ragged, features: Tensor | None = None) -> Tensor:
        """(n, k) scores of all pairs, from states and the features (n · k, F), question by question."""
        columns = self.pooling.score_matrix(questions, answers)
        return self.from_columns(columns.flatten(0, 1), features).view(columns.shape[:2])

    def from_columns(self, columns: Tensor, features: Tensor | None) -> Tensor:
        """(n,) scores from the columns (n,) or (n, C) of the pooling and the features (n, F)."""
        columns = columns.view(len(columns), -1)
        return self.head(columns if features is None else torch.cat([columns, features], dim=1))

    def features_of(self, questions: Tokens, answers: Tokens) -> FeaturesOf:
        """Return a function that computes (P, F) features of pairs of these texts; None without features.

        The words of each text are counted once.
        """
        if self.features is None:
            return lambda pair_question, pair_answer: None
        return partial(self.features, WordBags.of(questions), WordBags.of(answers))


# ``encoder.type`` of a recipe.
ENCODERS = Registry[Encoder](
    Encoder,
    {
        "cnn": CnnEncoder,
        "bilstm": BiLstmEncoder,
        "transformer": "aptool.models.transformer:TransformerEncoder",
        "words": WordVectorEncoder,
    },
)

# ``pooling.type`` of a recipe.
POOLINGS = Registry[Pooling](
    Pooling,
    {
        "max": MaxPooling,
        "attentive": AttentivePooling,
        "mean": MeanPooling,
        "maxsim": "aptool.models.matching:MaxSimPooling",
        "mean-maxsim": "aptool.models.matching:MeanMaxSimPooling",
        "one_way": "aptool.models.papers:OneWayPooling",
        "abcnn": "aptool.models.papers:AbcnnPooling",
        "joint": "aptool.models.papers:JointPooling",
        "alignment": "aptool.models.papers:AlignmentPooling",
    },
)

# By section of a recipe.
_REGISTRIES: dict[str, Mapping[str, Any]] = {
    "encoder": ENCODERS,
    "pooling": POOLINGS,
    "similarity": SIMILARITIES,
    "head": HEADS,
}


def build_ranker(
    recipe: Recipe, vocabulary_size: int, dim: int, network: dict[str, Any] | None = None
) -> Ranker:
    """Build the system of a recipe with new weights; the other arguments are fields of ``EncoderSpec``."""
    encoder_class, encoder_options = component(recipe, "encoder")
    pooling_class, pooling_options = component(recipe, "pooling")
    similarity_class, similarity_options = component(recipe, "similarity")
    encoder = encoder_class(EncoderSpec(vocabulary_size, dim, network), encoder_options)
    projected = getattr(pooling_options, "dim", 0)
    if projected > encoder.size:
        expected = f"at most {encoder.size}, the features of a state"
        raise _invalid(recipe, "pooling.dim", projected, expected)
    pooling = pooling_class(projected or encoder.size, pooling_options)
    if isinstance(pooling, VectorPooling):
        pooling.similarity = similarity_class(projected or encoder.size, similarity_options)
    head_class, head_options = component(recipe, "head")
    if getattr(head_options, "vectors", False) and isinstance(pooling, VectorPooling):
        pooling = JoinedPooling(pooling, projected or encoder.size)
    columns = _columns_of(recipe)
    return Ranker(
        encoder,
        pooling,
        recipe.training.dropout,
        recipe.training.word_dropout,
        projection=orthonormal_projection(encoder.size, projected) if projected else None,
        head=head_class(pooling.columns, len(columns), head_options),
        features=PairFeatures(vocabulary_size, columns) if columns else None,
    )


def check_recipe(recipe: Recipe) -> None:
    """Raise if a system cannot be built or trained by a recipe; called before any work."""
    encoder_class, options = component(recipe, "encoder")
    pooling_class, _ = component(recipe, "pooling")
    similarity_class, _ = component(recipe, "similarity")
    head_class, head_options = component(recipe, "head")
    columns = _columns_of(recipe)
    if not issubclass(pooling_class, VectorPooling) and similarity_class is not Cosine:
        expected = f"none: {recipe.pooling['type']} pooling has its own similarity"
        raise _invalid(recipe, "similarity.type", recipe.similarity["type"], expected)
    if columns and not issubclass(encoder_class, WordEncoder):
        expected = "none: pair features need an encoder over word vectors"
        raise _invalid(recipe, "features.columns", recipe.features.columns, expected)
    if head_class is NoHead and (columns or pooling_class.many_columns):
        expected = f"one of {', '.join(name for name in HEADS if name != 'none')}, to join several columns"
        raise _invalid(recipe, "head.type", "none", expected)
    if getattr(head_options, "vectors", False) and not issubclass(pooling_class, VectorPooling):
        expected = f"false with {recipe.pooling['type']} pooling, which has no two vectors"
        raise _invalid(recipe, "head.vectors", True, expected)
    training = recipe.training
    if training.word_dropout and not issubclass(encoder_class, WordEncoder):
        expected = "0: only encoders over word vectors can drop words"
        raise _invalid(recipe, "training.word_dropout", training.word_dropout, expected)
    if training.average_epochs and training.patience:
        expected = "0 with training.average_epochs, which needs the last epochs"
        raise _invalid(recipe, "training.patience", training.patience, expected)
    if not (training.sampled_negatives or training.in_batch):
        expected = "1 or more, or training.in_batch=true"
        raise _invalid(recipe, "training.sampled_negatives", 0, expected)
    if training.negatives == "all" and training.mining_interval == 1:
        expected = "0 (once per epoch) or more than 1 with negatives=all, which scores every pair"
        raise _invalid(recipe, "training.mining_interval", 1, expected)
    if issubclass(encoder_class, WordEncoder):
        with torch.device("meta"):  # without memory
            build_ranker(recipe, 1, recipe.vectors.dim)  # raises for sizes that do not match
    encoder_class.check(recipe, options)


def _invalid(recipe: Recipe, option: str, value: object, expected: str) -> InputError:
    return InputError(recipe.preset, position=option, value=value, expected=expected)


def code_of(recipe: Recipe) -> dict[str, str]:
    """Return the code that decides the scores of a recipe: versions of libraries and hashes of plugins."""
    kinds = [registry.get(getattr(recipe, section)["type"]) for section, registry in _REGISTRIES.items()]
    libraries = ["torch", "tokenizers"]
    if not (inspect.isclass(kinds[0]) and issubclass(kinds[0], WordEncoder)):
        libraries.append("transformers")
    columns = [COLUMNS.get(name) for name in recipe.features.columns.split()]
    return versions_of(*libraries) | sources_of(kind for kind in (*kinds, *columns) if kind is not None)


def _columns_of(recipe: Recipe) -> tuple[str, ...]:
    """Return the names of the pair features."""
    columns = tuple(recipe.features.columns.split())
    for name in columns:
        if name not in COLUMNS:
            raise _invalid(recipe, "features.columns", name, f"some of {', '.join(COLUMNS)}")
    return columns


def component(recipe: Recipe, section: str) -> tuple[Any, Any]:
    """Return the class that a section of a recipe names, and its options."""
    registry, table = _REGISTRIES[section], getattr(recipe, section)
    kind = table["type"]
    if kind not in registry:
        load_plugins()
    if kind not in registry:
        expected = f"one of {', '.join(registry)}"
        raise _invalid(recipe, f"{section}.type", kind, expected)
    options = {key: value for key, value in table.items() if key != "type"}
    return registry[kind], build_options(registry[kind].Options, options, recipe.preset, f"{section}.")
