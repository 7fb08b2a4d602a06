"""Kernels that score pairs from encoded texts: fast ones of some poolings, and one for any pooling."""

from typing import Any

from aptool.models.attention import AttentivePooling
from aptool.models.cross import PairPooling
from aptool.models.matching import MatchPooling
from aptool.models.pooling import FirstPooling, IndependentPooling, Pooling
from aptool.scoring.kernels.attentive import AttentivePairScorer
from aptool.scoring.kernels.pair_scorer import (
    CrossPairScorer,
    FirstPairScorer,
    IndependentPairScorer,
    MatchPairScorer,
    PairScorer,
    PairwisePairScorer,
)

# By the pooling or what it is derived from.
PAIR_SCORERS: dict[Any, type[PairScorer]] = {
    AttentivePooling: AttentivePairScorer,
    MatchPooling: MatchPairScorer,
    PairPooling: CrossPairScorer,
    FirstPooling: FirstPairScorer,
    IndependentPooling: IndependentPairScorer,
}


def pair_scorer_for(pooling: Pooling) -> PairScorer:
    """The kernel of a pooling: its own, or else the one for any pooling."""
    kernels = (PAIR_SCORERS[kind] for kind in type(pooling).__mro__ if kind in PAIR_SCORERS)
    kernel = next(kernels, PairwisePairScorer)
    return (kernel if kernel.suits(pooling) else PairwisePairScorer)(pooling)
