"""Excel workbooks: sheets, titles above the header, and the texts of numbers and dates."""

import sys
import zipfile
from importlib.util import find_spec

import pytest
from imported import labels_of

import aptool

needs_excel = pytest.mark.skipif(find_spec("fastexcel") is None, reason="the extra excel is not installed")

MAIN = "http://schemas.openxmlformats.org/spreadsheetml/2006/main"
DOCUMENT = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"
PACKAGE = "http://schemas.openxmlformats.org/package/2006"
STYLES = "<fonts><font/></fonts><fills><fill/></fills><borders><border/></borders>" + (
    '<cellStyleXfs><xf/></cellStyleXfs><cellXfs><xf numFmtId="0"/><xf numFmtId="14"/></cellXfs>'
)
DATE = "date 45658"  # days since 1899-12-30: 2025-01-01


def cell(place, value):
    """A cell of the format: a text, a number, a date or an error (#N/A)."""
    if isinstance(value, float | int):
        return f'<c r="{place}"><v>{value}</v></c>'
    if value.startswith("date "):
        return f'<c r="{place}" s="1"><v>{value.removeprefix("date ")}</v></c>'
    if value.startswith("#"):
        return f'<c r="{place}" t="e"><v>{value}</v></c>'
    return f'<c r="{place}" t="inlineStr"><is><t xml:space="preserve">{value}</t></is></c>'


def write_workbook(path, sheets):
    """Write sheets, each a dict of cells such as ``{"A1": "question"}``, as ECMA-376 describes the format."""
    names = list(enumerate(sheets, 1))
    entries = "".join(f'<sheet name="{name}" sheetId="{number}" r:id="r{number}"/>' for number, name in names)
    targets = [*((f"r{number}", "worksheet", f"worksheets/sheet{number}.xml") for number, _ in names)]
    targets.append(("s", "styles", "styles.xml"))
    links = "".join(
        f'<Relationship Id="{i}" Type="{DOCUMENT}/{kind}" Target="{to}"/>' for i, kind, to in targets
    )
    root = f'<Relationship Id="r" Type="{DOCUMENT}/officeDocument" Target="xl/workbook.xml"/>'
    types = (
        '<Default Extension="rels" ContentType="application/vnd.openxmlformats-package.relationships+xml"/>'
    )
    types += '<Default Extension="xml" ContentType="application/xml"/>'
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("[Content_Types].xml", f'<Types xmlns="{PACKAGE}/content-types">{types}</Types>')
        for name, text in (("_rels/.rels", root), ("xl/_rels/workbook.xml.rels", links)):
            archive.writestr(name, f'<Relationships xmlns="{PACKAGE}/relationships">{text}</Relationships>')
        book = f'<workbook xmlns="{MAIN}" xmlns:r="{DOCUMENT}"><sheets>{entries}</sheets></workbook>'
        archive.writestr("xl/workbook.xml", book)
        archive.writestr("xl/styles.xml", f'<styleSheet xmlns="{MAIN}">{STYLES}</styleSheet>')
        for number, cells in enumerate(sheets.values(), 1):
            rows = {}
            for place, value in cells.items():
                rows.setdefault(int(place.lstrip("ABCDEFGHIJKLMNOPQRSTUVWXYZ")), []).append(
                    cell(place, value)
                )
            text = "".join(f'<row r="{row}">{"".join(row_cells)}</row>' for row, row_cells in rows.items())
            sheet = f'<worksheet xmlns="{MAIN}"><sheetData>{text}</sheetData></worksheet>'
            archive.writestr(f"xl/worksheets/sheet{number}.xml", sheet)


TICKETS = {
    "A1": "Export",
    "A3": "question",
    "B3": "answer",
    "C3": "label",
    "D3": "Zeit",
    "A4": "Größe?\n(cm)",
    "B4": 0.5,
    "C4": 1,
    "D4": 1.5,
    "A6": "Wann?",
    "B6": DATE,
    "C6": 1,
    "D6": "#N/A",
    "A7": "Wann?",
    "B7": 2025,
    "C7": 0,
    "A8": "Wann?",
    "B8": "#N/A",
    "C8": 0,
}


@needs_excel
def test_a_sheet_is_read_as_texts(aptool, tmp_path):
    """An error in a cell is an empty candidate, which is dropped."""
    write_workbook(tmp_path / "x.xlsx", {"Notes": {"A1": "hello"}, "Tickets": TICKETS})
    command = ("data", "import", "csv", f"dev={tmp_path / 'x.xlsx'}", "--output", tmp_path / "out")

    first, none, chosen = (
        aptool(*command),
        aptool(*command, "--sheet", "X"),
        aptool(*command, "--sheet", "Tickets"),
    )

    assert (first.code, none.code, chosen.code) == (1, 1, 0), chosen.err
    assert "row 1: column 'question': not found among 'hello'" in first.err[0]
    assert "or --sheet NAME for one of 'Tickets'" in first.err[0]
    assert none.err == [f"aptool: {tmp_path / 'x.xlsx'}: no sheet 'X'; expected one of 'Notes', 'Tickets'"]
    assert chosen.err[0] == f"dev: {tmp_path / 'x.xlsx'}: the names of the columns are in row 3"
    assert labels_of(tmp_path / "out", "dev") == {
        "Größe?\n(cm)": {"0.5": 1},
        "Wann?": {"2025-01-01 00:00:00": 1, "2025": 0},
    }


@needs_excel
def test_errors_name_the_row_of_excel(tmp_path):
    write_workbook(tmp_path / "x.xlsx", {"A": {**TICKETS, "C6": "maybe"}})
    with pytest.raises(aptool.AptoolError, match=r"x\.xlsx: row 6: column 'label': 'maybe'"):
        aptool.Collection.from_rows({"dev": tmp_path / "x.xlsx"})


@needs_excel
def test_damaged_and_boundless_workbooks_are_refused(tmp_path):
    path = tmp_path / "x.xlsx"
    write_workbook(path, {"A": {**TICKETS, "XFD1048576": 1}})
    with pytest.raises(aptool.AptoolError, match="a sheet of 16,384 columns and 1,048,576 rows"):
        aptool.Collection.from_rows({"dev": path})
    for data in (b"", b"PK\x03\x04", b"question,answer,label\n", path.read_bytes()[:-30]):
        path.write_bytes(data)
        with pytest.raises(aptool.AptoolError, match="expected an Excel workbook"):
            aptool.Collection.from_rows({"dev": path})


def test_the_extra_is_named_where_it_is_missing(tmp_path, monkeypatch):
    write_workbook(tmp_path / "x.xlsx", {"A": TICKETS})
    monkeypatch.setattr(sys, "path", [])
    monkeypatch.delitem(sys.modules, "fastexcel", raising=False)
    with pytest.raises(aptool.AptoolError, match=r"an Excel workbook needs fastexcel: .*excel"):
        aptool.Collection.from_rows({"dev": tmp_path / "x.xlsx"})
