"""Options that several commands share, and parameter types that click does not have."""

from __future__ import annotations

import logging
from functools import partial
from pathlib import Path
from typing import Any

import click
from typing_extensions import override

from aptool.config import BELOW
from aptool.environment import ENCODER_BATCHES
from aptool.paths import location

logger = logging.getLogger(__name__)

DEFAULT_MODEL = Path("models/ap-cnn")


class LocationType(click.Path):
    """A local path, or a URL of an object store, which ``pathlib`` would change."""

    @override
    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        return location(value)


LOCATION = LocationType()


class Bounded(click.ParamType):  # type: ignore[type-arg]
    """A number in a range that the help does not show."""

    def __init__(self, bounds: click.IntRange | click.FloatRange) -> None:
        self.name = bounds.name
        self._bounds = bounds

    @override
    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        return self._bounds.convert(value, param, ctx)


class Count(Bounded):
    """A whole number from ``least`` to ``most``."""

    def __init__(self, least: int = 1, most: int = int(BELOW[int]) - 1) -> None:
        super().__init__(click.IntRange(least, most))


class WorkersType(click.ParamType):  # type: ignore[type-arg]
    """A number of workers, or the minimum and the maximum: ``4`` or ``2:8``."""

    name = "workers"

    @override
    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> int | tuple[int, int]:
        least, colon, most = str(value).partition(":")
        number = partial(Count().convert, param=param, ctx=ctx)
        return (number(least), number(most)) if colon else number(least)


device_option = click.option(
    "--device",
    metavar="DEVICE",
    default="auto",
    help="Device: cpu, cuda, cuda:N or auto (a GPU if available).",
)


def default_model() -> Path:
    """Return the model folder that ``aptool train COLLECTION`` writes."""
    logger.info(f"--model {DEFAULT_MODEL} (default)")
    return DEFAULT_MODEL


tokens_per_batch_option = click.option(
    "--tokens-per-batch",
    type=Count(),
    metavar="N",
    help=f"Tokens per batch; fewer save memory.  [default: {ENCODER_BATCHES}]",
)
seed_option = click.option("--seed", type=Count(0, 2**63 - 1), metavar="N", default=0, help="Random seed.")
json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON, in full precision.")
overwrite_flag = click.option("--overwrite", is_flag=True, help="Replace an output that exists.")


cluster_option = click.option(
    "--cluster",
    is_flag=False,
    flag_value="",
    callback=lambda context, option, address: True if address == "" else address,
    metavar="[ADDRESS]",
    help="Run on Ray: host:port, auto, or local (start a cluster here).  "
    "[default: no cluster; without ADDRESS: RAY_ADDRESS, else auto]",
)
workers_option = click.option(
    "--workers",
    type=WorkersType(),
    metavar="N|MIN:MAX",
    help="Workers; MIN:MAX: nodes may join and leave.  [default: all that fit; `train`: one per GPU or node]",
)
gpus_option = click.option(
    "--gpus-per-worker",
    type=Bounded(click.FloatRange(min=0)),
    metavar="X",
    help="GPUs per worker, may be fractional.  [default: 1; without GPUs 0]",
)
