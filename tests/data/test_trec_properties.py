"""Runs and qrels with random faults: read as a plain parser reads them, or refused with the faulty line."""

import math
import re
import unicodedata

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from aptool.data.runs import read_run
from aptool.data.trec import read_qrels
from aptool.errors import InputError

IDS = ["q1", "q2", "q10", "a#1", "é", "中", '"a', "x,y", "-1"]
BAD_IDS = ["#1", "\ufeffq", "a\u00a0b", "a\u2003b", "a\x7f", "a\x1b[31m", "\u3000"]
SCORES = ["0.5", "-1e-3", "+2", ".5", "1.", "1E5", "007", "-0"]
BAD_SCORES = ["x", "1,5", "nan", "-inf", "1e400", "0x1p3", "1_0", "--1", "1e", ".", "١"]
LEVELS = ["0", "1", "-1", "+03", "9223372036854775807", "-9223372036854775808"]
BAD_LEVELS = ["0.9", "yes", "1e2", "9223372036854775808", "1_0", "+", "١"]
BLANKS = st.sampled_from([" ", "\t", "  ", " \t", "\v", "\f"])


class Lines:
    """A kind of file: its reader, and the definition of a valid line."""

    def __init__(self, read, numbers, bad_numbers, *, is_run):
        self.read, self.is_run = read, is_run
        self.numbers, self.bad_numbers = numbers, bad_numbers

    def number(self, text):
        """The value of a number as text, or None: decimals in ASCII, finite or of 64 bits."""
        if set(text) - set("0123456789+-" + ".eE" * self.is_run):
            return None
        try:
            value = float(text) if self.is_run else int(text)
        except ValueError:
            return None
        return value if (math.isfinite(value) if self.is_run else -(2**63) <= value < 2**63) else None

    def row(self, fields):
        """The row of a line, or None if the line is faulty."""
        if len(fields) != (6 if self.is_run else 4):
            return None
        value = self.number(fields[4 if self.is_run else 3])
        is_legal = legal(fields[0]) and legal(fields[2]) and fields[0][0] not in "#\ufeff"
        return (fields[0], fields[2], value) if is_legal and value is not None else None


def legal(name):
    return not any(c.isspace() or unicodedata.category(c) == "Cc" for c in name)


RUN = Lines(lambda path: read_run(path).frame, SCORES, BAD_SCORES, is_run=True)
QRELS = Lines(read_qrels, LEVELS, BAD_LEVELS, is_run=False)


def parse(kind, data):
    """The rows of a file and the numbers of its faulty lines."""
    rows, faulty = [], set()
    for number, line in enumerate(data.removeprefix(b"\xef\xbb\xbf").split(b"\n"), 1):
        try:
            fields = [field.decode() for field in line.split()]
        except UnicodeDecodeError:
            faulty.add(number)
            continue
        if b"\0" in line:
            faulty.add(number)
        elif fields and not fields[0].startswith("#"):
            row = kind.row(fields)
            if row is None or row[:2] in [before[:2] for before in rows]:
                faulty.add(number)
            else:
                rows.append(row)
    return rows, faulty


@st.composite
def files(draw, kind):
    """The bytes of a file, valid or with a few faults."""
    pairs = draw(st.lists(st.tuples(st.sampled_from(IDS), st.sampled_from(IDS)), max_size=6, unique=True))
    number = st.sampled_from(kind.numbers)
    lines = [
        [q, "Q0", a, "1", draw(number), "t"] if kind.is_run else [q, "0", a, draw(number)] for q, a in pairs
    ]
    for line in draw(st.permutations(lines))[: draw(st.integers(0, 2))]:
        place = draw(st.integers(0, len(line) - 1))
        change = draw(st.sampled_from(["id", "number", "value", "remove", "repeat", "insert"]))
        if change == "id":
            line[draw(st.sampled_from([0, 2]))] = draw(st.sampled_from(IDS + BAD_IDS))
        elif change == "number":
            line[4 if kind.is_run else 3] = draw(st.sampled_from(kind.bad_numbers))
        elif change == "value":
            line[place] = draw(st.sampled_from(IDS + kind.numbers + kind.bad_numbers))
        elif change == "remove":
            del line[place]
        elif change == "repeat":
            lines.append(list(line))
        else:
            line[place:place] = draw(st.lists(st.sampled_from([*IDS, "Q0", *kind.numbers]), max_size=6))
    lines += draw(st.lists(st.sampled_from([[], ["#", "comment"], ["#1"]]), max_size=2))
    ends = st.sampled_from(["\n", "\r\n", " \n"])
    text = "".join(draw(BLANKS).join(line) + draw(ends) for line in draw(st.permutations(lines)))
    data = (draw(st.sampled_from(["", "", "\ufeff"])) + text).encode()
    if draw(st.integers(0, 3)) == 0:
        place = draw(st.integers(0, len(data)))
        piece = draw(st.sampled_from([b"\0", b"\xff", b"\xc3", b"\n", b"\r", b" ", b"1", b"#", b"\xc2\x85"]))
        data = data[:place] + piece + data[place + draw(st.integers(0, 3)) :]
    return data


@pytest.mark.parametrize("kind", [RUN, QRELS], ids=["run", "qrels"])
@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(draws=st.data())
def test_a_file_is_read_as_a_plain_parser_reads_it_or_its_faulty_line_is_named(tmp_path, kind, draws):
    data = draws.draw(files(kind))
    path = tmp_path / "x.txt"
    path.write_bytes(data)
    rows, faulty = parse(kind, data)
    if rows and not faulty:
        assert kind.read(path).rows() == rows
        return
    with pytest.raises(InputError) as refused:
        kind.read(path)
    message = str(refused.value)
    assert message.isprintable()  # so it is one line
    named = re.match(rf"{re.escape(str(path))}: (?:line (\d+): |no line; expected )", message)
    assert named, message
    assert (int(named[1]) in faulty) if faulty else (named[1] is None), message
