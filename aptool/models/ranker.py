"""A ranker: encode, pool, compare.

``Ranker`` is the definition of a system's score, pair by pair; training differentiates it, and everything
faster is tested against it.
"""

from typing import Any

from torch import Tensor, nn
from torch.nn import functional as F

from aptool.config import Recipe, build_options
from aptool.errors import InputError
from aptool.models.encoders import ENCODERS, Encoder, dropped
from aptool.models.pooling import EPSILON, POOLINGS, Pooling
from aptool.models.ragged import Ragged


class Ranker(nn.Module):
    """s(q, a) = cosine(r_q, r_a) (eq. 11)."""

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
            (n,) cosines in [-1, 1]; 0 where a vector is zero.
        """
        return self.compare(self.encode(questions), self.encode(answers))

    def encode(self, tokens: Ragged) -> Ragged:
        """States of texts, with dropout in training."""
        states: Ragged = self.encoder(tokens)
        return dropped(states, self.dropout, self.training)

    def compare(self, questions: Ragged, answers: Ragged) -> Tensor:
        """(n,) scores of pairs from their states."""
        r_q, r_a = self.pooling(questions, answers)
        return F.cosine_similarity(r_q, r_a, eps=EPSILON)

    def compare_all(self, questions: Ragged, answers: Ragged) -> Tensor:
        """(n, k) scores of every one of n questions with every one of k answers, from their states."""
        return self.pooling.cosines(questions, answers)


def build_ranker(recipe: Recipe, words: int, dim: int) -> Ranker:
    """The system that a recipe describes, with fresh weights.

    Args:
        recipe: names the encoder and the pooling and gives their options.
        words: size of the vocabulary.
        dim: d, size of the word embeddings.

    Raises:
        InputError: the recipe names an encoder, a pooling or an option that there is not.
    """
    encoder_type, encoder_options = _chosen(ENCODERS, recipe.encoder, recipe.preset, "encoder")
    pooling_type, pooling_options = _chosen(POOLINGS, recipe.pooling, recipe.preset, "pooling")
    encoder = encoder_type(words, dim, encoder_options)
    return Ranker(encoder, pooling_type(encoder.size, pooling_options), recipe.training.dropout)


def check_recipe(recipe: Recipe) -> None:
    """Finds out whether ``build_ranker`` will accept a recipe and training has negatives, before any work.

    Raises:
        InputError: it will not.
    """
    _chosen(ENCODERS, recipe.encoder, recipe.preset, "encoder")
    _chosen(POOLINGS, recipe.pooling, recipe.preset, "pooling")
    if not (recipe.training.draws or recipe.training.in_batch):
        wanted = "1 or more, or training.in_batch=true"
        raise InputError(recipe.preset, place="training.draws", value=0, expected=wanted)


def _chosen(registry: dict[str, Any], section: dict[str, Any], where: str, name: str) -> tuple[Any, Any]:
    kind = section["type"]
    if kind not in registry:
        raise InputError(where, place=f"{name}.type", value=kind, expected=f"one of {', '.join(registry)}")
    options = {key: value for key, value in section.items() if key != "type"}
    return registry[kind], build_options(registry[kind].Options, options, where, f"{name}.")
