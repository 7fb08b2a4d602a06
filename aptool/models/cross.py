"""The cross-encoder: question and answer as one text through a pretrained network (Nogueira and Cho, 2019).

Nothing about a text can be computed before its partner is known: every pair is a pass of the network. It is
here to measure what late interaction costs and saves.
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
from aptool.models.pooling import Pooling
from aptool.models.ragged import Ragged
from aptool.models.transformer import CrossInput
from aptool.text.subwords import SpecialTokens


class PairPooling(Pooling):
    """A pooling that reads question and answer as one text."""

    input_kind = "ids"
    _special_ids: Tensor  # (before + between + after,) the special tokens of a pair
    _segment_types: Tensor  # (5,) token types of the five segments of a pair

    def __init__(self, special: SpecialTokens, prefix_length: int, suffix_length: int) -> None:
        """Prepares to join pairs.

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
        """(n,) fp32 scores of pairs as ``join_pairs`` gives them."""

    @override
    def score_pairs(self, questions: Ragged, answers: Ragged) -> Tensor:
        """The texts are token ids, values (N,) int64."""
        return self.score_joined(*self.join_pairs(questions, answers))

    def bare_lengths(self, questions: np.ndarray, answers: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """(n,) tokens of each text of a pair that are read, of as many without special tokens; here all."""
        return questions, answers

    def join_pairs(self, questions: Ragged, answers: Ragged) -> tuple[Ragged, Tensor]:
        """Pairs as the network reads them: n sequences of token ids, and their (N,) int64 types.

        The special tokens around each text are replaced by those of a pair.
        """
        before, between, after = self._special_counts
        own = self._prefix_length + self._suffix_length
        bare_q, bare_a = self.bare_lengths(questions.sizes - own, answers.sizes - own)  # (n,)
        # All ids concatenated; a pair is five segments of this pool: special tokens, question, special
        # tokens, answer, special tokens.
        pool = torch.cat([self._special_ids, questions.values, answers.values])
        first_q = before + between + after
        first_a = first_q + len(questions.values)
        begin_q = first_q + np.cumsum(questions.sizes) - questions.sizes + self._prefix_length
        begin_a = first_a + np.cumsum(answers.sizes) - answers.sizes + self._prefix_length
        one = np.ones_like(bare_q)
        starts = np.stack([0 * one, begin_q, before * one, begin_a, (before + between) * one], 1)
        counts = np.stack([before * one, bare_q, between * one, bare_a, after * one], 1)  # (n, 5)
        segments = Ragged.of_sizes(pool.new_empty(int(counts.sum())), counts.reshape(-1))
        shift = send(starts.reshape(-1), pool.device) - segments.offsets[:-1]
        place = segments.row_numbers() + segments.spread(shift)
        types = segments.spread(self._segment_types.repeat(len(bare_q)))
        return Ragged.of_sizes(pool[place], counts.sum(1)), types


class CrossPooling(PairPooling):
    """The score of a pair is a linear function of a state of the two texts joined."""

    @dataclass(frozen=True)
    class Options:
        """Options of ``cross`` pooling.

        Attributes:
            read: What is read of the states of a pair: the ``first`` one, or the ``mean`` of all.
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
            every = self.backbone(ids, ids.row_numbers(), types)
            states = torch.segment_reduce(every, "mean", lengths=ids.lengths, axis=0, unsafe=True)
        scores: Tensor = self.head(states.to(self.head.weight.dtype)).squeeze(1)
        return scores.float()

    @override
    def in_bf16(self) -> "CrossPooling":
        """The network is in bf16, its head is not, or many pairs would tie."""
        other = copy.deepcopy(self)
        other.backbone.bfloat16()
        return other
