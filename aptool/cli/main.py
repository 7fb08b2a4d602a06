"""``aptool``: the group of all commands, and the one place where errors become lines and exit codes."""

import difflib
import importlib
import io
import os
import sys
from pathlib import Path
from typing import ClassVar, NoReturn

import click

from aptool import __version__
from aptool.cli.display import messages_on_stderr
from aptool.errors import AptoolError


class LazyGroup(click.Group):
    """A group that imports a command's module only when that command runs.

    ``aptool --help`` answers from the lines below without loading anything heavy.
    """

    entries: ClassVar = {
        "data": ("aptool.cli.data", "data", "Make, import, check and describe collections."),
        "vectors": ("aptool.cli.vectors", "vectors", "Learn or distill word vectors."),
        "train": ("aptool.cli.train", "train", "Train a system on a collection."),
        "score": ("aptool.cli.score", "score", "Score pools of candidates into a TREC run file."),
        "eval": ("aptool.cli.evaluate", "evaluate", "Evaluate run files against qrels, as trec_eval does."),
        "compare": ("aptool.cli.compare", "compare", "Test whether runs differ from a baseline, and where."),
        "plot": ("aptool.cli.plot", "plot", "Draw runs or training as PNG or SVG, with the data as CSV."),
        "explain": ("aptool.cli.explain", "explain", "Show where a model looked in a pair of texts."),
        "matrix": ("aptool.cli.matrix", "matrix", "Run a table of experiments: collections, systems, seeds."),
        "report": ("aptool.cli.report", "report", "Write a report of a folder of runs, in one HTML file."),
    }

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Names, in the order of a working day."""
        return list(self.entries)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Imports the command's module; of a name that there is not, says the nearest."""
        if cmd_name not in self.entries:
            near = difflib.get_close_matches(cmd_name, self.entries, n=1)
            if near:
                ctx.fail(f"No such command {cmd_name!r}. Did you mean {near[0]!r}?")
            return None
        module, attribute, _ = self.entries[cmd_name]
        command: click.Command = getattr(importlib.import_module(module), attribute)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The list of commands, without importing them."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (_, _, text) in self.entries.items()])


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="aptool")
@click.option("--debug", is_flag=True, help="Show the traceback of an error.")
def cli(debug: bool) -> None:
    """Train, score and evaluate answer-selection rankers (Attentive Pooling Networks)."""


def main() -> NoReturn:
    """The console command."""
    _steady_streams()
    debug = "--debug" in sys.argv[1:]
    arguments = [argument for argument in sys.argv[1:] if argument != "--debug"]
    try:
        with messages_on_stderr():
            code = cli.main(arguments, prog_name="aptool", standalone_mode=False, obj={"debug": debug})
        sys.exit(code if isinstance(code, int) else 0)
    except click.exceptions.Exit as stop:
        sys.exit(stop.exit_code)
    except (click.Abort, KeyboardInterrupt):
        _fail("interrupted", 130)
    except click.ClickException as error:
        if isinstance(error, getattr(click.exceptions, "NoArgsIsHelpError", ())):  # since click 8.2
            click.echo(error.format_message(), err=True)
            sys.exit(error.exit_code)
        if debug:
            raise
        hint = ""
        if isinstance(error, click.UsageError) and error.ctx is not None:
            hint = f" (see `{error.ctx.command_path} --help`)"
        _fail(" ".join(error.format_message().split()) + hint, error.exit_code)
    except AptoolError as error:
        if debug:
            raise
        _fail(str(error), error.exit_code)
    except OSError as error:
        # A folder that may not be entered, a name too long, a disk that is full: wherever it comes up.
        if debug or error.strerror is None:
            raise
        _fail(f"{error.filename or 'output'}: {error.strerror!r}: expected a place for files", 1)


def _steady_streams() -> None:
    """Has output written as it can be where a terminal's encoding, or the output itself, is lacking."""
    if sys.stdout is None:
        sys.stdout = Path(os.devnull).open("w", encoding="utf-8")  # noqa: SIM115 - closed with the process
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper) and stream.errors == "strict":
            stream.reconfigure(errors="backslashreplace")


def _fail(message: str, code: int) -> NoReturn:
    click.echo(f"aptool: {' '.join(message.splitlines())}", err=True)
    sys.exit(code)
