"""``aptool report``: the results of a folder of runs in one HTML file."""

from typing import TYPE_CHECKING

import click

from aptool.cli.parameters import LOCATION, device_option, whole_number
from aptool.errors import UsageError

if TYPE_CHECKING:
    from aptool.formats.location import Location

NAME = "report.html"


@click.command("report")
@click.argument("runs", metavar="RUNS", type=LOCATION)
@click.option("--output", metavar="FILE", type=LOCATION, help=f"HTML file.  [default: RUNS/{NAME}]")
@click.option(
    "--collection",
    "collections",
    metavar="[NAME=]FOLDER",
    multiple=True,
    help="Folder of a collection, if it is not the one recorded in RUNS.",
)
@click.option(
    "--baseline",
    metavar="SYSTEM",
    help="System that the others are tested against.  [default: bm25, or the first]",
)
@click.option(
    "--questions",
    metavar="N",
    type=whole_number(),
    default=2500,
    show_default=True,
    help="Number of questions of each collection to include in the browser.",
)
@click.option(
    "--depth",
    metavar="N",
    type=whole_number(),
    default=10,
    show_default=True,
    help="Number of answers from the top of each ranking to include; relevant answers are always included.",
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
    """Write a report on RUNS, the folder that `aptool matrix` wrote.

    The page contains the table of results with confidence intervals and significance tests, charts, and the
    ranked answers and heat maps of every question. It is self-contained.
    """
    from aptool.formats.atomic import check_apart, check_writable, files_of
    from aptool.formats.storage import stat
    from aptool.formats.stores import store_of
    from aptool.models.device import pick_device
    from aptool.reporting.html import environment
    from aptool.reporting.plots import check_installed
    from aptool.reporting.runs import find_collections, read_runs

    page = output if output is not None else runs / NAME
    given = _places(collections)
    # Missing packages and devices are reported before anything takes time.
    environment()
    check_installed()
    picked = pick_device(device)
    read = read_runs(runs)
    check_writable(page)
    store, key = store_of(runs)
    check_apart(page, (runs / name for name in store.names(key) if not name.endswith(".html")))
    found = find_collections(read, given)
    check_apart(page, files_of(*(collection.path for collection in found.values())))

    from aptool.reporting.report import Limits, write_report

    write_report(
        page,
        read,
        found,
        baseline=baseline,
        limits=Limits(questions=questions, depth=depth),
        command=_command(runs, page, collections, baseline, questions, depth),
        device=picked,
    )
    click.echo(f"{page}: {stat(page).size / 1e6:.1f} MB")


def _places(collections: tuple[str, ...]) -> dict[str, "Location"]:
    """Folders by name; "" for a folder given without a name."""
    from aptool.formats.location import location

    places: dict[str, Location] = {}
    for given in collections:
        name, named, path = given.partition("=")
        if not named or location(given).exists():
            name, path = "", given
        if name in places:
            what = f"collection {name!r}" if name else "a collection without a name"
            raise UsageError(f"--collection {given}: {what} given more than once")
        places[name] = location(path)
    return places


def _command(
    runs: "Location",
    page: "Location",
    collections: tuple[str, ...],
    baseline: str | None,
    questions: int,
    depth: int,
) -> str:
    import shlex

    words = ["aptool", "report", str(runs), "--output", str(page)]
    words += [word for given in collections for word in ("--collection", given)]
    words += ["--baseline", baseline] if baseline is not None else []
    words += ["--questions", str(questions)] if questions != 2500 else []
    words += ["--depth", str(depth)] if depth != 10 else []
    return shlex.join(words)
