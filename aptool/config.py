"""Recipes: the architecture and the hyperparameters of a system; option classes and their checks.

A recipe is a TOML file with the sections below; presets are the recipes in ``aptool/presets``. The docstrings
of the option classes are the reference of the options. A model folder contains the whole recipe.
"""

import difflib
import math
import types
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from importlib import resources
from pathlib import Path
from typing import Any, Literal, TypeAlias, TypeVar, get_args, get_origin, get_type_hints

from aptool.arguments import check_list, check_text
from aptool.documents import parse_toml, read_toml
from aptool.errors import InputError, UsageError, printable

T = TypeVar("T")

_TYPE_NAMES = {int: "an integer", float: "a number", bool: "true or false", str: "text"}

# Default upper bounds of numbers: counts must fit in 31 bits.
BELOW = {int: 2**31, float: 1e6}

# Upper bound of the width of vectors, layers and windows, given the memory of machines.
WIDEST = 1 << 16

# Minutes between two checkpoints within an epoch. Not in the recipe, since the model does not depend on it.
CHECKPOINT_MINUTES = 10.0

# Largest number of negatives per question.
MOST_NEGATIVES = 100_000

# Values of options by ``section.key``, or texts ``section.key=value``.
Value: TypeAlias = str | int | float | bool
Overrides: TypeAlias = Mapping[str, Value] | Iterable[str]


@dataclass(frozen=True)
class NoOptions:
    """No options."""


def bounded(default: Any, *, least: float = 0, below: float | None = None) -> Any:
    """A dataclass field for a number of at least ``least`` and less than ``below``."""
    below = BELOW[type(default)] if below is None else below
    return field(default=default, metadata={"least": least, "below": below})


@dataclass(frozen=True)
class TextOptions:
    """Tokenization.

    Attributes:
        lowercase: Convert texts to lower case.
        min_count: Minimum number of occurrences of a vocabulary word in the training texts; words of a vector
            file are always in the vocabulary.
        max_question_tokens: Maximum length of a question, in tokens; longer questions are truncated.
        max_answer_tokens: Maximum length of an answer, in tokens; longer answers are truncated.
    """

    lowercase: bool = True
    min_count: int = bounded(1)
    max_question_tokens: int = bounded(60, least=1)
    max_answer_tokens: int = bounded(200, least=1)


@dataclass(frozen=True)
class FeatureOptions:
    """Features of a pair from the words that question and answer share.

    Attributes:
        columns: Names of features, separated by spaces: ``overlap``, ``idf_overlap``, ``content_overlap``,
            ``idf_content_overlap``, ``overlap_count``, ``idf_overlap_count``, ``bm25``, ``question_length``,
            ``answer_length``; see docs/systems.md.
    """

    columns: str = ""


@dataclass(frozen=True)
class StartOptions:
    """Warm start.

    Attributes:
        model: Folder of a trained model of the same system, to initialize weights, tokenizer and vocabulary
            from; empty for none.
    """

    model: str = ""


@dataclass(frozen=True)
class VectorOptions:
    """Initialization of the word embeddings.

    Attributes:
        source: ``learned`` (skip-gram on the training texts), ``random``, or a file, folder or hub name of
            word vectors.
        dim: Embedding dimension d; ignored for vectors from a file.
        fine_tune: Train the embeddings with the other weights.
        epochs: Number of skip-gram epochs, for ``source = "learned"``.
        window: Maximum distance of a context word in skip-gram.
        unknown: Words without a vector are initialized uniformly in [-unknown, unknown].
    """

    source: str = "learned"
    dim: int = bounded(100, least=1, below=WIDEST + 1)
    fine_tune: bool = True
    epochs: int = 5
    window: int = bounded(5, least=1, below=33)
    unknown: float = bounded(0.25, below=1000)


@dataclass(frozen=True)
class TrainingOptions:
    """Training procedure.

    Attributes:
        epochs: Number of passes over the training questions; 0 keeps the initial weights.
        minibatch: Number of questions per mini-batch.
        accumulate: Number of mini-batches per update (gradient accumulation). In-batch negatives come from
            the same mini-batch only.
        pairs: ``all``: every (question, relevant answer) pair once per epoch; ``one``: one relevant answer
            per question, resampled in each epoch.
        loss: ``hinge``: max(0, m - s(q, a+) + s(q, a-)) with the best-scored negative a-; ``softmax``:
            cross-entropy of the positive among all negatives of its question; ``logistic``: binary
            cross-entropy of each answer with probability σ(s), where all negatives together weigh as much as
            the positive.
        margin: Margin m of the hinge loss.
        temperature: Temperature of the softmax; scores are divided by it.
        negatives: Where negatives are sampled from: ``corpus`` (all answers of the training split), ``pool``
            (the pool of the question, or the corpus if it has no negative), ``mix`` (half of each),
            ``collection`` (the corpus and the answers that the pools of the collection share: the paper's
            entire answer set) or ``bm25`` (the 100 best of these by BM25). ``all`` takes the hard negatives
            from all answers of ``collection`` instead of a sample; each answer is encoded once per mining.
        sampled_negatives: Number of negatives sampled per question; training uses the hard negatives among
            them. 0 for none.
        hard_negatives: Number of hard negatives per question: the sampled negatives with the highest scores.
            The paper uses 1.
        in_batch: Use in-batch negatives too: the answers of the other questions of the mini-batch that are
            not relevant to the question.
        mining_interval: Updates between two samplings of negatives; 0 samples once per epoch. A larger
            interval is faster, but scores negatives with weights of up to that many updates ago.
        optimizer: ``sgd``, ``adam``, or ``adamw`` (Adam with weight decay).
        weight_decay: Weight decay of ``adamw``, relative to the learning rate. It applies to matrices, but
            not to vectors, such as biases, and not to word embeddings.
        learning_rate: Initial learning rate.
        embedding_rate: Learning rate of the word embeddings, relative to the learning rate.
        schedule: ``constant``; ``inverse``: the learning rate divided by the number of the epoch, from 1;
            ``linear``: linear decay to zero over all updates.
        warmup: Share of all updates with linear learning-rate warmup.
        dropout: Dropout probability of state features.
        word_dropout: Probability of replacing a word with the unknown word in training.
        clip: Maximum norm of the gradient; 0 does not clip.
        patience: Stop after this many epochs without improvement on the dev split; 0 never stops early.
        dev_measure: Measure on the dev split that selects the best epoch, as in ``aptool eval``.
        average_epochs: Number of last epochs to average the weights of; 1 is the last epoch, 0 the best epoch
            on the dev split. With 1 or more, the dev split is not used for selection.
        deterministic: Use deterministic algorithms on a GPU, which are slower. Training on a CPU is always
            deterministic.
    """

    epochs: int = 25
    minibatch: int = bounded(20, least=1)
    accumulate: int = bounded(1, least=1)
    pairs: Literal["all", "one"] = "all"
    loss: Literal["hinge", "softmax", "logistic"] = "hinge"
    margin: float = 0.5
    temperature: float = bounded(0.05, least=0.001)
    negatives: Literal["corpus", "pool", "mix", "collection", "bm25", "all"] = "corpus"
    sampled_negatives: int = bounded(50, below=MOST_NEGATIVES + 1)
    hard_negatives: int = bounded(1, least=1, below=MOST_NEGATIVES + 1)
    in_batch: bool = False
    mining_interval: int = bounded(1)
    optimizer: Literal["sgd", "adam", "adamw"] = "sgd"
    weight_decay: float = bounded(0.01, below=1000)
    learning_rate: float = bounded(1.1, least=1e-12, below=1000)
    embedding_rate: float = bounded(1.0, below=1000)
    schedule: Literal["constant", "inverse", "linear"] = "inverse"
    warmup: float = bounded(0.0, below=1)
    dropout: float = bounded(0.0, below=1)
    word_dropout: float = bounded(0.0, below=1)
    clip: float = 0.0
    patience: int = 0
    dev_measure: str = "MAP"
    average_epochs: int = 0
    deterministic: bool = False


@dataclass(frozen=True)
class Recipe:
    """A system and its training.

    Attributes:
        preset: Name of the preset or recipe file.
        encoder: ``type`` and options of the encoder (``aptool.models.encoders``, ``.transformer``).
        pooling: ``type`` and options of the pooling (``aptool.models.attention``, ``.pooling``,
            ``.matching``).
        similarity: ``type`` and options of the similarity (``aptool.models.pooling``).
        head: ``type`` and options of the head, which combines the similarity and the features of a pair
            (``aptool.models.features``).
        features: Further features of a pair, in addition to the similarity.
        start: Warm start from a trained model.
        text: Tokenization.
        vectors: Initialization of the word embeddings.
        training: Training procedure.
    """

    preset: str
    encoder: dict[str, Any]
    pooling: dict[str, Any]
    similarity: dict[str, Any] = field(default_factory=lambda: {"type": "cosine"})
    head: dict[str, Any] = field(default_factory=lambda: {"type": "none"})
    features: FeatureOptions = field(default_factory=FeatureOptions)
    start: StartOptions = field(default_factory=StartOptions)
    text: TextOptions = field(default_factory=TextOptions)
    vectors: VectorOptions = field(default_factory=VectorOptions)
    training: TrainingOptions = field(default_factory=TrainingOptions)

    def to_dict(self) -> dict[str, Any]:
        """The recipe as plain values, as in ``config.json``."""
        return asdict(self)

    def with_start(self, model: str) -> "Recipe":
        """A copy with a warm start from a model."""
        return replace(self, start=StartOptions(model))


def preset_names() -> list[str]:
    """The names of the presets."""
    folder = resources.files("aptool") / "presets"
    return sorted(
        entry.name.removesuffix(".toml") for entry in folder.iterdir() if entry.name.endswith(".toml")
    )


DEFAULT_PRESET = "ap-cnn"


def load_recipe(preset: str, overrides: Overrides = ()) -> Recipe:
    """Read a preset or a recipe file (``.toml``), and apply ``overrides``."""
    path = Path(preset)
    if path.suffix == ".toml":
        name, table = printable(path.stem), read_toml(preset, "a recipe")
    elif preset in preset_names():
        file = resources.files("aptool") / "presets" / f"{preset}.toml"
        name, table = preset, parse_toml(file.read_text(encoding="utf-8"), preset)
    else:
        near = difflib.get_close_matches(preset, preset_names(), n=1)
        nearest = f"; did you mean {near[0]!r}?" if near else ""
        raise UsageError(
            f"preset {preset!r}: expected one of {', '.join(preset_names())}, or a .toml file{nearest}"
        )
    return recipe_from_dict({**apply_overrides(table, overrides), "preset": name}, where=preset)


def recipe_from_dict(table: dict[str, Any], where: str) -> Recipe:
    """Build a recipe from the sections of a recipe file or of ``config.json``; ``where`` is the file."""
    optional = [section for section in ("similarity", "head") if section in table]
    for section in ("encoder", "pooling", *optional):
        if not isinstance(table.get(section), dict) or not isinstance(table[section].get("type"), str):
            raise InputError(where, position=section, expected="a section with a 'type'")
    return build_options(Recipe, table, where)


def build_options(kind: type[T], table: dict[str, Any], where: str, position: str = "") -> T:
    """Build an option class from a table of entries and nested sections.

    Errors name the file ``where`` and the entry after the prefix ``position``, such as ``"training."``.
    """
    hints = get_type_hints(kind)
    options = {option.name: option for option in fields(kind)}  # type: ignore[arg-type]
    values = {}
    for name, value in table.items():
        if name in options:
            values[name] = _checked(hints[name], value, where, position + name)
            if hints[name] in BELOW:
                bounds = options[name].metadata
                least, below = bounds.get("least", 0), bounds.get("below", BELOW[hints[name]])
                if not least <= values[name] < below:
                    expected = f"{least} or more and below {below}"
                    raise InputError(where, position=position + name, value=values[name], expected=expected)
        else:
            near = difflib.get_close_matches(name, sorted(options), n=1)
            expected = f"{near[0]!r} perhaps" if near else f"one of {', '.join(sorted(options))}"
            problem = "unknown option" if position else "unknown section"
            raise InputError(where, position=position + name, problem=problem, expected=expected)
    try:
        return kind(**values)
    except TypeError as error:
        raise InputError(
            where, position=position.rstrip(".") or None, problem=str(error), expected="every entry"
        ) from error


def _checked(hint: Any, value: Any, where: str, position: str) -> Any:
    """Return a value of the type ``hint``; raise for any other value."""
    if isinstance(hint, type) and hasattr(hint, "__dataclass_fields__"):
        if isinstance(value, dict):
            return build_options(hint, value, where, position + ".")
        raise InputError(where, position=position, value=value, expected="a section")
    if get_origin(hint) is Literal:
        if value in get_args(hint):
            return value
        choices = ", ".join(map(str, get_args(hint)))
        raise InputError(where, position=position, value=value, expected=f"one of {choices}")
    if get_origin(hint) in (types.UnionType, dict):
        return value
    if hint is float and isinstance(value, int) and not isinstance(value, bool):
        value = float(value) if value.bit_length() < 1024 else math.inf
    if not isinstance(value, hint) or (hint is int and isinstance(value, bool)):
        raise InputError(where, position=position, value=value, expected=_TYPE_NAMES.get(hint, hint.__name__))
    if isinstance(value, int | float) and not isinstance(value, bool) and not 0 <= value < math.inf:
        raise InputError(where, position=position, value=value, expected="a finite number of 0 or more")
    return value


def apply_overrides(table: dict[str, Any], overrides: Overrides) -> dict[str, Any]:
    """Set the options of ``overrides`` in a copy of ``table``."""
    table = {key: dict(value) if isinstance(value, dict) else value for key, value in table.items()}
    for option, value in parse_overrides(overrides).items():
        section, _, name = option.partition(".")
        target = table.setdefault(section, {})
        if not isinstance(target, dict):
            raise UsageError(f"set {option!r}: {section!r} is not a section of a recipe")
        target[name] = value
    return table


def parse_overrides(overrides: Overrides) -> dict[str, Value]:
    """Return the values of options by ``section.key``; a value of a text that is not TOML is text."""
    values: dict[str, Value] = {}
    if isinstance(overrides, Mapping):
        for option, value in overrides.items():
            _check_option(check_text("set", option, expected="a key 'section.key' (str)"), option)
            values[option] = value
        return values
    expected = "a dict {'section.key': value} or a list of 'section.key=value'"
    for item in check_list("set", overrides, expected, empty=True):
        option, equals, text = check_text("set", item).partition("=")
        option = option.strip()
        _check_option(option if equals else "", item)
        values[option] = _text_value(text)
    return values


def _check_option(option: str, given: str) -> None:
    section, _, key = option.partition(".")
    if not (section and key):
        raise UsageError(f"set {given!r}: expected section.key=value, such as training.epochs=5")


def _text_value(text: str) -> Value:
    """Parse a TOML value."""
    try:
        value: Value = parse_toml(f"value = {text}", "set")["value"]
    except InputError:
        return text.strip()
    return value
