"""The options ``--cluster``, ``--workers``, ``--gpus-per-worker`` and ``--wait`` of commands."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, TypeVar

import click

from aptool.cli.parameters import whole_number

if TYPE_CHECKING:
    from aptool.cluster.resources import Cluster

WAIT = f"{__name__}.wait"  # the value of --wait in click's context

Command = TypeVar("Command", bound=Callable[..., object])


def cluster_options(command: Command) -> Command:
    """Adds the options to a command; it gets ``cluster``, ``workers`` and ``gpus_per_worker``."""
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
            type=whole_number(),
            help="Number of worker processes.  [default: as many as there is room for]",
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


def check_cluster_options(cluster: str | None, workers: int | None, gpus_per_worker: float | None) -> None:
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
