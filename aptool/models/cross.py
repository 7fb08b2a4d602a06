"""The cross-encoder: a pretrained network reads question and answer as one text (Nogueira and Cho, 2019).

Nothing can be precomputed per text: every pair is one pass of the network.
"""

import copy
from abc import abstractmethod
from dataclasses import dataclass
from itertools import chain
from typing import Any, Literal, Self

import numpy as np
import torch
from torch import Tensor, nn
from typing_extensions import override

from aptool.models.device import send
from aptool.models.encoders import Encoder
from aptool.models.pooling import Pooling, segment_mean
from aptool.models.ragged import Ragged
from aptool.models.transformer import CrossInput
from aptool.text.subwords import SpecialTokens


class PairPooling(Pooling):
    """A pooling that reads question and answer as one text."""

    input_kind = "ids"
    _special_ids: Tensor  # (before + between + after,) the special tokens of a pair
    _segment_types: Tensor  # (5,) token types of the five segments of a pair

    def __init__(self, special: SpecialTokens, prefix_length: int, suffix_length: int) -> None:
        """Prepare to join pairs.

        Args:
            special: the special tokens of a pair.
            prefix_length: number of special tokens before a single text.
            suffix_length: number of special tokens after a single text.
        """
        super().__init__()
        self._prefix_length, self._suffix_length = prefix_length, suffix_length
        parts = [special.before, special.between, special.after]
        self._special_counts = [len(ids) for ids in parts]
        special_ids = torch.tensor(list(chain.from_iterable(parts)), dtype=torch.int64)
        types = torch.tensor(special.types, dtype=torch.int64)
        self.register_buffer("_special_ids", special_ids, persistent=False)
        self.register_buffer("_segment_types", types, persistent=False)

    @property
    def special_count(self) -> int:
        """Number of special tokens of a pair."""
        return sum(self._special_counts)

    @abstractmethod
    def score_joined(self, ids: Ragged, types: Tensor) -> Tensor:
        """(n,) fp32 scores of pairs from the output of ``join_pairs``."""

    @override
    def score_pairs(self, questions: Ragged, answers: Ragged) -> Tensor:
        return self.score_joined(*self.join_pairs(questions, answers))

    def bare_lengths(self, questions: np.ndarray, answers: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """(n,) tokens of each text to read, given the lengths without special tokens; by default all."""
        return questions, answers

    def join_pairs(self, questions: Ragged, answers: Ragged) -> tuple[Ragged, Tensor]:
        """Join pairs into n sequences of token ids, and their (N,) int64 types.

        The special tokens around each text are replaced by the special tokens of a pair.
        """
        before, between, after = self._special_counts
        around = self._prefix_length + self._suffix_length
        bare_q, bare_a = self.bare_lengths(questions.sizes - around, answers.sizes - around)  # (n,)
        # A pair is five segments of this pool: special tokens, question, special tokens, answer, special
        # tokens.
        pool = torch.cat([self._special_ids, questions.values, answers.values])
        first_q = before + between + after
        first_a = first_q + len(questions.values)
        begin_q = first_q + np.cumsum(questions.sizes) - questions.sizes + self._prefix_length
        begin_a = first_a + np.cumsum(answers.sizes) - answers.sizes + self._prefix_length
        ones = np.ones_like(bare_q)
        starts = np.stack([0 * ones, begin_q, before * ones, begin_a, (before + between) * ones], 1)
        counts = np.stack([before * ones, bare_q, between * ones, bare_a, after * ones], 1)  # (n, 5)
        segments = Ragged.of_sizes(pool.new_empty(int(counts.sum())), counts.reshape(-1))
        shift = send(starts.reshape(-1), pool.device) - segments.offsets[:-1]
        rows = segments.row_numbers() + segments.spread(shift)
        types = segments.spread(self._segment_types.repeat(len(bare_q)))
        return Ragged.of_sizes(pool[rows], counts.sum(1)), types


class CrossPooling(PairPooling):
    """The score of a pair is a linear function of a state of the joined texts."""

    @dataclass(frozen=True)
    class Options:
        """Options of ``cross`` pooling.

        Attributes:
            read: Input of the linear function: the ``first`` state of a pair, or the ``mean`` of all states.
        """

        read: Literal["first", "mean"] = "first"

    def __init__(self, encoder: CrossInput, options: Options) -> None:
        backbone = encoder.spec.backbone
        assert backbone is not None
        special = SpecialTokens(**backbone["pair"])
        super().__init__(special, backbone["prefix_length"], backbone["suffix_length"])
        self.read = options.read
        self.backbone = encoder.network()
        self.head = nn.Linear(encoder.size, 1)
        nn.init.normal_(self.head.weight, std=0.02)
        nn.init.zeros_(self.head.bias)

    @classmethod
    @override
    def for_encoder(cls, encoder: Encoder, options: Any) -> Self:
        assert isinstance(encoder, CrossInput)
        return cls(encoder, options)

    @classmethod
    @override
    def reads_first_state_only(cls, options: Any) -> bool:
        return bool(options.read == "first")

    @override
    def score_joined(self, ids: Ragged, types: Tensor) -> Tensor:
        if self.read == "first":
            states = self.backbone(ids, ids.offsets[:-1], types)  # (n, c)
        else:
            states = segment_mean(ids.with_values(self.backbone(ids, ids.row_numbers(), types)))
        scores: Tensor = self.head(states.to(self.head.weight.dtype)).squeeze(1)
        return scores.float()

    @override
    def in_bf16(self) -> "CrossPooling":
        pooling = copy.deepcopy(self)
        pooling.backbone.bfloat16()  # but not the head: many pairs would tie
        return pooling
