"""The options ``--cluster``, ``--workers``, ``--gpus-per-worker`` and ``--wait`` of commands."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

import click

from aptool.cli.parameters import whole_number

if TYPE_CHECKING:
    from aptool.cluster.resources import Cluster, Workers

WAIT = f"{__name__}.wait"  # the value of --wait in click's context

Command = TypeVar("Command", bound=Callable[..., object])


class WorkersType(click.ParamType):  # type: ignore[type-arg]
    """A number of workers, or the least and the most: ``4`` or ``2:8``."""

    name = "workers"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> int | tuple[int, int]:
        """Returns a number, or the two.

        Raises:
            click.BadParameter: it is neither.
        """
        least, colon, most = str(value).partition(":")
        number: Any = partial(whole_number(), param=param, ctx=ctx)
        return (number(least), number(most)) if colon else number(least)


def cluster_options(command: Command, *, elastic: bool = False) -> Command:
    """Adds the options to a command; it gets ``cluster``, ``workers`` and ``gpus_per_worker``.

    Args:
        command: the command.
        elastic: whether the number of workers may change while it runs.
    """
    number = "Number of worker processes.  [default: as many as there is room for]"
    between = (
        "Number of worker processes, or the least and the most: then nodes may leave and join.  "
        "[default: one per GPU, or one per node]"
    )
    options = (
        click.option(
            "--cluster",
            is_flag=False,
            flag_value="",
            metavar="[ADDRESS]",
            help="Run on a Ray cluster: host:port, ray://host:port, auto, or local to start one on this "
            "machine.  [default without ADDRESS: RAY_ADDRESS, else auto]",
        ),
        click.option(
            "--workers",
            type=WorkersType() if elastic else whole_number(),
            metavar="N|MIN:MAX" if elastic else None,
            help=between if elastic else number,
        ),
        click.option(
            "--gpus-per-worker",
            type=click.FloatRange(min=0),
            help="GPUs per worker; may be fractional.  [default: 1 on a cluster with GPUs, else 0]",
        ),
        click.option(
            "--wait",
            type=click.FloatRange(min=0),
            metavar="SECONDS",
            expose_value=False,
            callback=lambda context, _, value: context.meta.update({WAIT: value}),
            help="How long to wait for nodes or resources of the cluster.  [default: without end]",
        ),
    )
    for option in reversed(options):
        command = option(command)
    return command


def check_cluster_options(cluster: str | None, workers: Workers, gpus_per_worker: float | None) -> None:
    """Checks the options against each other.

    Raises:
        UsageError: one of them without a cluster, or an impossible number of GPUs.
    """
    from aptool.library.executors import check_workers

    check_workers(cluster, workers, gpus_per_worker, _wait(), options=True)


def debugging() -> bool:
    """Whether the command runs with ``--debug``."""
    found = click.get_current_context().find_object(dict)
    return bool(found and found.get("debug"))


@contextmanager
def connected(cluster: str | None) -> Iterator[Cluster | None]:
    """Connects to a cluster while the block runs; yields None without ``--cluster``."""
    from aptool.library import executors

    # Without an address the option is empty.
    with executors.connected(cluster if cluster != "" else True, debug=debugging(), wait=_wait()) as found:
        yield found


def _wait() -> float | None:
    found: float | None = click.get_current_context().meta.get(WAIT)
    return found
