"""A ranker: encode, pool, compare.

``Ranker`` is the definition of a system's score, pair by pair; training differentiates it, and everything
faster is tested against it.
"""

from typing import Any

from torch import Tensor, nn

from aptool.config import Recipe, build_options
from aptool.errors import InputError
from aptool.models.encoder import Corpus, Encoder, Initialization, Shape
from aptool.models.encoders import ENCODERS, dropped
from aptool.models.pooling import Pooling
from aptool.models.poolings import POOLINGS
from aptool.models.ragged import Ragged


class Ranker(nn.Module):
    """s(q, a), as a rule cosine(r_q, r_a) (eq. 11)."""

    def __init__(self, encoder: Encoder, pooling: Pooling, dropout: float = 0.0) -> None:
        super().__init__()
        self.encoder = encoder
        self.pooling = pooling
        self.dropout = dropout

    def forward(self, questions: Ragged, answers: Ragged) -> Tensor:
        """Scores of pairs.

        Args:
            questions: token ids of n questions.
            answers: token ids of n answers; pair i is question i with answer i.

        Returns:
            (n,) scores: cosines in [-1, 1], and 0 where a vector is zero, unless the pooling has others.
        """
        return self.score_pairs(self.encode(questions), self.encode(answers))

    def encode(self, tokens: Ragged) -> Ragged:
        """States of texts, with dropout in training."""
        states: Ragged = self.encoder(tokens)
        return dropped(states, self.dropout, self.training)

    def score_pairs(self, questions: Ragged, answers: Ragged) -> Tensor:
        """(n,) scores of pairs from their states."""
        return self.pooling.scores(questions, answers)

    def score_matrix(self, questions: Ragged, answers: Ragged) -> Tensor:
        """(n, k) scores of every one of n questions with every one of k answers, from their states."""
        return self.pooling.all_scores(questions, answers)


def build_ranker(recipe: Recipe, words: int, dim: int, backbone: dict[str, Any] | None = None) -> Ranker:
    """The system that a recipe describes, with fresh weights.

    Args:
        recipe: names the encoder and the pooling and gives their options.
        words: size of the vocabulary.
        dim: d, size of the word embeddings.
        backbone: the pretrained network that the encoder reads with, if it has one (``Shape``).

    Raises:
        InputError: the recipe names an encoder, a pooling or an option that there is not.
        AptoolError: what the encoder needs is not installed.
    """
    kind, options = _chosen(ENCODERS, recipe.encoder, recipe.preset, "encoder")
    pooling_type, pooling_options = _chosen(POOLINGS, recipe.pooling, recipe.preset, "pooling")
    encoder = kind.built(Shape(words, dim, backbone), options)
    return Ranker(encoder, pooling_type.over(encoder, pooling_options), recipe.training.dropout)


def check_recipe(recipe: Recipe) -> None:
    """Finds out whether ``build_ranker`` will accept a recipe and training has negatives, before any work.

    Raises:
        InputError: it will not.
        AptoolError: what the encoder needs is not installed.
    """
    kind, options = _chosen(ENCODERS, recipe.encoder, recipe.preset, "encoder")
    pooling_type, _ = _chosen(POOLINGS, recipe.pooling, recipe.preset, "pooling")
    if kind.output_kind != pooling_type.input_kind:
        fitting = ", ".join(name for name, one in POOLINGS.items() if one.input_kind == kind.output_kind)
        value, wanted = recipe.pooling["type"], f"one of {fitting} with encoder.type={recipe.encoder['type']}"
        raise InputError(recipe.preset, place="pooling.type", value=value, expected=wanted)
    if recipe.training.dropout and kind.output_kind == "ids":
        wanted = "0: there are no states to drop features of"
        raise InputError(
            recipe.preset, place="training.dropout", value=recipe.training.dropout, expected=wanted
        )
    if not (recipe.training.sampled_negatives or recipe.training.in_batch):
        wanted = "1 or more, or training.in_batch=true"
        raise InputError(recipe.preset, place="training.sampled_negatives", value=0, expected=wanted)
    kind.check(recipe, options)


def encoder_type(recipe: Recipe) -> type[Encoder]:
    """The class of a recipe's encoder.

    Raises:
        InputError: there is no such encoder.
    """
    kind: type[Encoder] = _chosen(ENCODERS, recipe.encoder, recipe.preset, "encoder")[0]
    return kind


def initialize(recipe: Recipe, corpus: Corpus) -> Initialization:
    """Where a system's tokenizer and first weights come from; see ``Encoder.init``.

    Raises:
        InputError: what is named is not there or does not fit, or a pooling reads what knows nothing of a
            text.
    """
    kind, options = _chosen(ENCODERS, recipe.encoder, recipe.preset, "encoder")
    initial: Initialization = kind.init(recipe, options, corpus)
    pooling_type, pooling_options = _chosen(POOLINGS, recipe.pooling, recipe.preset, "pooling")
    if initial.causal and pooling_type.reads_first(pooling_options):
        wanted = "a pooling of all states: this network reads from left to right, and a first state has seen "
        raise InputError(
            recipe.preset, place="pooling", problem="the first state", expected=f"{wanted}one token"
        )
    return initial


def _chosen(registry: dict[str, Any], section: dict[str, Any], where: str, name: str) -> tuple[Any, Any]:
    kind = section["type"]
    if kind not in registry:
        raise InputError(where, place=f"{name}.type", value=kind, expected=f"one of {', '.join(registry)}")
    options = {key: value for key, value in section.items() if key != "type"}
    return registry[kind], build_options(registry[kind].Options, options, where, f"{name}.")
