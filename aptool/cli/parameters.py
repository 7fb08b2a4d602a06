"""Options that several commands share, and types of options that click does not have."""

from typing import Any

import click


class Utf8(click.ParamType):
    """Text, as a terminal gives it that is set to UTF-8: bytes that are none of it come in as surrogates."""

    name = "text"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """The text as it is.

        Raises:
            click.BadParameter: it cannot be written as UTF-8.
        """
        try:
            value.encode("utf-8")
        except UnicodeEncodeError:
            self.fail(f"{value!r}: expected text in UTF-8", param, ctx)
        return value


UTF8 = Utf8()

device_option = click.option(
    "--device",
    default="auto",
    show_default=True,
    help="Device to compute on: auto (a GPU if there is one), cpu, cuda, or one GPU such as cuda:1.",
)
