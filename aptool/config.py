"""Recipes: everything that decides what a trained system becomes.

A recipe is a TOML file with the sections below; those with a name, the presets, are in ``aptool/presets``.
The docstrings of the option classes are the reference of the options. What the paper leaves open is an option
with a default, and the whole recipe is saved with the model.
"""

import difflib
import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from importlib import resources
from pathlib import Path
from typing import Any, Literal

from aptool.documents import parse_toml, read_toml
from aptool.errors import InputError, UsageError, printable
from aptool.options import WIDEST, bounded, build_options, expected_without

# Minutes between two checkpoints within an epoch. No part of a recipe: they do not change the model.
CHECKPOINT_MINUTES = 10.0

# Negatives of a question: each has a random number, and as a hard one a row of scores.
MOST_NEGATIVES = 100_000


@dataclass(frozen=True)
class TextOptions:
    """How texts become tokens.

    Attributes:
        lowercase: Convert texts to lower case.
        min_count: Smallest number of occurrences in the training texts for a word to get an id; words of a
            vector file always get one.
        max_question_tokens: Maximum length of a question, in tokens; longer ones are truncated.
        max_answer_tokens: Maximum length of an answer, in tokens; longer ones are truncated.
    """

    lowercase: bool = True
    min_count: int = bounded(1)
    max_question_tokens: int = bounded(60, least=1)
    max_answer_tokens: int = bounded(200, least=1)


@dataclass(frozen=True)
class FeatureOptions:
    """Features of a pair that are computed from the words that its texts have in common.

    Attributes:
        columns: Their names, separated by spaces: ``overlap``, ``idf_overlap``, ``content_overlap``,
            ``idf_content_overlap``, ``overlap_count``, ``idf_overlap_count``, ``bm25``, ``question_length``,
            ``answer_length``; see docs/systems.md.
    """

    columns: str = ""


@dataclass(frozen=True)
class StartOptions:
    """Where training starts.

    Attributes:
        model: Folder of a trained model of the same system, whose weights, tokenizer and vocabulary training
            starts from; empty starts anew.
    """

    model: str = ""


@dataclass(frozen=True)
class MixtureOptions:
    """Further collections that are trained on together with the one that is named first.

    Attributes:
        collections: Their folders. The dev split is that of the first collection.
    """

    collections: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class TeacherOptions:
    """Another system, whose scores of the training pools are learned beside the labels.

    Attributes:
        run: Run file with a score of every pair of the training pools; empty without a teacher.
        loss: ``margin-mse``: squared differences of the margins between the relevant answer and each other
            one; ``kl``: Kullback-Leibler divergence of the softmax over a question's answers from the
            teacher's, at the temperature ``training.temperature``.
        weight: Share of the teacher in the loss; the labels have the rest.
        scale: Factor of the teacher's scores, which brings them to the scale of the system's: 0.05 for logits
            that teach cosines with a temperature of 0.05.
    """

    run: str = ""
    loss: Literal["margin-mse", "kl"] = "kl"
    weight: float = bounded(0.5, below=2)
    scale: float = bounded(1.0, least=1e-6)


@dataclass(frozen=True)
class VectorOptions:
    """Initialization of the word embeddings.

    Attributes:
        source: ``learned`` (skip-gram on the training texts), ``random``, or a file, folder or hub name of
            word vectors.
        dim: Embedding dimension d; vectors from a file bring their own.
        fine_tune: Train the embeddings along with the other weights.
        epochs: Epochs of skip-gram, for ``source = "learned"``.
        window: Largest distance of a context word in skip-gram.
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
    """The training procedure.

    Attributes:
        epochs: Number of passes over the training questions; 0 keeps the initial weights.
        minibatch: Questions that go through the network together.
        accumulate: Minibatches per update: their gradients are added up, as if they were one of that many
            times the questions. With ``in_batch``, negatives are those of the own minibatch.
        pairs: ``all``: every (question, relevant answer) pair once per epoch; ``one``: one relevant answer
            per question, sampled anew in each epoch.
        loss: ``hinge``: max(0, m - s(q, a+) + s(q, a-)) with the best-scored negative a-; ``softmax``:
            cross-entropy of the positive among all negatives of its question; ``logistic``: cross-entropy of
            the relevance of each answer by itself, with probability σ(s), negatives weighing as much as the
            positive.
        margin: Margin m of the hinge loss.
        temperature: Temperature of the softmax, by which scores are divided.
        negatives: Where negatives are sampled from: ``corpus`` (all answers of the training split), ``pool``
            (the pool of the question, or the corpus if it has no negative) or ``mix`` (half of each).
        sampled_negatives: Negatives sampled per question, of which the hard ones are trained on; 0 for none.
        hard_negatives: Number of sampled negatives to train on, those with the highest scores. The paper's is
            1.
        in_batch: Use the other answers of a minibatch as negatives too, except those relevant to the
            question.
        mining_interval: Updates between two samplings of negatives; 0 samples once an epoch. With 1,
            negatives are scored with the weights that they then train; with more, in larger batches, with
            weights up to that many updates old.
        optimizer: ``sgd``, ``adam``, or ``adamw`` (Adam with weight decay).
        weight_decay: Weight decay of ``adamw``, relative to the learning rate. It applies to matrices, not to
            vectors such as biases, nor to word embeddings.
        learning_rate: Initial learning rate.
        embedding_rate: Learning rate of the word embeddings, relative to that of all other weights: below 1,
            they stay closer to their initial values.
        schedule: ``constant``; ``inverse``: the learning rate divided by the number of the epoch, from 1;
            ``linear``: linear decay to zero over all updates.
        warmup: Share of all updates over which the learning rate rises linearly from zero.
        dropout: Dropout probability of state features.
        word_dropout: Probability that a word is read as an unknown one in training.
        clip: Maximum norm of the gradient; 0 does not clip.
        patience: Stop after this many epochs without improvement on the dev split; 0 never stops early.
        dev_measure: Measure on the dev split that selects the best epoch, as in ``aptool eval``.
        average_epochs: Number of last epochs whose weights are averaged to those of the model; 1 takes the
            last epoch, 0 the best one on the dev split. With 1 or more, the dev split decides nothing.
        deterministic: Have a GPU add up numbers in one order, so that the same training ends in the same
            weights, which takes longer. On a CPU it does so without this.
    """

    epochs: int = 25
    minibatch: int = bounded(20, least=1)
    accumulate: int = bounded(1, least=1)
    pairs: Literal["all", "one"] = "all"
    loss: Literal["hinge", "softmax", "logistic"] = "hinge"
    margin: float = 0.5
    temperature: float = bounded(0.05, least=0.001)
    negatives: Literal["corpus", "pool", "mix"] = "corpus"
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
    """One system and how it is trained.

    Attributes:
        preset: Name that it was loaded by.
        encoder: ``type``, and the options of that encoder (``aptool.models.encoders``, ``.transformer``).
        pooling: ``type``, and the options of that pooling (``aptool.models.attention``, ``.pooling``,
            ``.cross``).
        similarity: ``type``, and the options of that similarity (``aptool.models.similarity``).
        head: ``type``, and the options of what scores the similarity and the pair features of a pair
            (``aptool.models.features``).
        features: Features of a pair beside its similarity.
        start: The trained model that training starts from.
        mixture: Further collections to train on.
        teacher: A run whose scores are learned beside the labels.
        text: How texts become tokens.
        vectors: Initialization of the word embeddings.
        training: The training procedure.
    """

    preset: str
    encoder: dict[str, Any]
    pooling: dict[str, Any]
    similarity: dict[str, Any] = field(default_factory=lambda: {"type": "cosine"})
    head: dict[str, Any] = field(default_factory=lambda: {"type": "none"})
    features: FeatureOptions = field(default_factory=FeatureOptions)
    start: StartOptions = field(default_factory=StartOptions)
    mixture: MixtureOptions = field(default_factory=MixtureOptions)
    teacher: TeacherOptions = field(default_factory=TeacherOptions)
    text: TextOptions = field(default_factory=TextOptions)
    vectors: VectorOptions = field(default_factory=VectorOptions)
    training: TrainingOptions = field(default_factory=TrainingOptions)

    def to_dict(self) -> dict[str, Any]:
        """The recipe as a dictionary of plain values, as ``config.json`` holds it."""
        return asdict(self)

    def with_start(self, model: str) -> "Recipe":
        """The same recipe with training that starts from a model."""
        return replace(self, start=StartOptions(model))

    def with_mixture(self, collections: Sequence[str]) -> "Recipe":
        """The same recipe with further collections to train on."""
        return replace(self, mixture=MixtureOptions(list(collections)))

    def with_teacher(self, run: str) -> "Recipe":
        """The same recipe with a run file that teaches."""
        return replace(self, teacher=replace(self.teacher, run=run))

    def with_vectors(self, source: str) -> "Recipe":
        """The same recipe with word vectors from another source."""
        return replace(self, vectors=replace(self.vectors, source=source))


# Presets that aptool had until LAST_WITH_REMOVED.
REMOVED_PRESETS = ("ap-bilstm-paper", "qa-bilstm-paper", "qa-cnn-paper")


def preset_names() -> list[str]:
    """Names of the presets that come with aptool."""
    folder = resources.files("aptool") / "presets"
    return sorted(
        entry.name.removesuffix(".toml") for entry in folder.iterdir() if entry.name.endswith(".toml")
    )


def load_recipe(preset: str, overrides: Sequence[str] = ()) -> Recipe:
    """Reads a preset by its name, or a recipe file by its path, and applies overrides.

    Args:
        preset: name of a preset, or path of a ``.toml`` file.
        overrides: ``section.key=value`` each, as after ``--set``; the last one for a key wins.

    Raises:
        UsageError: there is no such preset, or an override has another form.
        InputError: the file does not exist, or an entry of it is wrong.
    """
    path = Path(preset)
    if path.suffix == ".toml":
        name, table = printable(path.stem), read_toml(preset, "a recipe")
    elif preset in preset_names():
        file = resources.files("aptool") / "presets" / f"{preset}.toml"
        name, table = preset, parse_toml(file.read_text(encoding="utf-8"), preset)
    else:
        if preset in REMOVED_PRESETS:
            expected = expected_without(f"a recipe file (jobs/paper/{preset}.toml of the sources)")
            raise UsageError(f"preset {preset!r}: expected {expected}")
        near = difflib.get_close_matches(preset, preset_names(), n=1)
        nearest = f"; did you mean {near[0]!r}?" if near else ""
        raise UsageError(
            f"preset {preset!r}: expected one of {', '.join(preset_names())}, or a .toml file{nearest}"
        )
    return recipe_from_dict({**apply_overrides(table, overrides), "preset": name}, where=preset)


def recipe_from_dict(table: dict[str, Any], where: str) -> Recipe:
    """Builds a recipe from a dictionary of plain values, as a recipe file or ``config.json`` holds them.

    Args:
        table: the sections.
        where: the file they are from, for errors.

    Raises:
        InputError: an entry is wrong; the message names it.
    """
    optional = [section for section in ("similarity", "head") if section in table]
    for section in ("encoder", "pooling", *optional):
        if not isinstance(table.get(section), dict) or not isinstance(table[section].get("type"), str):
            raise InputError(where, place=section, expected="a section with a 'type'")
    return build_options(Recipe, table, where)


def apply_overrides(table: dict[str, Any], overrides: Sequence[str]) -> dict[str, Any]:
    """A copy of ``table`` with each ``section.key=value`` set; a value is parsed as TOML, or else is text.

    Raises:
        UsageError: an override has another form.
    """
    table = {key: dict(value) if isinstance(value, dict) else value for key, value in table.items()}
    for override in overrides:
        key, equals, text = override.partition("=")
        section, dot, name = key.strip().partition(".")
        if not (equals and dot and section and name):
            raise UsageError(f"--set {override!r}: expected section.key=value, such as training.epochs=5")
        target = table.setdefault(section, {})
        if not isinstance(target, dict):
            raise UsageError(f"--set {override!r}: {section!r} is not a section of a recipe")
        target[name] = _override_value(text)
    return table


# ``.5``, which TOML has no number for.
_POINT_FIRST = re.compile(r"[+-]?\.[0-9]+(e[+-]?[0-9]+)?")


def _override_value(text: str) -> Any:
    try:
        return parse_toml(f"value = {text}", "--set")["value"]
    except InputError:
        # TOML wants a digit before and after the point of a number.
        return float(text) if _POINT_FIRST.fullmatch(text.strip()) else text.strip()
