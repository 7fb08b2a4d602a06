"""Excel workbooks: the first sheet, and the texts of numbers and dates."""

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


def write_workbook(path, *sheets):
    """Write sheets, each a list of rows of cells, as ECMA-376 describes the format; None is no cell."""
    numbers = range(1, len(sheets) + 1)
    entries = "".join(f'<sheet name="s{number}" sheetId="{number}" r:id="r{number}"/>' for number in numbers)
    targets = [(f"r{number}", "worksheet", f"worksheets/sheet{number}.xml") for number in numbers]
    links = "".join(
        f'<Relationship Id="{i}" Type="{DOCUMENT}/{kind}" Target="{to}"/>'
        for i, kind, to in [*targets, ("s", "styles", "styles.xml")]
    )
    root = f'<Relationship Id="r" Type="{DOCUMENT}/officeDocument" Target="xl/workbook.xml"/>'
    types = (
        '<Default Extension="rels" ContentType="application/vnd.openxmlformats-package.relationships+xml"/>'
        '<Default Extension="xml" ContentType="application/xml"/>'
    )
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("[Content_Types].xml", f'<Types xmlns="{PACKAGE}/content-types">{types}</Types>')
        for name, text in (("_rels/.rels", root), ("xl/_rels/workbook.xml.rels", links)):
            archive.writestr(name, f'<Relationships xmlns="{PACKAGE}/relationships">{text}</Relationships>')
        book = f'<workbook xmlns="{MAIN}" xmlns:r="{DOCUMENT}"><sheets>{entries}</sheets></workbook>'
        archive.writestr("xl/workbook.xml", book)
        archive.writestr("xl/styles.xml", f'<styleSheet xmlns="{MAIN}">{STYLES}</styleSheet>')
        for number, rows in zip(numbers, sheets, strict=True):
            text = ""
            for row, values in enumerate(rows, 1):
                cells = (cell(f"{'ABCD'[column]}{row}", value) for column, value in enumerate(values))
                text += f'<row r="{row}">{"".join(cells)}</row>'
            sheet = f'<worksheet xmlns="{MAIN}"><sheetData>{text}</sheetData></worksheet>'
            archive.writestr(f"xl/worksheets/sheet{number}.xml", sheet)


TICKETS = [
    ["question", "answer", "label", "Zeit"],
    ["Größe?\n(cm)", 0.5, 1, 1.5],
    [],
    ["Wann?", DATE, 1, "#N/A"],
    ["Wann?", 2025, 0],
    ["Wann?", "#N/A", 0],
]


@needs_excel
def test_the_first_sheet_is_read_as_texts(aptool, tmp_path):
    """Blank rows are skipped. An error in a cell is an empty candidate, which is dropped."""
    write_workbook(tmp_path / "x.xlsx", TICKETS, [["hello"]])
    command = ("data", "import", "table", f"dev={tmp_path / 'x.xlsx'}", "--output", tmp_path / "out")
    finished = aptool(*command)

    assert finished.code == 0, finished.err
    assert labels_of(tmp_path / "out", "dev") == {
        "Größe?\n(cm)": {"0.5": 1},
        "Wann?": {"2025-01-01 00:00:00": 1, "2025": 0},
    }


@needs_excel
def test_errors_name_the_row_of_excel(tmp_path):
    write_workbook(tmp_path / "x.xlsx", [*TICKETS[:3], ["Wann?", "bald", "maybe"]])
    with pytest.raises(aptool.AptoolError, match=r"x\.xlsx: row 4: column 'label': 'maybe'"):
        aptool.Collection.from_rows({"dev": tmp_path / "x.xlsx"}, tmp_path / "out")


@needs_excel
def test_damaged_workbooks_are_refused(tmp_path):
    path = tmp_path / "x.xlsx"
    write_workbook(path, TICKETS)
    for data in (b"", b"PK\x03\x04", b"question,answer,label\n", path.read_bytes()[:-30]):
        path.write_bytes(data)
        with pytest.raises(aptool.AptoolError, match=r"x\.xlsx: .*expected an Excel workbook"):
            aptool.Collection.from_rows({"dev": path}, tmp_path / "out")


def test_the_extra_is_named_where_it_is_missing(tmp_path, monkeypatch):
    write_workbook(tmp_path / "x.xlsx", TICKETS)
    monkeypatch.setattr(sys, "path", [])
    monkeypatch.delitem(sys.modules, "fastexcel", raising=False)
    with pytest.raises(aptool.AptoolError, match=r"an Excel workbook needs fastexcel: .*excel"):
        aptool.Collection.from_rows({"dev": tmp_path / "x.xlsx"}, tmp_path / "out")
