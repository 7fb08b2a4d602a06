"""The ``aptool`` command: the group of all commands, and errors as one line with an exit code."""

import contextlib
import difflib
import importlib
import io
import logging
import platform
import re
import signal
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import ClassVar, NoReturn

import click
from typing_extensions import override

from aptool.environment import __version__, devices, limit_spinning, requiring_torch, version_of
from aptool.errors import AptoolError, printable
from aptool.plugins import use_plugin

logger = logging.getLogger("aptool")

# Characters per error message; click repeats a wrong value of any length.
_LONGEST_LINE = 2000

# Commands that keep finished work when they are interrupted.
_RESUMING = ("train", "score", "matrix")

# Packages that ``--version`` lists if they are installed.
VERSIONED = ("torch", "ray", "transformers", "sentence-transformers")


class LazyGroup(click.Group):
    """A group that imports the module of a command when the command runs, and not for ``--help``."""

    entries: ClassVar = {
        "data": ("aptool.cli.data", "data", "Build, import, check and describe collections."),
        "vectors": ("aptool.cli.vectors", "vectors", "Distill word vectors from a sentence encoder."),
        "train": ("aptool.cli.train", "train", "Train a model on a collection."),
        "score": ("aptool.cli.score", "score", "Score pools of candidates into a TREC run file."),
        "eval": ("aptool.cli.evaluate", "evaluate", "Evaluate runs against qrels, as trec_eval does."),
        "compare": ("aptool.cli.compare", "compare", "Compare runs with a baseline: significance tests."),
        "fuse": ("aptool.cli.evaluate", "fuse", "Fuse runs, by reciprocal rank or with learned weights."),
        "explain": ("aptool.cli.explain", "explain", "Show the weight of each word in the score of a pair."),
        "matrix": ("aptool.cli.matrix", "matrix", "Run experiments: collections x systems x seeds."),
        "report": ("aptool.cli.matrix", "report", "Write an HTML report on the experiments of a matrix."),
    }

    @override
    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self.entries)

    @override
    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in self.entries:
            near = difflib.get_close_matches(cmd_name, self.entries, n=1)
            if near:
                ctx.fail(f"No such command {cmd_name!r}. Did you mean {near[0]!r}?")
            return None
        module, attribute, _ = self.entries[cmd_name]
        command: click.Command = getattr(importlib.import_module(module), attribute)
        return command

    @override
    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (_, _, text) in self.entries.items()])


def print_version(context: click.Context, parameter: click.Parameter, value: bool) -> None:
    """Print the versions of aptool, of Python and of `VERSIONED`, then the devices of PyTorch, and exit."""
    if not value or context.resilient_parsing:
        return
    click.echo(f"aptool {__version__}")
    installed = [("Python", platform.python_version()), *((name, version_of(name)) for name in VERSIONED)]
    click.echo(", ".join(f"{name} {version}" for name, version in installed if version))
    click.echo(", ".join(devices()))
    context.exit()


@click.group(
    cls=LazyGroup,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100, "show_default": True},
)
@click.option(
    "--version",
    is_flag=True,
    expose_value=False,
    is_eager=True,
    callback=print_version,
    help="Print versions and devices.",
)
@click.option("--debug", is_flag=True, help="Print the traceback of an error.")
@click.option(
    "--plugin",
    metavar="FILE",
    multiple=True,
    help="Python file that registers encoders or poolings; repeatable.",
)
def cli(debug: bool, plugin: tuple[str, ...]) -> None:
    """Train, score and evaluate answer-selection rankers (Attentive Pooling Networks)."""
    for name in plugin:
        use_plugin(name)


class _StderrHandler(logging.Handler):
    """Writes messages as plain lines, above a progress bar if one is shown."""

    @override
    def emit(self, record: logging.LogRecord) -> None:
        with contextlib.suppress(OSError):  # a full disk, or a closed pipe
            self._print(printable(record.getMessage()))

    def _print(self, line: str) -> None:
        if "tqdm" in sys.modules and sys.stderr.isatty():
            from tqdm import tqdm

            with tqdm.external_write_mode(file=sys.stderr):
                click.echo(line, err=True)
        else:
            click.echo(line, err=True)


@contextlib.contextmanager
def messages_on_stderr() -> Iterator[None]:
    """Show log messages of the library on stderr."""
    handler, level, propagate = _StderrHandler(logging.INFO), logger.level, logger.propagate
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    logger.propagate = False
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.setLevel(level)
        logger.propagate = propagate


def main(received: Sequence[int] = ()) -> NoReturn:
    """Run the command line and exit; ``received`` lists the signals that have interrupted it."""
    limit_spinning()  # before torch is imported
    _make_streams_tolerant()
    debug = "--debug" in sys.argv[1:]
    arguments = [argument for argument in sys.argv[1:] if argument != "--debug"]
    command = next((argument for argument in arguments if argument in LazyGroup.entries), "")
    resuming = "; the same command resumes" if command in _RESUMING else ""
    try:
        with messages_on_stderr(), requiring_torch("this command"):
            if debug:
                logger.setLevel(logging.DEBUG)
            code = cli.main(arguments, prog_name="aptool", standalone_mode=False)
    except click.exceptions.Exit as stop:
        sys.exit(stop.exit_code)
    except (click.Abort, KeyboardInterrupt):
        _fail(f"interrupted{resuming}", 130)
    except SystemExit:
        if signal.SIGTERM not in received:  # Ray raises an exit of its own in place of the signal's
            raise
        _fail(f"terminated{resuming}", 143)
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
        _fail(_with_dashes(str(error), arguments), error.exit_code)
    except (MemoryError, RuntimeError) as error:
        if debug or not _is_out_of_memory(error):
            raise
        _fail("out of memory; expected smaller inputs, a device with more free memory, or --device cpu", 1)
    except OSError as error:
        # Permission denied, file name too long, disk full.
        if debug or error.strerror is None:
            raise
        _fail(f"{error.filename or 'output'}: {error.strerror}", 1)
    sys.exit(code if isinstance(code, int) else 0)


def _is_out_of_memory(error: MemoryError | RuntimeError) -> bool:
    if "torch" not in sys.modules:
        return isinstance(error, MemoryError)
    from aptool.models.device import is_out_of_memory

    return is_out_of_memory(error)


def _with_dashes(message: str, arguments: list[str]) -> str:
    """Name an argument that a message begins with as the option that was given, such as ``--workers``."""
    found = re.match(r"(\w+)[: ]", message)
    if found is None:
        return message
    option = f"--{found[1].replace('_', '-')}"
    if Path(found[1]).exists() or not any(argument.partition("=")[0] == option for argument in arguments):
        return message
    return option + re.sub(r"^(: requires )(\w+)$", r"\1--\2", message.removeprefix(found[1]))


def _make_streams_tolerant() -> None:
    """Escape characters that the encodings of stdout and stderr lack."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper) and stream.errors == "strict":
            stream.reconfigure(errors="backslashreplace")


def _fail(message: str, code: int) -> NoReturn:
    line = " ".join(message.splitlines())
    line = line if len(line) <= _LONGEST_LINE else line[: _LONGEST_LINE - 1] + "…"
    with contextlib.suppress(OSError):  # a full disk, or a closed pipe
        click.echo(f"aptool: {printable(line)}", err=True)
    sys.exit(code)
