"""From a pooling to the kernel that scores pairs of encoded texts."""

from aptool.models.pooling import Pooling
from aptool.scoring.kernels.attentive import AttentivePairScorer
from aptool.scoring.kernels.pair_scorer import (
    IndependentPairScorer,
    MatchPairScorer,
    PairScorer,
    PairwisePairScorer,
)

# ``Pooling.kernel``.
PAIR_SCORERS: dict[str, type[PairScorer]] = {
    "attentive": AttentivePairScorer,
    "match": MatchPairScorer,
    "independent": IndependentPairScorer,
    "pairwise": PairwisePairScorer,
}


def pair_scorer_for(pooling: Pooling) -> PairScorer:
    """Return the kernel that a pooling names; where its class redefines a method, the kernel of a parent."""
    kinds = [kind for kind in type(pooling).__mro__ if "kernel" in vars(kind)]
    kernels = (PAIR_SCORERS[vars(kind)["kernel"]] for kind in kinds)
    return next(kernel for kernel in kernels if kernel.suits(pooling))(pooling)
