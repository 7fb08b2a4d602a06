"""Kernels that score pairs from encoded texts: fast ones of some poolings, and one for any pooling."""

from aptool.models.attention import AttentivePooling
from aptool.models.cross import CrossPooling
from aptool.models.pooling import FirstPooling, MaxPooling, MeanPooling, Pooling
from aptool.scoring.kernels.attentive import AttentivePairScorer
from aptool.scoring.kernels.independent import FirstPairScorer, IndependentPairScorer
from aptool.scoring.kernels.pair_scorer import PairScorer
from aptool.scoring.kernels.pairwise import CrossPairScorer, PairwisePairScorer

PAIR_SCORERS: dict[type[Pooling], type[PairScorer]] = {
    AttentivePooling: AttentivePairScorer,
    CrossPooling: CrossPairScorer,
    FirstPooling: FirstPairScorer,
    MaxPooling: IndependentPairScorer,
    MeanPooling: IndependentPairScorer,
}


def pair_scorer_for(pooling: Pooling) -> PairScorer:
    """The kernel of a pooling: its own, or else the one for any pooling."""
    kernel = PAIR_SCORERS.get(type(pooling), PairwisePairScorer)
    return (kernel if kernel.suits(pooling) else PairwisePairScorer)(pooling)
