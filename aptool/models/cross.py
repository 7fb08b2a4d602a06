"""The cross-encoder: question and answer as one text through a pretrained network (Nogueira and Cho, 2019).

Nothing about a text can be computed before its partner is known: every pair is a pass of the network. It is
here to measure what late interaction costs and saves.
"""

import copy
from dataclasses import dataclass
from itertools import chain
from typing import Any, Literal, Self

import numpy as np
import torch
from torch import Tensor, nn

from aptool.models.device import send
from aptool.models.encoders import Encoder
from aptool.models.pooling import Pooling
from aptool.models.ragged import Ragged
from aptool.models.transformer import CrossInput


class CrossPooling(Pooling):
    """The score of a pair is a linear function of a state of the two texts joined."""

    input_kind = "ids"
    _special_ids: Tensor  # (before + between + after,) the special tokens of a pair
    _segment_types: Tensor  # (5,) token types of the five segments of a pair

    @dataclass(frozen=True)
    class Options:
        """Options of ``cross`` pooling.

        Attributes:
            read: What is read of the states of a pair: the ``first`` one, or the ``mean`` of all.
        """

        read: Literal["first", "mean"] = "first"

    def __init__(self, encoder: CrossInput, options: Options) -> None:
        super().__init__()
        self.read = options.read
        self.backbone = encoder.network()
        self.head = nn.Linear(encoder.size, 1)
        nn.init.normal_(self.head.weight, std=0.02)
        nn.init.zeros_(self.head.bias)
        backbone = encoder.spec.backbone
        assert backbone is not None
        self._prefix_length = backbone["prefix_length"]
        self._suffix_length = backbone["suffix_length"]
        pair = backbone["pair"]
        special_tokens = [pair["before"], pair["between"], pair["after"]]
        self._special_counts = [len(ids) for ids in special_tokens]
        special_ids = torch.tensor(list(chain.from_iterable(special_tokens)), dtype=torch.int64)
        types = torch.tensor(pair["types"], dtype=torch.int64)
        self.register_buffer("_special_ids", special_ids, persistent=False)
        self.register_buffer("_segment_types", types, persistent=False)

    @classmethod
    def for_encoder(cls, encoder: Encoder, options: Any) -> Self:
        """See ``Pooling.for_encoder``."""
        assert isinstance(encoder, CrossInput)
        return cls(encoder, options)

    @classmethod
    def reads_first_state_only(cls, options: Any) -> bool:
        """See ``Pooling.reads_first_state_only``."""
        return bool(options.read == "first")

    def score_pairs(self, questions: Ragged, answers: Ragged) -> Tensor:
        """See ``Pooling.score_pairs``; the texts are token ids, values (N,) int64."""
        ids, types = self.join_pairs(questions, answers)
        if self.read == "first":
            states = self.backbone(ids, ids.offsets[:-1], types)  # (n, c)
        else:
            every = self.backbone(ids, ids.row_numbers(), types)
            states = torch.segment_reduce(every, "mean", lengths=ids.lengths, axis=0, unsafe=True)
        scores: Tensor = self.head(states.to(self.head.weight.dtype)).squeeze(1)
        return scores.float()

    def in_bf16(self) -> "CrossPooling":
        """See ``Pooling.in_bf16``: the network is in bf16, its head is not, or many pairs would tie."""
        other = copy.deepcopy(self)
        other.backbone.bfloat16()
        return other

    def join_pairs(self, questions: Ragged, answers: Ragged) -> tuple[Ragged, Tensor]:
        """Pairs as the network reads them: n sequences of token ids, and their (N,) int64 types.

        The special tokens around each text are replaced by those of a pair.
        """
        before, between, after = self._special_counts
        own = self._prefix_length + self._suffix_length
        bare_q, bare_a = questions.sizes - own, answers.sizes - own  # (n,)
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
