"""Kernels that score pairs from encoded texts, one for each pooling."""

from aptool.models.attention import AttentivePooling
from aptool.models.cross import CrossPooling
from aptool.models.pooling import FirstPooling, MaxPooling, MeanPooling, Pooling
from aptool.scoring.kernels.attentive import AttentivePairScorer
from aptool.scoring.kernels.cross import CrossPairScorer
from aptool.scoring.kernels.independent import FirstPairScorer, IndependentPairScorer
from aptool.scoring.kernels.pair_scorer import PairScorer

PAIR_SCORERS: dict[type[Pooling], type[PairScorer]] = {
    AttentivePooling: AttentivePairScorer,
    CrossPooling: CrossPairScorer,
    FirstPooling: FirstPairScorer,
    MaxPooling: IndependentPairScorer,
    MeanPooling: IndependentPairScorer,
}


def pair_scorer_for(pooling: Pooling) -> PairScorer:
    """The kernel of a pooling."""
    return PAIR_SCORERS[type(pooling)](pooling)
