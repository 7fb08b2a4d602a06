"""Construction of systems from recipes: registries of components, checks of recipes, and rankers."""

import inspect
from collections.abc import Mapping
from typing import Any, NamedTuple

import torch

from aptool.config import Recipe, build_options
from aptool.environment import versions_of
from aptool.errors import InputError
from aptool.models.attention import AttentivePooling
from aptool.models.encoders import BiLstmEncoder, CnnEncoder, Encoder, WordEncoder, WordVectorEncoder
from aptool.models.features import COLUMNS, HEADS, NoHead, PairFeatures
from aptool.models.initialization import EncoderSpec, TrainingTexts
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
from aptool.models.ranker import Ranker
from aptool.plugins import Registry, load_plugins, sources_of
from aptool.text.tokenizer import TextTokenizer, WordTokenizer

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


class NewSystem(NamedTuple):
    """A system before training."""

    ranker: Ranker
    tokenizer: TextTokenizer
    recipe: Recipe  # its ``vectors.dim`` is the dimension of the vectors that were read
    initialized: int  # number of tokens with initial vectors


def build_ranker(
    recipe: Recipe, vocabulary_size: int, dim: int, network: dict[str, Any] | None = None
) -> Ranker:
    """Build the system of a recipe with new weights; the other arguments are fields of ``EncoderSpec``."""
    encoder_class, encoder_options = _component(recipe, "encoder")
    pooling_class, pooling_options = _component(recipe, "pooling")
    similarity_class, similarity_options = _component(recipe, "similarity")
    encoder = encoder_class(EncoderSpec(vocabulary_size, dim, network), encoder_options)
    projected = getattr(pooling_options, "dim", 0)
    if projected > encoder.size:
        expected = f"at most {encoder.size}, the features of a state"
        raise _invalid(recipe, "pooling.dim", projected, expected)
    pooling = pooling_class(projected or encoder.size, pooling_options)
    if isinstance(pooling, VectorPooling):
        pooling.similarity = similarity_class(projected or encoder.size, similarity_options)
    head_class, head_options = _component(recipe, "head")
    if head_class.joins_vectors(head_options) and isinstance(pooling, VectorPooling):
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
    encoder_class, options = _component(recipe, "encoder")
    pooling_class, _ = _component(recipe, "pooling")
    similarity_class, _ = _component(recipe, "similarity")
    head_class, head_options = _component(recipe, "head")
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
    if head_class.joins_vectors(head_options) and not issubclass(pooling_class, VectorPooling):
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


def encoder_type(recipe: Recipe) -> type[Encoder]:
    """Return the class of a recipe's encoder."""
    return _component(recipe, "encoder")[0]


def code_of(recipe: Recipe) -> dict[str, str]:
    """Return the code that decides the scores of a recipe: versions of libraries and hashes of plugins."""
    kinds = [registry.get(getattr(recipe, section)["type"]) for section, registry in _REGISTRIES.items()]
    libraries = ["torch", "tokenizers"]
    if not (inspect.isclass(kinds[0]) and issubclass(kinds[0], WordEncoder)):
        libraries.append("transformers")
    columns = [COLUMNS.get(name) for name in recipe.features.columns.split()]
    return versions_of(*libraries) | sources_of(kind for kind in (*kinds, *columns) if kind is not None)


def initialize(recipe: Recipe, texts: TrainingTexts) -> NewSystem:
    """Build a new system with its initial weights."""
    encoder_class, options = _component(recipe, "encoder")
    prepared = encoder_class.prepare(recipe, options, texts)
    ranker = build_ranker(prepared.recipe, *prepared.spec)
    initialized = ranker.encoder.load(prepared)
    return new_system(ranker, prepared.tokenizer, prepared.recipe, initialized, texts)


def new_system(
    ranker: Ranker, tokenizer: TextTokenizer, recipe: Recipe, initialized: int, texts: TrainingTexts
) -> NewSystem:
    """Return a system with initial weights; the pair features learn the words of the training texts."""
    if ranker.features is not None:
        tokenizer.identify_words = True
        assert isinstance(tokenizer, WordTokenizer)
        ranker.features.learn(tokenizer, texts.train)
    return NewSystem(ranker, tokenizer, recipe, initialized)


def _columns_of(recipe: Recipe) -> tuple[str, ...]:
    """Return the names of the pair features."""
    columns = tuple(recipe.features.columns.split())
    for name in columns:
        if name not in COLUMNS:
            raise _invalid(recipe, "features.columns", name, f"some of {', '.join(COLUMNS)}")
    return columns


def _component(recipe: Recipe, section: str) -> tuple[Any, Any]:
    """Return the class named by a section of a recipe, and its options."""
    registry, table = _REGISTRIES[section], getattr(recipe, section)
    kind = table["type"]
    if kind not in registry:
        load_plugins()
    if kind not in registry:
        expected = f"one of {', '.join(registry)}"
        raise _invalid(recipe, f"{section}.type", kind, expected)
    options = {key: value for key, value in table.items() if key != "type"}
    return registry[kind], build_options(registry[kind].Options, options, recipe.preset, f"{section}.")
