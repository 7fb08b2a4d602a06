"""Where a run may be written: it replaces nothing but a run.

A mistyped output could else replace labels, pools, or the weights of a model.
"""

import zlib

from aptool.errors import InputError
from aptool.formats.atomic import check_writable
from aptool.formats.location import PathOrUrl
from aptool.formats.stores import store_of
from aptool.formats.unpacking import GZIP
from aptool.options import expected_without

# Bytes at the beginning of a file in which its first line is looked for.
_HEAD_BYTES = 1 << 16
# Of a run's line: question, Q0, answer, rank, score, tag.
_FIELDS, _SCORE = 6, 4


def check_run_output(path: PathOrUrl) -> None:
    """Checks, before any work, that a run file can be written.

    Raises:
        InputError: it cannot, the path ends in a slash, or there is a file that is no run.
    """
    if str(path).endswith("/"):
        raise InputError(path, problem="a folder", expected=expected_without("a run file, not a folder"))
    check_writable(path)
    store, key = store_of(path)
    try:
        head = store.read(key, 0, min(_HEAD_BYTES, store.stat(key).size))
    except FileNotFoundError:
        return
    if not _begins_a_run(head):
        raise InputError(path, problem="not a run", expected="a run to replace, or nothing yet")


def _begins_a_run(head: bytes) -> bool:
    """Whether a file's first line is one of a run; an empty file is as good as none."""
    if head.startswith(GZIP):
        try:
            head = zlib.decompressobj(zlib.MAX_WBITS | 16).decompress(head, _HEAD_BYTES)
        except zlib.error:
            return False
    lines = (line.split() for line in head.splitlines())
    first = next((line for line in lines if line and not line[0].startswith(b"#")), None)
    if first is None:
        return not head.strip()
    try:
        float(first[_SCORE])
    except (IndexError, ValueError):
        return False
    return len(first) >= _FIELDS
