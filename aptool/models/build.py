"""Systems from recipes: what recipes can name, what goes with what, and a ranker with fresh weights."""

from typing import Any

from torch import nn

from aptool.config import Recipe
from aptool.errors import InputError
from aptool.models.attention import AttentivePooling
from aptool.models.cross import CrossPooling
from aptool.models.encoders import BiLstmEncoder, CnnEncoder, Encoder, WordEncoder, WordVectorEncoder
from aptool.models.features import COLUMNS, HEADS, Head, NoHead, PairFeatures
from aptool.models.initialization import Corpus, EncoderSpec, Initialization
from aptool.models.matching import (
    KernelPooling,
    MaxSimPooling,
    MeanMaxSimPooling,
    SymmetricMaxSimPooling,
)
from aptool.models.papers.abcnn import AbcnnPooling
from aptool.models.papers.alignment import AlignmentPooling
from aptool.models.papers.joint import JointPooling, OneWayPooling
from aptool.models.pooling import (
    FirstPooling,
    JoinedPooling,
    MaxPooling,
    MeanPooling,
    Pooling,
    VectorPooling,
    fresh_projection,
)
from aptool.models.ranker import Ranker
from aptool.models.similarity import SIMILARITIES, Cosine, Similarity
from aptool.models.transformer import CrossInput, TransformerEncoder
from aptool.options import REMOVED_TYPES, build_options, expected_without
from aptool.plugins import load_plugins
from aptool.text.tokenizer import TextTokenizer, WordTokenizer

# ``encoder.type`` of a recipe.
ENCODERS: dict[str, type[Encoder]] = {
    "cnn": CnnEncoder,
    "bilstm": BiLstmEncoder,
    "transformer": TransformerEncoder,
    "cross": CrossInput,
    "words": WordVectorEncoder,
}

# Weights of an encoder and a pooling that are not embeddings: 4 GB, and as much again for gradients.
MOST_WEIGHTS = 1 << 30

# ``pooling.type`` of a recipe.
POOLINGS: dict[str, type[Pooling]] = {
    "max": MaxPooling,
    "attentive": AttentivePooling,
    "mean": MeanPooling,
    "first": FirstPooling,
    "maxsim": MaxSimPooling,
    "symmetric-maxsim": SymmetricMaxSimPooling,
    "mean-maxsim": MeanMaxSimPooling,
    "kernels": KernelPooling,
    "cross": CrossPooling,
    "one_way": OneWayPooling,
    "abcnn": AbcnnPooling,
    "joint": JointPooling,
    "alignment": AlignmentPooling,
}


def build_ranker(
    recipe: Recipe, vocabulary_size: int, dim: int, backbone: dict[str, Any] | None = None
) -> Ranker:
    """The system that a recipe describes, with fresh weights.

    Args:
        recipe: the encoder, the pooling and their options.
        vocabulary_size: number of token ids (this and the next two are those of ``EncoderSpec``).
        dim: d, dimension of the word embeddings.
        backbone: the pretrained network of the encoder, if it has one.
    """
    encoder_class, encoder_options = _encoder_of(recipe)
    pooling_class, pooling_options = _pooling_of(recipe)
    similarity_class, similarity_options = _similarity_of(recipe)
    encoder = encoder_class.build(EncoderSpec(vocabulary_size, dim, backbone), encoder_options)
    projected = getattr(pooling_options, "dim", 0)
    if projected > encoder.size:
        wanted = f"at most {encoder.size}, the features of a state"
        raise InputError(recipe.preset, place="pooling.dim", value=projected, expected=wanted)
    pooling = pooling_class.for_encoder(encoder, pooling_options)
    if isinstance(pooling, VectorPooling):
        pooling.similarity = similarity_class(projected or encoder.size, similarity_options)
    head_class, head_options = _head_of(recipe)
    if head_class.joins_vectors(head_options) and isinstance(pooling, VectorPooling):
        pooling = JoinedPooling(pooling, projected or encoder.size)
    columns = _columns_of(recipe)
    return Ranker(
        encoder,
        pooling,
        recipe.training.dropout,
        recipe.training.word_dropout,
        projection=fresh_projection(encoder.size, projected) if projected else None,
        head=head_class(pooling.columns, len(columns), head_options),
        features=PairFeatures(vocabulary_size, columns) if columns else None,
    )


def max_weights(
    recipe: Recipe, vocabulary_size: int, dim: int, backbone: dict[str, Any] | None = None
) -> int | None:
    """An upper bound on the number of weights that ``build_ranker`` creates; None if it is not known."""
    encoder_class, options = _encoder_of(recipe)
    spec = EncoderSpec(vocabulary_size, dim, backbone)
    bound: int | None = encoder_class.max_weights(spec, options)
    size: int | None = encoder_class.output_size(spec, options)
    if bound is None or size is None or recipe.head["type"] != "none" or _columns_of(recipe):
        return None
    parts = (_pooling_of(recipe), _similarity_of(recipe))
    dim = min(getattr(parts[0][1], "dim", 0) or size, size)
    return bound + size * dim + sum(part.max_weights(dim, options) for part, options in parts)


def check_recipe(recipe: Recipe) -> None:
    """Checks, before any work, that a system can be built from a recipe and that training has negatives."""
    encoder_class, options = _encoder_of(recipe)
    pooling_class, _ = _pooling_of(recipe)
    if encoder_class.output_kind != pooling_class.input_kind:
        fitting = ", ".join(
            name for name, one in POOLINGS.items() if one.input_kind == encoder_class.output_kind
        )
        value, wanted = recipe.pooling["type"], f"one of {fitting} with encoder.type={recipe.encoder['type']}"
        raise InputError(recipe.preset, place="pooling.type", value=value, expected=wanted)
    similarity_class, _ = _similarity_of(recipe)
    if not issubclass(pooling_class, VectorPooling) and similarity_class is not Cosine:
        value, wanted = (
            recipe.similarity["type"],
            f"none: {recipe.pooling['type']} pooling has one of its own",
        )
        raise InputError(recipe.preset, place="similarity.type", value=value, expected=wanted)
    _check_head(recipe)
    training = recipe.training
    if training.dropout and encoder_class.output_kind == "ids":
        wanted = "0: dropout is of states, which a cross-encoder does not have"
        raise InputError(recipe.preset, place="training.dropout", value=training.dropout, expected=wanted)
    if training.word_dropout and not issubclass(encoder_class, WordEncoder):
        value, wanted = training.word_dropout, "0: only encoders over word vectors drop words"
        raise InputError(recipe.preset, place="training.word_dropout", value=value, expected=wanted)
    if training.average_epochs and training.patience:
        wanted = "0 with training.average_epochs, which needs the last epochs"
        raise InputError(recipe.preset, place="training.patience", value=training.patience, expected=wanted)
    if not (training.sampled_negatives or training.in_batch):
        wanted = "1 or more, or training.in_batch=true"
        raise InputError(recipe.preset, place="training.sampled_negatives", value=0, expected=wanted)
    _check_teacher(recipe)
    weights = max_weights(recipe, 0, recipe.vectors.dim)
    if weights is not None and weights > MOST_WEIGHTS:
        problem, wanted = f"{weights:,} weights beside the vocabulary's", f"at most {MOST_WEIGHTS:,}"
        raise InputError(recipe.preset, place="encoder", problem=problem, expected=wanted)
    encoder_class.check(recipe, options)


def _check_teacher(recipe: Recipe) -> None:
    """Checks that a teacher's scores can be learned."""
    if not recipe.teacher.run:
        return
    if recipe.teacher.weight > 1:
        wanted = "at most 1: the labels have the rest"
        raise InputError(recipe.preset, place="teacher.weight", value=recipe.teacher.weight, expected=wanted)
    if recipe.training.negatives == "corpus":
        wanted = "pool or mix with a teacher, which scores the answers of pools"
        raise InputError(recipe.preset, place="training.negatives", value="corpus", expected=wanted)
    if recipe.mixture.collections:
        wanted = "none with a teacher, whose run is of one collection"
        value = recipe.mixture.collections
        raise InputError(recipe.preset, place="mixture.collections", value=value, expected=wanted)


def _check_head(recipe: Recipe) -> None:
    """Checks that the head goes with the columns that it gets."""
    encoder_class, _ = _encoder_of(recipe)
    pooling_class, _ = _pooling_of(recipe)
    head_class, head_options = _head_of(recipe)
    columns = _columns_of(recipe)
    if columns and not issubclass(encoder_class, WordEncoder):
        value, wanted = recipe.features.columns, "none: pair features need an encoder over word vectors"
        raise InputError(recipe.preset, place="features.columns", value=value, expected=wanted)
    if head_class is NoHead and (columns or pooling_class.many_columns):
        wanted = f"one of {', '.join(name for name in HEADS if name != 'none')}, to join several columns"
        raise InputError(recipe.preset, place="head.type", value="none", expected=wanted)
    if head_class.joins_vectors(head_options) and not issubclass(pooling_class, VectorPooling):
        wanted = f"false with {recipe.pooling['type']} pooling, which has no two vectors"
        raise InputError(recipe.preset, place="head.vectors", value=True, expected=wanted)


def encoder_type(recipe: Recipe) -> type[Encoder]:
    """The class of a recipe's encoder."""
    return _encoder_of(recipe)[0]


def initialize(recipe: Recipe, corpus: Corpus) -> Initialization:
    """The tokenizer and the initial weights of a system; see ``Encoder.init``."""
    encoder_class, options = _encoder_of(recipe)
    initial = encoder_class.init(recipe, options, corpus)
    pooling_class, pooling_options = _pooling_of(recipe)
    if initial.causal and pooling_class.reads_first_state_only(pooling_options):
        wanted = (
            "a pooling of all states: in a causal network the first state depends on the first token only"
        )
        raise InputError(recipe.preset, place="pooling", problem="reads the first state", expected=wanted)
    return with_features(initial, recipe, corpus)


def with_features(initial: Initialization, recipe: Recipe, corpus: Corpus) -> Initialization:
    """The initialization that also sets the statistics of pair features."""
    identify_words(initial.tokenizer, recipe)

    def load_weights(ranker: nn.Module) -> int:
        known = initial.load_weights(ranker)
        for part in ranker.modules():
            if isinstance(part, PairFeatures):
                assert isinstance(initial.tokenizer, WordTokenizer)
                part.learn(initial.tokenizer, corpus.texts)
        return known

    return initial._replace(load_weights=load_weights)


def identify_words(tokenizer: TextTokenizer, recipe: Recipe) -> None:
    """Has a tokenizer identify words, if the recipe has pair features, which need them."""
    tokenizer.identify_words = bool(_columns_of(recipe))


def _encoder_of(recipe: Recipe) -> tuple[type[Encoder], Any]:
    """The class of a recipe's encoder, and its options."""
    return _chosen(ENCODERS, recipe.encoder, recipe.preset, "encoder")


def _pooling_of(recipe: Recipe) -> tuple[type[Pooling], Any]:
    """The class of a recipe's pooling, and its options."""
    return _chosen(POOLINGS, recipe.pooling, recipe.preset, "pooling")


def _similarity_of(recipe: Recipe) -> tuple[type[Similarity], Any]:
    """The class of a recipe's similarity, and its options."""
    return _chosen(SIMILARITIES, recipe.similarity, recipe.preset, "similarity")


def _head_of(recipe: Recipe) -> tuple[type[Head], Any]:
    """The class of a recipe's head, and its options."""
    return _chosen(HEADS, recipe.head, recipe.preset, "head")


def _columns_of(recipe: Recipe) -> tuple[str, ...]:
    """The names of a recipe's pair features."""
    columns = tuple(recipe.features.columns.split())
    for name in columns:
        if name not in COLUMNS:
            wanted = f"some of {', '.join(COLUMNS)}"
            raise InputError(recipe.preset, place="features.columns", value=name, expected=wanted)
    return columns


def _chosen(
    registry: dict[str, Any], section: dict[str, Any], where: str, name: str
) -> tuple[type[Any], Any]:
    chosen = section["type"]
    if chosen not in registry:
        load_plugins()
    if chosen not in registry:
        expected = f"one of {', '.join(registry)}"
        if chosen in REMOVED_TYPES.get(f"{name}.type", ()):
            expected = expected_without(expected)
        raise InputError(where, place=f"{name}.type", value=chosen, expected=expected)
    options = {key: value for key, value in section.items() if key != "type"}
    return registry[chosen], build_options(registry[chosen].Options, options, where, f"{name}.")
