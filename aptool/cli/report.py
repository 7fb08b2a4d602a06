"""``aptool report``: the results of a folder of runs in one HTML file."""

from typing import TYPE_CHECKING

import click

from aptool.cli.parameters import LOCATION, Count, device_option
from aptool.errors import UsageError

if TYPE_CHECKING:
    from aptool.formats.location import Location


@click.command("report")
@click.argument("runs", metavar="RUNS", type=LOCATION)
@click.option("--output", metavar="FILE", type=LOCATION, help="HTML file.  [default: RUNS/report.html]")
@click.option(
    "--collection",
    "collections",
    metavar="[NAME=]FOLDER",
    multiple=True,
    help="Folder of a collection, if it moved; repeatable.  [default: folders recorded in RUNS]",
)
@click.option(
    "--baseline",
    metavar="SYSTEM",
    help="Baseline of significance tests.  [default: bm25, else first system]",
)
@click.option(
    "--questions",
    metavar="N",
    type=Count(),
    default=2500,
    show_default=True,
    help="Maximum number of questions per collection to browse.",
)
@click.option(
    "--depth",
    metavar="N",
    type=Count(),
    default=10,
    show_default=True,
    help="Top-ranked answers per question; relevant answers are always included.",
)
@device_option
def report(
    runs: "Location",
    output: "Location | None",
    collections: tuple[str, ...],
    baseline: str | None,
    questions: int,
    depth: int,
    device: str,
) -> None:
    """Write a report on RUNS, the output folder of `aptool matrix`.

    The page has the table of results with confidence intervals and significance tests, charts, and the ranked
    answers and heat maps of every question. It is self-contained: one HTML file, no network.
    """
    from aptool.formats.storage import stat
    from aptool.reporting.report import Limits, write_report

    page = output if output is not None else runs / "report.html"
    write_report(
        runs,
        page,
        collections=_folders(collections),
        baseline=baseline,
        limits=Limits(questions, depth),
        device=device,
    )
    click.echo(f"{page}: {stat(page).size / 1e6:.1f} MB")


def _folders(collections: tuple[str, ...]) -> dict[str, "Location"]:
    """Return folders by name; the name is empty for a folder without one."""
    from aptool.formats.location import location

    folders: dict[str, Location] = {}
    for argument in collections:
        name, equals, path = argument.partition("=")
        if not equals or location(argument).exists():
            name, path = "", argument
        if name in folders:
            repeated = f"collection {name!r}" if name else "a collection without a name"
            raise UsageError(f"--collection {argument}: {repeated} given more than once")
        folders[name] = location(path)
    return folders
