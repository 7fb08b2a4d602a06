"""The poolings that recipes can name."""

from typing import Any

from aptool.models.cross import CrossPooling
from aptool.models.pooling import AttentivePooling, FirstPooling, MaxPooling, MeanPooling

POOLINGS: dict[str, Any] = {
    "max": MaxPooling,
    "attentive": AttentivePooling,
    "mean": MeanPooling,
    "first": FirstPooling,
    "cross": CrossPooling,
}
