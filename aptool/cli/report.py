"""``aptool report``: everything that a folder of runs shows, in one HTML file."""

from pathlib import Path

import click

from aptool.errors import UsageError

NAME = "report.html"


@click.command("report")
@click.argument("runs", metavar="RUNS", type=click.Path(path_type=Path))
@click.option(
    "--output", metavar="FILE", type=click.Path(path_type=Path), help=f"The page.  [default: RUNS/{NAME}]"
)
@click.option(
    "--collection",
    "collections",
    metavar="[NAME=]FOLDER",
    multiple=True,
    help="Where a collection of the runs is, if not where RUNS says.",
)
@click.option(
    "--baseline", metavar="SYSTEM", help="What the others are tested against.  [default: bm25, or the first]"
)
@click.option(
    "--questions",
    metavar="N",
    type=click.IntRange(min=1),
    default=2500,
    show_default=True,
    help="Questions of each collection that can be browsed.",
)
@click.option(
    "--depth",
    metavar="N",
    type=click.IntRange(min=1),
    default=10,
    show_default=True,
    help="Answers kept from the top of each ranking; right ones are kept wherever they stand.",
)
def report(
    runs: Path,
    output: Path | None,
    collections: tuple[str, ...],
    baseline: str | None,
    questions: int,
    depth: int,
) -> None:
    """Write a report of RUNS, the folder that `aptool matrix` wrote.

    The page holds the table of figures with intervals and tests, the paper's figures beside ours where it
    has any, charts, and every question with its ranked answers and heat maps. It is one file that loads
    nothing.
    """
    page = output if output is not None else runs / NAME
    given = _places(collections)
    command = _command(runs, page, collections, baseline, questions, depth)
    click.echo(write(runs, page, given, baseline, questions=questions, depth=depth, command=command))


def write(
    folder: Path,
    page: Path,
    collections: dict[str, Path],
    baseline: str | None = None,
    *,
    questions: int = 2500,
    depth: int = 10,
    command: str | None = None,
) -> str:
    """Writes the report of a folder of runs and returns the line that says so.

    Args:
        folder: what `aptool matrix` wrote.
        page: the HTML file.
        collections: where they are, by the names that the runs have for them.
        baseline: the system that the others are tested against.
        questions: of each collection, at most.
        depth: answers kept from the top of each ranking.
        command: how this was asked for, to be said in the report.

    Raises:
        AptoolError: something that a report needs is not installed.
        InputError: a file cannot be read or written.
    """
    from aptool.formats.atomic import check_apart, check_writable
    from aptool.reporting.html import environment
    from aptool.reporting.runs import find_collections, read_runs

    environment()  # says what is not installed before anything takes time
    check_writable(page)
    check_apart(page, (path for path in folder.rglob("*") if path.suffix != ".html"))
    runs = read_runs(folder)
    found = find_collections(runs, collections)

    from aptool.reporting.report import Limits, write_report

    limits = Limits(questions=questions, depth=depth)
    write_report(page, runs, found, baseline=baseline, limits=limits, command=command)
    return f"{page}: {page.stat().st_size / 1e6:.1f} MB"


def _places(collections: tuple[str, ...]) -> dict[str, Path]:
    """Folders by name; "" for one that is given without a name."""
    places: dict[str, Path] = {}
    for given in collections:
        name, named, path = given.partition("=")
        if not named or Path(given).exists():
            name, path = "", given
        if name in places:
            what = f"collection {name!r}" if name else "a collection without a name"
            raise UsageError(f"--collection {given}: expected {what} once")
        places[name] = Path(path)
    return places


def _command(
    runs: Path, page: Path, collections: tuple[str, ...], baseline: str | None, questions: int, depth: int
) -> str:
    import shlex

    words = ["aptool", "report", str(runs), "--output", str(page)]
    words += [word for given in collections for word in ("--collection", given)]
    words += ["--baseline", baseline] if baseline is not None else []
    words += ["--questions", str(questions)] if questions != 2500 else []
    words += ["--depth", str(depth)] if depth != 10 else []
    return shlex.join(words)
