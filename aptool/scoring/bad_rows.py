"""Bad rows: pools that cannot be read or scored, set aside from a run.

A part carries the bad rows of its unit, so they do not depend on workers or interruptions. The merge writes
those of all parts to one file of JSON lines.
"""

import json
from collections.abc import Iterable, Mapping

from aptool.formats.atomic import output_file
from aptool.formats.location import PathOrUrl
from aptool.formats.outputs import Kind
from aptool.formats.pools import Unit

# The reasons of the bad rows of a unit, by row in its row group.
Reasons = Mapping[int, str]


def pack(reasons: Reasons) -> bytes:
    """The bad rows of a unit as bytes; empty without any."""
    return json.dumps(sorted(reasons.items())).encode() if reasons else b""


def unpack(data: bytes) -> Reasons:
    """The bad rows of a unit, in the order of its rows."""
    return dict(json.loads(data)) if data else {}


def write_bad_rows(path: PathOrUrl, units: Iterable[tuple[Unit, Reasons]]) -> None:
    """Write a line per bad row: a JSON object with file, row_group, row (from 0) and reason."""
    with output_file(path, Kind.BAD_ROWS) as temporary, temporary.open("w", encoding="utf-8") as file:
        for unit, reasons in units:
            for row, reason in reasons.items():
                line = {"file": unit.path, "row_group": unit.row_group, "row": row, "reason": reason}
                file.write(json.dumps(line, ensure_ascii=False) + "\n")
