"""Sheets of Excel workbooks, with the extra ``excel``."""

import io
import re
import zipfile
from typing import NamedTuple

from aptool.datasets.table_format import NumberedRow
from aptool.errors import InputError, first_few
from aptool.formats.inputs import open_unpacked, readable

SUFFIXES = (".xlsx", ".xlsm")
SHEET_OPTION = "--sheet"

# fastexcel allocates the rectangle around all cells with a value, 32 bytes per cell.
_MOST_CELLS = 1 << 25
_SHEET_FILE = re.compile(r"xl/worksheets/[^/]+\.xml", re.IGNORECASE)
_CELL = re.compile(rb"""<(?:\w+:)?c\b[^>]*?\br=["']([A-Z]{1,3})([0-9]{1,7})["'][^>]*(?<!/)>""")


class Sheet(NamedTuple):
    """A sheet of a workbook."""

    rows: list[NumberedRow]  # without blank rows; numbers from 1, as Excel shows them
    other_sheets: list[str]


def read_sheet(path: str, name: str | None) -> Sheet:
    """Read the first sheet of a workbook, or the sheet ``name``, as texts; an error in a cell is empty."""
    import fastexcel

    expected = "an Excel workbook (.xlsx)"
    with open_unpacked(path) as file, readable(path):
        data = file.read()
    try:
        _check_size(path, data)
        workbook = fastexcel.read_excel(data)
        sheets = workbook.sheet_names
        if name is not None and name not in sheets:
            shown = first_few([repr(sheet) for sheet in sheets])
            raise InputError(path, problem=f"no sheet {name!r}", expected=f"one of {shown}")
        chosen = sheets[0] if name is None else name
        # `skip_rows` keeps blank rows at the start, so that row numbers are those of Excel.
        sheet = workbook.load_sheet(chosen, header_row=None, skip_rows=0, dtypes="string")
        rows = sheet.to_polars().iter_rows()
    except (zipfile.BadZipFile, fastexcel.FastExcelError, EOFError, NotImplementedError) as error:
        problem = str(error).splitlines()[0]
        raise InputError(path, problem=problem, expected=expected) from error
    texts = ([cell or "" for cell in row] for row in rows)
    numbered = [(number, row) for number, row in enumerate(texts, 1) if any(map(str.strip, row))]
    return Sheet(numbered, [sheet for sheet in sheets if sheet != chosen])


def _check_size(path: str, data: bytes) -> None:
    """Refuse a workbook whose cells are far apart."""
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        for file in archive.infolist():
            if _SHEET_FILE.fullmatch(file.filename):
                columns = rows = 1
                for cell in _CELL.finditer(archive.read(file)):
                    columns, rows = max(columns, _column(cell[1])), max(rows, int(cell[2]))
                if columns * rows > _MOST_CELLS:
                    problem = f"a sheet of {columns:,} columns and {rows:,} rows, most of them empty"
                    raise InputError(path, problem=problem, expected="no values far from the table")


def _column(letters: bytes) -> int:
    number = 0
    for letter in letters:
        number = 26 * number + letter - ord("A") + 1
    return number
