"""Recipes: everything that decides what a trained system becomes.

A recipe is a TOML file with the sections below; the named ones are in ``aptool/presets``. What the paper
leaves open stands here as an option with its default, and the whole recipe is saved with the model.
"""

import difflib
import math
import tomllib
import types
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from importlib import resources
from pathlib import Path
from typing import Any, Literal, TypeVar, get_args, get_origin, get_type_hints

from aptool.errors import InputError, UsageError

T = TypeVar("T")


def bounded(default: Any, *, least: float = 0, below: float = math.inf) -> Any:
    """A field of an options class that holds a number from ``least`` up to, but not, ``below``."""
    return field(default=default, metadata={"least": least, "below": below})


@dataclass(frozen=True)
class TextOptions:
    """How texts become tokens.

    Attributes:
        lowercase: throw case away.
        min_count: training words that occur less often are unknown, unless a vector file has them.
        max_question_tokens: questions are cut after so many tokens.
        max_answer_tokens: answers are cut after so many tokens.
    """

    lowercase: bool = True
    min_count: int = 1
    max_question_tokens: int = bounded(60, least=1)
    max_answer_tokens: int = bounded(200, least=1)


@dataclass(frozen=True)
class VectorOptions:
    """Where the word embeddings start.

    Attributes:
        source: ``learned`` (skip-gram on the training texts), ``random``, or a file, folder or hub name.
        dim: d, the embedding size; that of the file where ``source`` is one.
        fine_tune: train the embeddings along with the rest.
        epochs: passes over the training texts when they are learned.
        window: farthest context word when they are learned.
        unknown: words without a vector start uniform in [-unknown, unknown].
    """

    source: str = "learned"
    dim: int = bounded(100, least=1)
    fine_tune: bool = True
    epochs: int = 5
    window: int = bounded(5, least=1, below=33)
    unknown: float = 0.25


@dataclass(frozen=True)
class TrainingOptions:
    """The training procedure.

    Attributes:
        epochs: passes over the training questions.
        minibatch: questions per update.
        pairs: ``all``: every (question, positive answer) pair once an epoch; ``one``: one positive answer,
            drawn anew each epoch, per question.
        loss: ``hinge``, max(0, m - s(q, a+) + s(q, a-)) with the best-scored negative, or ``softmax``, the
            cross-entropy of the positive among all its negatives.
        margin: m of the hinge loss.
        temperature: what scores are divided by in the softmax.
        negatives: where negative answers are drawn from: ``corpus`` (all answers of the training split),
            ``pool`` (the question's own pool; the corpus where that has no negative) or ``mix`` (half and
            half).
        sampled_negatives: negatives drawn per question and round, of which only the best-scoring train; 0 for none.
        hard_negatives: how many of them train; the paper's one by default.
        shared_draw: draws from the corpus are one draw for all questions of a minibatch; far fewer answers
            are then encoded to find the best-scored ones. Not the paper's sampling.
        in_batch: the other answers of a minibatch are negatives of a question too, except those that are
            relevant to it.
        mining_interval: minibatches between two rounds of drawing; 1 scores negatives with the very weights that
            they then train, more scores them in larger batches with weights that old.
        optimizer: ``sgd``, ``adam``, or ``adamw``: Adam with weight decay.
        weight_decay: share of each matrix, times the rate, that an update of ``adamw`` takes away; vectors,
            such as biases, keep theirs, and so do embeddings of words.
        learning_rate: of the first epoch.
        schedule: ``constant``; ``inverse``: divided by the epoch's number, counted from 1; ``linear``: falls
            to nothing over all updates.
        warmup: share of all updates over which the rate first rises from nothing to where the schedule
            begins.
        dropout: share of state features zeroed in training.
        clip: largest norm of the gradient; 0 leaves it alone.
        patience: stop after so many epochs without a better dev figure; 0 never stops early.
        dev_measure: the measure that picks the best epoch, as trec_eval names it.
    """

    epochs: int = 25
    minibatch: int = bounded(20, least=1)
    pairs: Literal["all", "one"] = "all"
    loss: Literal["hinge", "softmax"] = "hinge"
    margin: float = 0.5
    temperature: float = bounded(0.05, least=0.001)
    negatives: Literal["corpus", "pool", "mix"] = "corpus"
    sampled_negatives: int = 50
    hard_negatives: int = bounded(1, least=1)
    shared_draw: bool = False
    in_batch: bool = False
    mining_interval: int = bounded(1, least=1)
    optimizer: Literal["sgd", "adam", "adamw"] = "sgd"
    weight_decay: float = 0.01
    learning_rate: float = 1.1
    schedule: Literal["constant", "inverse", "linear"] = "inverse"
    warmup: float = bounded(0.0, below=1)
    dropout: float = bounded(0.0, below=1)
    clip: float = 0.0
    patience: int = 0
    dev_measure: str = "map"


@dataclass(frozen=True)
class Recipe:
    """One system and how it is trained.

    Attributes:
        preset: the name that it was loaded by.
        encoder: ``type`` and that encoder's own options (``aptool.models.encoders``).
        pooling: ``type`` and that pooling's own options (``aptool.models.pooling``).
    """

    preset: str
    encoder: dict[str, Any]
    pooling: dict[str, Any]
    text: TextOptions = field(default_factory=TextOptions)
    vectors: VectorOptions = field(default_factory=VectorOptions)
    training: TrainingOptions = field(default_factory=TrainingOptions)

    def to_dict(self) -> dict[str, Any]:
        """The recipe as nested plain values, for ``config.json``."""
        return asdict(self)

    def with_vectors(self, source: str) -> "Recipe":
        """The same recipe with word vectors from elsewhere."""
        return replace(self, vectors=replace(self.vectors, source=source))


def preset_names() -> list[str]:
    """The presets that come with aptool."""
    folder = resources.files("aptool") / "presets"
    return sorted(
        entry.name.removesuffix(".toml") for entry in folder.iterdir() if entry.name.endswith(".toml")
    )


def load_recipe(preset: str, overrides: Sequence[str] = ()) -> Recipe:
    """Reads a preset by name, or any recipe file by its path, and applies ``section.key=value`` overrides.

    Raises:
        UsageError: there is no such preset, or an override is not of that form.
        InputError: the file holds something that a recipe does not.
    """
    path = Path(preset)
    if path.suffix == ".toml":
        if not path.is_file():
            raise InputError(path, problem="file not found", expected="a recipe")
        try:
            name, text = path.stem, path.read_text(encoding="utf-8")
        except UnicodeDecodeError as error:
            raise InputError(path, problem=str(error), expected="text in UTF-8") from error
    elif preset in preset_names():
        name = preset
        text = (resources.files("aptool") / "presets" / f"{preset}.toml").read_text(encoding="utf-8")
    else:
        raise UsageError(f"preset {preset!r}: expected one of {', '.join(preset_names())}, or a .toml file")
    try:
        table = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise InputError(path, problem=str(error), expected="TOML") from error
    return recipe_from_dict({**apply_overrides(table, overrides), "preset": name}, where=preset)


def recipe_from_dict(table: dict[str, Any], where: str) -> Recipe:
    """Builds a recipe from nested plain values, as a recipe file or ``config.json`` holds them.

    Raises:
        InputError: naming the entry at fault in ``where``.
    """
    for section in ("encoder", "pooling"):
        if not isinstance(table.get(section), dict) or not isinstance(table[section].get("type"), str):
            raise InputError(where, place=section, expected="a section with a 'type'")
    return build_options(Recipe, table, where)


def apply_overrides(table: dict[str, Any], overrides: Sequence[str]) -> dict[str, Any]:
    """A copy of ``table`` with each ``section.key=value`` set; values are read as TOML, else as text.

    Raises:
        UsageError: an override has another form.
    """
    table = {key: dict(value) if isinstance(value, dict) else value for key, value in table.items()}
    for override in overrides:
        key, equals, text = override.partition("=")
        section, dot, name = key.strip().partition(".")
        if not (equals and dot and section and name):
            raise UsageError(f"--set {override!r}: expected section.key=value, such as training.epochs=5")
        try:
            value = tomllib.loads(f"value = {text}")["value"]
        except tomllib.TOMLDecodeError:
            value = text.strip()
        target = table.setdefault(section, {})
        if not isinstance(target, dict):
            raise UsageError(f"--set {override!r}: {section!r} is not a section")
        target[name] = value
    return table


def build_options(kind: type[T], table: dict[str, Any], where: str, place: str = "") -> T:
    """Makes the dataclass ``kind`` of a table, checking names and types; sections may nest.

    Raises:
        InputError: an entry is unknown (the nearest known name is said), missing or of the wrong type.
    """
    hints = get_type_hints(kind)
    known = {option.name for option in fields(kind)}  # type: ignore[arg-type]
    for name in table:
        if name not in known:
            near = difflib.get_close_matches(name, sorted(known), n=1)
            wanted = f"{near[0]!r} perhaps" if near else f"one of {', '.join(sorted(known))}"
            raise InputError(where, place=place + name, expected=f"{wanted}: there is no such entry")
    values = {name: _checked(hints[name], value, where, place + name) for name, value in table.items()}
    for option in fields(kind):  # type: ignore[arg-type]
        value, bounds = values.get(option.name), option.metadata
        if bounds and value is not None and not bounds["least"] <= value < bounds["below"]:
            wanted = f"{bounds['least']} or more"
            if bounds["below"] < math.inf:
                wanted += f" and below {bounds['below']}"
            raise InputError(where, place=place + option.name, value=value, expected=wanted)
    try:
        return kind(**values)
    except TypeError as error:
        raise InputError(where, place=place.rstrip(".") or None, expected=f"every entry: {error}") from error


def _checked(hint: Any, value: Any, where: str, place: str) -> Any:
    if isinstance(hint, type) and hasattr(hint, "__dataclass_fields__"):
        if isinstance(value, dict):
            return build_options(hint, value, where, place + ".")
        raise InputError(where, place=place, value=value, expected="a section")
    if get_origin(hint) is Literal:
        if value in get_args(hint):
            return value
        choices = ", ".join(map(str, get_args(hint)))
        raise InputError(where, place=place, value=value, expected=f"one of {choices}")
    if get_origin(hint) in (types.UnionType, dict):
        return value
    if hint is float and isinstance(value, int) and not isinstance(value, bool):
        value = float(value)
    if not isinstance(value, hint) or (hint is int and isinstance(value, bool)):
        raise InputError(where, place=place, value=value, expected=f"a value of type {hint.__name__}")
    if isinstance(value, int | float) and not isinstance(value, bool) and not 0 <= value < float("inf"):
        raise InputError(where, place=place, value=value, expected="a finite number of 0 or more")
    return value
