"""The options ``--cluster``, ``--workers``, ``--gpus-per-worker`` and ``--wait`` of commands."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial, wraps
from typing import Any, TypeAlias

import click

from aptool.cli.parameters import whole_number

Command: TypeAlias = Callable[..., None]


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
    """Adds the options to a command with ``--device``; the command gets all of them as one ``where``.

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
            help="How long to wait for nodes or resources of the cluster.  [default: without end]",
        ),
    )

    @wraps(command)
    def with_where(
        *,
        device: str,
        cluster: str | None,
        workers: int | tuple[int, int] | None,
        gpus_per_worker: float | None,
        wait: float | None,
        **others: Any,
    ) -> None:
        from aptool.library.where import Where

        state = click.get_current_context().find_object(dict)
        debug = bool(state and state.get("debug"))
        address = True if cluster == "" else cluster  # without an address the option is empty
        where = Where(device, address, workers, gpus_per_worker, wait, debug=debug, from_options=True)
        command(where=where, **others)

    result: Command = with_where
    for option in reversed(options):
        result = option(result)
    return result
