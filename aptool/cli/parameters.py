"""Options that several commands share, and parameter types that click does not have."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial, wraps
from typing import TYPE_CHECKING, Any, TypeAlias

import click
from click.shell_completion import CompletionItem

from aptool.options import BELOW

if TYPE_CHECKING:
    from aptool.formats.location import Location


class Utf8(click.ParamType):  # type: ignore[type-arg]  # not generic in click 8.1
    """Text that can be written as UTF-8; Python passes other bytes of an argument as surrogates."""

    name = "text"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Returns the text unchanged.

        Raises:
            click.BadParameter: the text cannot be written as UTF-8.
        """
        try:
            value.encode("utf-8")
        except UnicodeEncodeError:
            self.fail(f"{value!r}: expected text in UTF-8", param, ctx)
        return value


UTF8 = Utf8()


class LocationType(click.ParamType):  # type: ignore[type-arg]
    """A path of this machine, or a URL of an object store, which ``pathlib`` would change."""

    name = "path"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Location:
        """Returns the path or URL as an object with the methods of a path."""
        from aptool.formats.location import location

        return location(value)

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        """Lets the shell complete names of files."""
        return [CompletionItem(incomplete, type="file")]


LOCATION = LocationType()


def complete_preset(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """What a shell completes after ``--preset``: the names of the presets, or recipe files."""
    from aptool.config import preset_names

    names = [CompletionItem(name) for name in preset_names() if name.startswith(incomplete)]
    return names or [CompletionItem(incomplete, type="file")]  # bash forgets the names beside a file


def whole_number(least: int = 1) -> click.IntRange:
    """A whole number of an option: like those of a recipe it has bounds, see ``config.BELOW``."""
    return click.IntRange(least, int(BELOW[int]) - 1)


class Seed(click.IntRange):
    """A random seed: what every generator of numbers takes."""

    def __init__(self) -> None:
        super().__init__(0, 2**63 - 1)


class HiddenArgument(click.Argument):
    """An argument that earlier versions documented: still accepted, not shown in the usage line."""

    def get_usage_pieces(self, ctx: click.Context) -> list[str]:
        """None."""
        return []


def one_output(output: Location | None, argument: Location | None) -> Location:
    """The output of a command, from ``--output`` or from the argument that earlier versions took.

    Raises:
        click.UsageError: neither is given, or both.
    """
    if output is not None and argument is not None:
        raise click.UsageError(f"The output is given twice: --output {output} and {argument}.")
    path = output if output is not None else argument
    if path is None:
        raise click.UsageError("Missing option '--output'.")
    return path


device_option = click.option(
    "--device",
    default="auto",
    show_default=True,
    help="Device: auto (a GPU if there is one), cpu, cuda, or one GPU such as cuda:1.",
)

# Its value is passed as ``folder``.
model_option = click.option(
    "--model",
    "folder",
    type=LOCATION,
    help="Model folder, of aptool or another library, or a name on the hub.  [default: models/ap-cnn]",
)

kind_option = click.option(
    "--kind",
    type=click.Choice(["auto", "sentence-transformers", "cross-encoder", "colbert", "static"]),
    default="auto",
    show_default=True,
    help="What a model of another library is, where its folder could be several things.",
)

tokens_per_batch_option = click.option(
    "--tokens-per-batch",
    type=whole_number(),
    metavar="N",
    help="Tokens per batch; fewer need less memory.  [default: 8,192; on a GPU 262,144]",
)


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
