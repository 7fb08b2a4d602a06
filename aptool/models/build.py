"""Systems from recipes: registries of components, checks of their combination, and rankers."""

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

# Maximum number of weights besides word embeddings: 4 GB, and the same again for gradients.
MOST_WEIGHTS = 1 << 30


def build_ranker(
    recipe: Recipe, vocabulary_size: int, dim: int, backbone: dict[str, Any] | None = None
) -> Ranker:
    """Build a recipe's system with fresh weights; the other arguments are those of ``EncoderSpec``."""
    encoder_class, encoder_options = _encoder_of(recipe)
    pooling_class, pooling_options = _pooling_of(recipe)
    similarity_class, similarity_options = _similarity_of(recipe)
    encoder = encoder_class.build(EncoderSpec(vocabulary_size, dim, backbone), encoder_options)
    projected = getattr(pooling_options, "dim", 0)
    if projected > encoder.size:
        expected = f"at most {encoder.size}, the features of a state"
        raise InputError(recipe.preset, place="pooling.dim", value=projected, expected=expected)
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
    """Return an upper bound on the number of weights that ``build_ranker`` creates; None if unknown."""
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
    """Raise, before any work, unless a system can be built and trained by a recipe."""
    encoder_class, options = _encoder_of(recipe)
    pooling_class, _ = _pooling_of(recipe)
    if encoder_class.output_kind != pooling_class.input_kind:
        fitting = [name for name, kind in POOLINGS.items() if kind.input_kind == encoder_class.output_kind]
        expected = f"one of {', '.join(fitting)} with encoder.type={recipe.encoder['type']}"
        raise _wrong(recipe, "pooling.type", recipe.pooling["type"], expected)
    similarity_class, _ = _similarity_of(recipe)
    if not issubclass(pooling_class, VectorPooling) and similarity_class is not Cosine:
        expected = f"none: {recipe.pooling['type']} pooling has its own similarity"
        raise _wrong(recipe, "similarity.type", recipe.similarity["type"], expected)
    _check_head(recipe)
    training = recipe.training
    if training.dropout and encoder_class.output_kind == "ids":
        expected = "0: dropout is of states, which a cross-encoder does not have"
        raise _wrong(recipe, "training.dropout", training.dropout, expected)
    if training.word_dropout and not issubclass(encoder_class, WordEncoder):
        expected = "0: only encoders over word vectors drop words"
        raise _wrong(recipe, "training.word_dropout", training.word_dropout, expected)
    if training.average_epochs and training.patience:
        expected = "0 with training.average_epochs, which needs the last epochs"
        raise _wrong(recipe, "training.patience", training.patience, expected)
    if not (training.sampled_negatives or training.in_batch):
        expected = "1 or more, or training.in_batch=true"
        raise _wrong(recipe, "training.sampled_negatives", 0, expected)
    if recipe.teacher.run:
        _check_teacher(recipe)
    weights = max_weights(recipe, 0, recipe.vectors.dim)
    if weights is not None and weights > MOST_WEIGHTS:
        problem, expected = f"{weights:,} weights beside the vocabulary's", f"at most {MOST_WEIGHTS:,}"
        raise InputError(recipe.preset, place="encoder", problem=problem, expected=expected)
    encoder_class.check(recipe, options)


def _wrong(recipe: Recipe, option: str, value: object, expected: str) -> InputError:
    return InputError(recipe.preset, place=option, value=value, expected=expected)


def _check_teacher(recipe: Recipe) -> None:
    if recipe.teacher.weight > 1:
        expected = "at most 1: the labels have the rest"
        raise _wrong(recipe, "teacher.weight", recipe.teacher.weight, expected)
    if recipe.training.negatives == "corpus":
        expected = "pool or mix with a teacher, which scores the answers of pools"
        raise _wrong(recipe, "training.negatives", "corpus", expected)
    if recipe.mixture.collections:
        expected = "none with a teacher, whose run is of one collection"
        raise _wrong(recipe, "mixture.collections", recipe.mixture.collections, expected)


def _check_head(recipe: Recipe) -> None:
    """Raise unless the head fits the columns."""
    encoder_class, _ = _encoder_of(recipe)
    pooling_class, _ = _pooling_of(recipe)
    head_class, head_options = _head_of(recipe)
    columns = _columns_of(recipe)
    if columns and not issubclass(encoder_class, WordEncoder):
        expected = "none: pair features need an encoder over word vectors"
        raise _wrong(recipe, "features.columns", recipe.features.columns, expected)
    if head_class is NoHead and (columns or pooling_class.many_columns):
        expected = f"one of {', '.join(name for name in HEADS if name != 'none')}, to join several columns"
        raise _wrong(recipe, "head.type", "none", expected)
    if head_class.joins_vectors(head_options) and not issubclass(pooling_class, VectorPooling):
        expected = f"false with {recipe.pooling['type']} pooling, which has no two vectors"
        raise _wrong(recipe, "head.vectors", True, expected)


def encoder_type(recipe: Recipe) -> type[Encoder]:
    """Return the class of a recipe's encoder."""
    return _encoder_of(recipe)[0]


def initialize(recipe: Recipe, corpus: Corpus) -> Initialization:
    """Return the tokenizer and the initial weights of a system; see ``Encoder.init``."""
    encoder_class, options = _encoder_of(recipe)
    initial = encoder_class.init(recipe, options, corpus)
    pooling_class, pooling_options = _pooling_of(recipe)
    if initial.causal and pooling_class.reads_first_state_only(pooling_options):
        expected = (
            "a pooling of all states: in a causal network the first state depends on the first token only"
        )
        raise InputError(recipe.preset, place="pooling", problem="reads the first state", expected=expected)
    return with_features(initial, recipe, corpus)


def with_features(initial: Initialization, recipe: Recipe, corpus: Corpus) -> Initialization:
    """Return an initialization that also learns the word statistics of pair features."""
    identify_words(initial.tokenizer, recipe)

    def load_weights(ranker: nn.Module) -> int:
        initialized = initial.load_weights(ranker)
        for part in ranker.modules():
            if isinstance(part, PairFeatures):
                assert isinstance(initial.tokenizer, WordTokenizer)
                part.learn(initial.tokenizer, corpus.texts)
        return initialized

    return initial._replace(load_weights=load_weights)


def identify_words(tokenizer: TextTokenizer, recipe: Recipe) -> None:
    """Make a tokenizer identify words if the recipe has pair features, which need them."""
    tokenizer.identify_words = bool(_columns_of(recipe))


def _encoder_of(recipe: Recipe) -> tuple[type[Encoder], Any]:
    return _chosen(ENCODERS, recipe.encoder, recipe.preset, "encoder")


def _pooling_of(recipe: Recipe) -> tuple[type[Pooling], Any]:
    return _chosen(POOLINGS, recipe.pooling, recipe.preset, "pooling")


def _similarity_of(recipe: Recipe) -> tuple[type[Similarity], Any]:
    return _chosen(SIMILARITIES, recipe.similarity, recipe.preset, "similarity")


def _head_of(recipe: Recipe) -> tuple[type[Head], Any]:
    return _chosen(HEADS, recipe.head, recipe.preset, "head")


def _columns_of(recipe: Recipe) -> tuple[str, ...]:
    """Return the names of a recipe's pair features."""
    columns = tuple(recipe.features.columns.split())
    for name in columns:
        if name not in COLUMNS:
            raise _wrong(recipe, "features.columns", name, f"some of {', '.join(COLUMNS)}")
    return columns


def _chosen(
    registry: dict[str, Any], section: dict[str, Any], where: str, name: str
) -> tuple[type[Any], Any]:
    """Return the class that a section of a recipe names, and its options."""
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
