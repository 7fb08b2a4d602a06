"""Output of matplotlib figures: PNG and SVG files with their data, and SVG elements for a page."""

from __future__ import annotations

import io
import re
from typing import TYPE_CHECKING, NamedTuple
from xml.etree import ElementTree

from aptool.errors import InputError, UsageError
from aptool.formats.atomic import atomic_file, check_writable
from aptool.formats.location import Location, PathOrUrl, location
from aptool.reporting.plots import check_installed

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import polars as pl
    from matplotlib.figure import Figure

SUFFIXES = (".png", ".svg")
_DOTS_PER_INCH = 160
_ID = re.compile(r'\bid="|\bhref="#|url\(#')


class Series(NamedTuple):
    """A line of a chart in a page.

    Attributes:
        name: name of the system.
        classes: CSS classes of the line.
        titles: tooltip of each point.
    """

    name: str
    classes: str
    titles: Sequence[str]


def svg(figure: Figure, prefix: str = "") -> str:
    """The figure as an ``<svg>`` element with its text as text; equal figures give equal strings.

    Args:
        figure: a figure.
        prefix: put before every id, so that several figures can be in one page.
    """
    import matplotlib

    # Ids are hashes of a salt and the drawing, and there is no date: equal figures give equal files.
    with matplotlib.rc_context({"svg.fonttype": "none", "svg.hashsalt": "aptool"}):
        file = io.StringIO()
        figure.savefig(
            file,
            format="svg",
            transparent=True,
            metadata=dict.fromkeys(("Creator", "Date", "Format", "Type")),
        )
    element = file.getvalue()[file.getvalue().index("<svg") :]
    return re.sub(r"<[^>]*>", lambda tag: _ID.sub(rf"\g<0>{prefix}", tag[0]), element)


def inline_svg(
    figure: Figure,
    prefix: str,
    *,
    classes: str,
    label: str,
    variables: Mapping[str, str],
    series: Sequence[Series] = (),
) -> str:
    """The figure as an ``<svg>`` element of an HTML page, which follows the page's size and colours.

    All text is escaped by the XML writers of matplotlib and of this function.

    Args:
        figure: a figure.
        prefix: put before every id.
        classes: CSS classes of the element.
        label: description of the figure for screen readers.
        variables: CSS variables by the colours of the figure (``#rrggbb``, lower case) that they replace.
        series: of the lines with the group ids ``series-0``, ``series-1``, ...; each line's group gets the
            classes, the name as ``data-series``, and a tooltip at every point.
    """
    root = ElementTree.fromstring(svg(figure, prefix))
    for parent in root.iter():
        parent.tag = _local(parent.tag)
        for name in [name for name in parent.attrib if name.startswith("{")]:
            parent.set(_local(name), parent.attrib.pop(name))
        if "style" in parent.attrib:
            parent.set("style", _with_variables(parent.attrib["style"], variables))
        # matplotlib's style sheet would apply to the whole page.
        for child in [child for child in parent if _local(child.tag) in ("style", "metadata")]:
            parent.remove(child)
    root.attrib = {"viewBox": root.attrib["viewBox"], "class": classes, "role": "img", "aria-label": label}
    groups = {element.get("id"): element for element in root.iter("g")}
    for number, one in enumerate(series):
        group = groups[f"{prefix}series-{number}"]
        group.set("class", one.classes)
        group.set("data-series", one.name)
        for point, title in zip(group.iter("use"), one.titles, strict=True):
            ElementTree.SubElement(point, "title").text = title
    return ElementTree.tostring(root, encoding="unicode")


def save_plot(figure: Figure, data: pl.DataFrame, path: PathOrUrl) -> list[Location]:
    """Writes a figure and, under the same name, its data as CSV.

    Args:
        figure: the figure.
        data: the data shown.
        path: ``NAME.png`` or ``NAME.svg``, or ``NAME`` for both.

    Returns:
        The files, the data last.

    Raises:
        UsageError: the name has another suffix.
        InputError: a file cannot be written, or the name of the table is that of a table with other columns.
    """
    pictures, table = plot_files(path)
    _check_same_table(table, data.columns)
    for picture in pictures:
        with atomic_file(picture) as temporary:
            if picture.suffix == ".svg":
                temporary.write_text(svg(figure), encoding="utf-8")
            else:
                figure.savefig(temporary, format="png", transparent=True, dpi=_DOTS_PER_INCH)
    with atomic_file(table) as temporary:
        data.write_csv(temporary)
    return [*pictures, table]


def plot_files(path: PathOrUrl) -> tuple[list[Location], Location]:
    """The images and the table that `save_plot` writes; checks that they can be written.

    Raises:
        AptoolError: matplotlib is not installed.
        UsageError: the name has a suffix other than `SUFFIXES`.
        InputError: a file cannot be written.
    """
    check_installed()
    given = location(path)
    if given.name in ("", ".."):
        raise UsageError(f"{str(path)!r}: expected the name of a file")
    if given.suffix in SUFFIXES:
        pictures, table = [given], given.with_suffix(".csv")
    elif given.suffix:
        raise UsageError(f"{path}: expected a name ending in one of {', '.join(SUFFIXES)}, or no suffix")
    else:
        pictures = [given.with_name(given.name + suffix) for suffix in SUFFIXES]
        table = given.with_name(given.name + ".csv")
    for file in (*pictures, table):
        check_writable(file)
    return pictures, table


def _check_same_table(path: Location, columns: list[str]) -> None:
    """Checks that a table is not another one, of which nobody said that it is to be replaced."""
    if not path.is_file():
        return
    with path.open("rb") as file:
        header = file.readline().decode(errors="replace").strip()
    if header != ",".join(columns):
        expected = f"no file, or an earlier table of this plot: {','.join(columns)}"
        raise InputError(path, place="line 1", value=header, expected=expected)


def _local(name: str) -> str:
    """A name without its namespace, as in HTML."""
    return name.rpartition("}")[2]


def _with_variables(style: str, variables: Mapping[str, str]) -> str:
    for colour, variable in variables.items():
        style = style.replace(colour, f"var({variable})")
    return style
