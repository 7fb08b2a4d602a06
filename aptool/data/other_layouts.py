"""Qrels and runs in the layouts of other tools."""

import re

_BEIR_HEADER = re.compile(rb"\s*\S+[ \t]+\S+[ \t]+(?:score|relevance|label)\s*", re.IGNORECASE)


def trec_lines(data: bytes) -> bytes:
    """The lines of qrels; those of BEIR, with a header and without the second field, get that field."""
    first, newline, rest = data.partition(b"\n")
    if not _BEIR_HEADER.fullmatch(first):
        return data
    fields = (line.split() for line in rest.split(b"\n"))
    # The header becomes a blank line, so that the numbers of the lines stay.
    return newline + b"\n".join(b" ".join([*row[:1], b"0", *row[1:]]) if row else b"" for row in fields)


def hint(fields: list[str], *, is_run: bool) -> str:
    """Name the known format of a line that has another one than expected; empty if the format is unknown."""
    if is_run and _BEIR_HEADER.fullmatch(" ".join(fields).encode()):
        return "; this looks like qrels of BEIR, for --qrels"
    if is_run and len(fields) == 4 and fields[3].lstrip("+-").isdecimal():
        return "; this looks like qrels, for --qrels"
    if is_run and len(fields) == 3 and fields[2].isdecimal():
        return "; this looks like a run of MS MARCO, without scores"
    if not is_run and len(fields) == 6 and fields[1].upper() == "Q0":
        return "; this looks like a run"
    return ""
