"""The ranker: encode both texts, pool their states, score the pair.

``Ranker`` is the differentiable definition of a score; faster kernels are tested against it.
``aptool.models.build`` builds the ranker of a recipe.
"""

import copy
from collections.abc import Callable
from functools import partial
from typing import TypeAlias, final

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from aptool.models.encoders import Encode, Encoder
from aptool.models.features import Head, NoHead, PairFeatures, WordBags
from aptool.models.pooling import Pooling
from aptool.models.ragged import Ragged
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
        encoder, projection = copy.deepcopy((self.encoder, self.projection))
        if projection is not None:
            projection.bfloat16()
        return Ranker(
            encoder.bfloat16(), self.pooling, projection=projection, head=self.head, features=self.features
        )

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
