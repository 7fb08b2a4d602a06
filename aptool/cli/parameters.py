"""Options that several commands share, and parameter types that click does not have."""

from typing import TYPE_CHECKING, Any

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

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> "Location":
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


def one_output(output: "Location | None", argument: "Location | None") -> "Location":
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
