"""The cross-encoder: question and answer as one text through a pretrained network (Nogueira and Cho, 2019).

Nothing of a text can be worked out before its partner is known: every pair is a pass of the network. It is
here to tell what late interaction costs and saves.
"""

import copy
from dataclasses import dataclass
from itertools import chain
from typing import Any, Literal, Self

import torch
from torch import Tensor, nn

from aptool.models.encoder import Encoder
from aptool.models.pooling import Pooling
from aptool.models.ragged import Ragged
from aptool.models.transformer import CrossInput


class CrossPooling(Pooling):
    """A linear function of a state of the pair."""

    input_kind = "ids"
    _marks: Tensor
    _types: Tensor  # (5,) of the parts of a pair

    @dataclass(frozen=True)
    class Options:
        """Options of ``cross`` pooling.

        Attributes:
            read: the state that is read: the ``first``, or the ``mean`` of all.
        """

        read: Literal["first", "mean"] = "first"

    def __init__(self, encoder: CrossInput, options: Options) -> None:
        super().__init__()
        self.read = options.read
        self.backbone = encoder.network()
        self.head = nn.Linear(encoder.size, 1)
        nn.init.normal_(self.head.weight, std=0.02)
        nn.init.zeros_(self.head.bias)
        assert encoder.shape.backbone is not None
        self._head, self._tail = encoder.shape.backbone["head"], encoder.shape.backbone["tail"]
        pair = encoder.shape.backbone["pair"]
        marks = [pair["before"], pair["between"], pair["after"]]
        self._counts = [len(some) for some in marks]
        ids = torch.tensor(list(chain.from_iterable(marks)), dtype=torch.int64)
        self.register_buffer("_marks", ids, persistent=False)
        self.register_buffer("_types", torch.tensor(pair["types"], dtype=torch.int64), persistent=False)

    @classmethod
    def over(cls, encoder: Encoder, options: Any) -> Self:
        """See ``Pooling.over``."""
        assert isinstance(encoder, CrossInput)
        return cls(encoder, options)

    @classmethod
    def reads_first(cls, options: Any) -> bool:
        """See ``Pooling.reads_first``."""
        return bool(options.read == "first")

    def scores(self, questions: Ragged, answers: Ragged) -> Tensor:
        """See ``Pooling.scores``; the states are ids, values (N,) int64."""
        ids, types = self.together(questions, answers)
        if self.read == "first":
            states = self.backbone(ids, ids.offsets[:-1], types)  # (n, c)
        else:
            every = self.backbone(ids, Ragged.of_lengths(ids.lengths).values, types)
            states = torch.segment_reduce(every, "mean", lengths=ids.lengths, axis=0)
        scores: Tensor = self.head(states.to(self.head.weight.dtype)).squeeze(1)
        return scores.float()

    def all_scores(self, questions: Ragged, answers: Ragged) -> Tensor:
        """See ``Pooling.all_scores``: one pass for each of them."""
        n, k = len(questions.lengths), len(answers.lengths)
        device = questions.offsets.device
        first = torch.arange(n, device=device).repeat_interleave(k)
        second = torch.arange(k, device=device).repeat(n)
        return self.scores(questions.select(first), answers.select(second)).view(n, k)

    def in_bf16(self) -> "CrossPooling":
        """See ``Pooling.in_bf16``: the network is; a head in it would have many pairs tie."""
        other = copy.deepcopy(self)
        other.backbone.bfloat16()
        return other

    def together(self, questions: Ragged, answers: Ragged) -> tuple[Ragged, Tensor]:
        """Pairs as the network wants them: ids of n texts, and (N,) types.

        The marks that the texts have by themselves give way to those of a pair.
        """
        before, between, after = self._counts
        own = self._head + self._tail
        bare_q, bare_a = questions.lengths - own, answers.lengths - own
        # Every id there is, end to end; a pair is five stretches of it.
        pool = torch.cat([self._marks, questions.values, answers.values])
        first_q = before + between + after
        first_a = first_q + len(questions.values)
        one = torch.ones_like(bare_q)
        starts = [0 * one, first_q + questions.offsets[:-1] + self._head, before * one]
        starts += [first_a + answers.offsets[:-1] + self._head, (before + between) * one]
        counts = [before * one, bare_q, between * one, bare_a, after * one]
        stretches = torch.stack(counts, 1)  # (n, 5)
        lengths = stretches.flatten()
        shift = torch.stack(starts, 1).flatten() - (lengths.cumsum(0) - lengths)
        place = torch.arange(int(lengths.sum()), device=lengths.device) + shift.repeat_interleave(lengths)
        types = self._types.repeat(len(bare_q)).repeat_interleave(lengths)
        return Ragged.of_lengths(stretches.sum(1)).with_values(pool[place]), types
