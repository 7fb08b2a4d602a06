"""Kernels that score pairs of encoded texts: fast kernels for some poolings, and one for any pooling."""

from typing import Any

from aptool.models.attention import AttentivePooling
from aptool.models.causal import CausalPooling
from aptool.models.matching import MatchPooling
from aptool.models.pooling import FirstPooling, IndependentPooling, Pooling
from aptool.models.transformer import PairPooling
from aptool.scoring.kernels.attentive import AttentivePairScorer
from aptool.scoring.kernels.pair_scorer import (
    CausalPairScorer,
    CrossPairScorer,
    FirstPairScorer,
    IndependentPairScorer,
    MatchPairScorer,
    PairScorer,
    PairwisePairScorer,
)

# The kernel of a pooling, and of its subclasses that redefine nothing of what the kernel re-implements.
PAIR_SCORERS: dict[Any, type[PairScorer]] = {
    AttentivePooling: AttentivePairScorer,
    MatchPooling: MatchPairScorer,
    PairPooling: CrossPairScorer,
    CausalPooling: CausalPairScorer,
    FirstPooling: FirstPairScorer,
    IndependentPooling: IndependentPairScorer,
}


def pair_scorer_for(pooling: Pooling) -> PairScorer:
    """Return the kernel of a pooling; ``PairwisePairScorer`` supports any pooling."""
    kernels = (PAIR_SCORERS[kind] for kind in type(pooling).__mro__ if kind in PAIR_SCORERS)
    return next((kernel for kernel in kernels if kernel.suits(pooling)), PairwisePairScorer)(pooling)
