"""Options that several commands share, parameter types that click does not have, and help in sections."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable
from functools import partial, wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import click
from click.shell_completion import CompletionItem
from typing_extensions import override

from aptool.environment import ENCODER_BATCHES
from aptool.errors import UsageError
from aptool.options import BELOW

if TYPE_CHECKING:
    from aptool.paths import Location

Command: TypeAlias = Callable[..., None]

logger = logging.getLogger(__name__)

_MODEL = Path("models/ap-cnn")

# Sections of the help of long commands; an option that is in none of them is an advanced one.
_ADVANCED = "Advanced"
_SECTIONS = {
    "Model": "--model --backend --words --preset --set --vectors --start",
    "Input and output": "--output --overwrite --qrels --corpus --queries --pools --run --top "
    "--answers --tag --name --split --split-ratio --add-candidates "
    "--let --quick --groups --per-question --json --markdown --latex --format",
    "Columns": "--question --answer --label --question-id --answer-id --separator --encoding",
    "Evaluation": "--measures --baseline --level --by --intervals --confidence --limits --on-common",
    "Hardware": "--device --precision --tokens-per-batch --jobs --cluster --workers --gpus-per-worker --wait",
}
_SECTION_OF = {option: title for title, options in _SECTIONS.items() for option in options.split()}
_RANKS = {option: rank for rank, option in enumerate(_SECTION_OF)}


class SectionedCommand(click.Command):
    """A command whose help lists its options by section, in the order of ``_SECTIONS``."""

    @override
    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        sections: dict[str, list[tuple[str, str]]] = {title: [] for title in (*_SECTIONS, _ADVANCED)}
        options = [parameter for parameter in self.get_params(ctx) if isinstance(parameter, click.Option)]
        options.sort(key=lambda option: _RANKS.get(option.opts[-1], len(_RANKS)))
        for option in options:
            record = option.get_help_record(ctx)
            if record is not None:
                sections[_SECTION_OF.get(option.opts[-1], _ADVANCED)].append(record)
        for title, records in sections.items():
            if records:
                with formatter.section(title):
                    formatter.write_dl(records)


class Utf8(click.ParamType):  # type: ignore[type-arg]  # not generic in click 8.1
    """Text that can be written as UTF-8; Python passes other bytes of an argument as surrogates."""

    name = "text"

    @override
    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        try:
            value.encode("utf-8")
        except UnicodeEncodeError:
            self.fail(f"{value!r}: expected text in UTF-8", param, ctx)
        return value


UTF8 = Utf8()


class LocationType(click.ParamType):  # type: ignore[type-arg]
    """A local path, or a URL of an object store, which ``pathlib`` would change."""

    name = "path"

    @override
    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Location | str:
        from aptool.paths import location

        return location(value)

    @override
    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        return [CompletionItem(incomplete, type="file")]


LOCATION = LocationType()


class Bounded(click.ParamType):  # type: ignore[type-arg]
    """A number in a range that the help does not show; not NaN, which click accepts in every range."""

    def __init__(self, bounds: click.IntRange | click.FloatRange) -> None:
        self.name = bounds.name
        self._bounds = bounds

    @override
    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        number = self._bounds.convert(value, param, ctx)
        if math.isnan(number):
            self.fail(f"{value!r} is not a number.", param, ctx)
        return number


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


def complete_preset(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Complete ``--preset`` with the names of presets, else with files."""
    from aptool.config import preset_names

    names = [CompletionItem(name) for name in preset_names() if name.startswith(incomplete)]
    return names or [CompletionItem(incomplete, type="file")]  # bash cannot offer both


device_option = click.option(
    "--device",
    metavar="DEVICE",
    default="auto",
    help="Device: cpu, cuda, cuda:N or auto (a GPU if available).",
)
# Its value is passed as ``folder``.
model_option = click.option(
    "--model",
    "folder",
    metavar="MODEL",
    type=LOCATION,
    help=f"Model folder or Hugging Face name (ORG/NAME).  [default: {_MODEL}]",
)


def default_model() -> Path:
    """Return the model folder that ``aptool train COLLECTION`` writes."""
    logger.info(f"--model {_MODEL} (default)")
    return _MODEL


tokens_per_batch_option = click.option(
    "--tokens-per-batch",
    type=Count(),
    metavar="N",
    help=f"Tokens per batch; fewer save memory.  [default: {ENCODER_BATCHES}]",
)
seed_option = click.option("--seed", type=Count(0, 2**63 - 1), metavar="N", default=0, help="Random seed.")
json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON, in full precision.")


overwrite_flag = click.option("--overwrite", is_flag=True, help="Replace an output that exists.")


def overwrite_option(*parameters: str) -> Callable[[Command], Command]:
    """Return a decorator that adds ``--overwrite``; without it, an output file that exists is refused.

    ``parameters`` are the names of the outputs, by default ``output``.
    """
    names = parameters or ("output",)

    def add(command: Command) -> Command:
        @wraps(command)
        def run(*, overwrite: bool, **arguments: Any) -> None:
            from aptool.outputs import check_output

            outputs = [arguments[name] for name in names if arguments[name] is not None]
            if overwrite and not outputs:
                raise UsageError(f"--overwrite: requires --{' or --'.join(names).replace('_', '-')}")
            for output in outputs:
                check_output(output, overwrite=overwrite)
            command(**arguments)

        return overwrite_flag(run)

    return add


def cluster_options(command: Command, *, elastic: bool = False) -> Command:
    """Add the options of a Ray cluster to a command.

    In an ``elastic`` command, the number of workers may change while it runs.
    """
    options = (
        click.option(
            "--cluster",
            is_flag=False,
            flag_value="",
            callback=lambda context, option, address: True if address == "" else address,
            metavar="[ADDRESS]",
            help="Run on Ray: host:port, auto, or local (start a cluster here).  "
            "[default: no cluster; without ADDRESS: RAY_ADDRESS, else auto]",
        ),
        click.option(
            "--workers",
            type=WorkersType() if elastic else Count(),
            metavar="N|MIN:MAX" if elastic else "N",
            help="Workers; MIN:MAX: nodes may join and leave.  [default: one per GPU or node]"
            if elastic
            else "Worker processes.  [default: as many as fit on the cluster]",
        ),
        click.option(
            "--gpus-per-worker",
            type=Bounded(click.FloatRange(min=0)),
            metavar="X",
            help="GPUs per worker, may be fractional.  [default: 1; without GPUs 0]",
        ),
        click.option(
            "--wait",
            type=Bounded(click.FloatRange(min=0)),
            metavar="SECONDS",
            help="Seconds to wait for nodes with room.  [default: no limit]",
        ),
    )

    return with_options(*options)(command)


def with_options(*options: Callable[[Command], Command]) -> Callable[[Command], Command]:
    """Return a decorator that adds several options to a command, in this order in its help."""

    def add(command: Command) -> Command:
        for option in reversed(options):
            command = option(command)
        return command

    return add
