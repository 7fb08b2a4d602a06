"""Random mutations of bytes, lines and documents, determined by a random generator."""

import copy
import json
import random
from typing import Any

NASTY_BYTES = (
    *(b"\0", b"\r", b"\n", b"\xff", b"\xef\xbb\xbf", b"\xed\xa0\x80", b"\xe2\x80\xa8", b"\x1b[31m", b"\x7f"),
    *(
        b" ",
        b"\t",
        b"#",
        b'"',
        b"'",
        b",",
        b"-",
        b"0",
        b"9" * 400,
        b"1e400",
        b"nan",
        b"-inf",
        b"0x10",
        b"1_0",
    ),
    *(
        b"\xc2\xa0",
        b"Q0",
        b"{",
        b"[" * 200,
        b"a" * 5000,
        b"-0",
        b"\xd9\xa1",
        b"\x1f\x8b",
        b"\\u0000",
        b"\\ud800",
    ),
)

NASTY_VALUES: tuple[Any, ...] = (
    *(None, True, False, 0, 1, -1, 2, 0.0, -0.5, 1e308, 1e-308, 2**31, 2**63, 10**9, 10**18, 10**400),
    *(
        "",
        " ",
        "a",
        "../x",
        "/etc/passwd",
        "a/b",
        "\0",
        "\ud800",
        "\u2028",
        "nan",
        "1",
        "x" * 3000,
        "**",
        "{}",
    ),
    *([], {}, [[]], [None], [1, "a"], {"a": {}}, {"": 1}, float("nan"), float("inf")),
)

NASTY_TEXTS = (
    *(
        "0",
        "1",
        "-1",
        "2",
        "1.5",
        "1e400",
        "nan",
        "inf",
        "1e38",
        "1e-320",
        "9" * 30,
        "9" * 5000,
        "0x" + "f" * 400,
    ),
    *(
        "true",
        "''",
        "[]",
        "{}",
        "[[[[1]]]]",
        "[" * 3000,
        "a",
        "a.b",
        "../x",
        "",
        " ",
        "=",
        "é",
        "\u2028",
        "\t",
        "#",
    ),
    *(
        "1_000",
        "+1",
        "1979-05-27",
        '"a"',
        "'",
        '"\\ud800"',
        "random",
        "learned",
        "cnn",
        "*",
        "?",
        "~",
        "-",
        "--",
    ),
)


def mutate_bytes(random_: random.Random, data: bytes, times: int | None = None) -> bytes:
    """Flip, insert, delete, repeat or cut bytes, one to three times."""
    for _ in range(times or random_.choice((1, 1, 1, 2, 3))):
        size = len(data)
        at = random_.randrange(size + 1)
        end = min(size, at + random_.choice((1, 1, 2, 8, 64, 4096)))
        kind = random_.randrange(8)
        if kind <= 1 and at < size:
            data = data[:at] + bytes([data[at] ^ 1 << random_.randrange(8)]) + data[at + 1 :]
        elif kind == 2:
            data = data[:at] + random_.choice(NASTY_BYTES) + data[at:]
        elif kind == 3:
            data = data[:at] + random_.choice(NASTY_BYTES) + data[end:]
        elif kind == 4:
            data = data[:at] + data[end:]
        elif kind == 5:
            data = data[:end] + data[at:]
        elif kind == 6:
            data = data[:at] + random_.randbytes(end - at) + data[end:]
        elif random_.random() < 0.3:
            data = data[:at]
    return data


def flip(random_: random.Random, data: bytes) -> bytes:
    """Flip one to three bits."""
    changed = bytearray(data)
    for _ in range(random_.choice((1, 1, 2, 3))):
        changed[random_.randrange(len(changed))] ^= 1 << random_.randrange(8)
    return bytes(changed)


def mutate_lines(random_: random.Random, data: bytes, separator: bytes) -> bytes:
    """Change a line, a field, or bytes."""
    kind = random_.randrange(9)
    lines = data.split(b"\n")
    at, other = random_.randrange(len(lines)), random_.randrange(len(lines))
    fields = lines[at].split(separator)
    field = random_.randrange(len(fields))
    if kind == 0:
        lines[at], lines[other] = lines[other], lines[at]
    elif kind == 1:
        lines.insert(at, lines[other])
    elif kind == 2:
        del lines[at]
    elif kind == 3:
        lines[at] = lines[at] + b"\r"
    elif kind == 4:
        del fields[field]
    elif kind == 5:
        fields[field] = random_.choice(NASTY_BYTES)
    elif kind == 6:
        fields.insert(field, random_.choice(fields))
    elif kind == 7:
        fields[field] = fields[field] + random_.choice(NASTY_BYTES)
    else:
        return mutate_bytes(random_, data)
    if 4 <= kind <= 7:
        lines[at] = separator.join(fields)
    return b"\n".join(lines)


def mutate_document(random_: random.Random, document: Any) -> str:
    """Change values, keys or lists of a JSON document, or its text."""
    document = json.loads(json.dumps(document))
    for _ in range(random_.choice((1, 1, 1, 2, 4))):
        holder = random_.choice(list(_holders(document)))
        keys = list(holder) if isinstance(holder, dict) else list(range(len(holder)))
        key = random_.choice(keys)
        kind = random_.randrange(6)
        if kind <= 2:
            holder[key] = copy.deepcopy(random_.choice(NASTY_VALUES))  # the next change may be inside it
        elif kind == 3:
            del holder[key]
        elif kind == 4 and isinstance(holder, dict):
            holder[str(random_.choice(NASTY_VALUES))[:50]] = holder[key]
        elif isinstance(holder[key], int | float):
            holder[key] = random_.choice(
                (holder[key] + 1, holder[key] * 1000, -holder[key], str(holder[key]))
            )
        else:
            holder[key] = [holder[key]]
        if not document:
            break
    text = json.dumps(document)
    if random_.random() < 0.1:
        text = mutate_bytes(random_, text.encode()).decode("utf-8", "surrogateescape")
    elif random_.random() < 0.03:
        deep = random_.choice((70, 900, 100_000))
        text = text[:-1] + ', "deep": ' + "[" * deep + "]" * deep + "}"
    return text


def _holders(value: Any) -> Any:
    if isinstance(value, dict | list) and value:
        yield value
        for inner in value.values() if isinstance(value, dict) else value:
            yield from _holders(inner)
