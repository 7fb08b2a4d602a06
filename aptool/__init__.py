"""aptool: train, score and evaluate answer-selection rankers, on one machine or a cluster.

    import aptool

    data = aptool.Collection("data/wikiqa")
    model = aptool.train(data, preset="ap-cnn", seed=0)
    run = model.run(data.pools("dev"))
    aptool.evaluate(data.qrels("dev"), run, ["MAP", "MRR", "P@1"]).means

The examples of the docstrings assume ``import aptool``, a small collection in ``data/wikiqa`` and a model in
``models/wikiqa``. Each public name is imported at its first use. Models need the extra ``torch``.
"""

import importlib
from typing import TYPE_CHECKING, Any

from aptool.environment import __version__ as __version__
from aptool.environment import requiring_torch

if TYPE_CHECKING:
    from aptool.data.collection import Collection as Collection
    from aptool.data.pools import Pools as Pools
    from aptool.data.runs import Qrels as Qrels
    from aptool.data.runs import Run as Run
    from aptool.errors import AptoolError as AptoolError
    from aptool.evaluation.compare import compare as compare
    from aptool.evaluation.fusion import fuse as fuse
    from aptool.evaluation.fusion import learn_fusion as learn_fusion
    from aptool.evaluation.measures import evaluate as evaluate
    from aptool.execution import bm25_run as bm25_run
    from aptool.execution import score as score
    from aptool.execution import train as train
    from aptool.scoring.model import Model as Model
    from aptool.scoring.model import load as load

_MODULES = {
    "AptoolError": "aptool.errors",
    "Collection": "aptool.data.collection",
    "Model": "aptool.scoring.model",
    "Pools": "aptool.data.pools",
    "Qrels": "aptool.data.runs",
    "Run": "aptool.data.runs",
    "bm25_run": "aptool.execution",
    "compare": "aptool.evaluation.compare",
    "evaluate": "aptool.evaluation.measures",
    "fuse": "aptool.evaluation.fusion",
    "learn_fusion": "aptool.evaluation.fusion",
    "load": "aptool.scoring.model",
    "score": "aptool.execution",
    "train": "aptool.execution",
}

__all__ = [*_MODULES, "__version__"]


def __getattr__(name: str) -> Any:
    """Import a public name at its first use."""
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    with requiring_torch(f"aptool.{name}"):
        value = getattr(importlib.import_module(_MODULES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    """The public names."""
    return sorted(__all__)
