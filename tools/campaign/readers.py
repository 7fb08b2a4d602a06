"""Plain readers of file formats, independent of aptool.

They are slow, and may accept files that aptool refuses. Files that aptool accepts must give equal content.
"""

import os
import struct
from collections import defaultdict
from pathlib import Path


def judgements(data: bytes) -> dict[str, dict[str, int]]:
    """Read qrels as {question: {answer: relevance}}."""
    values: dict[str, dict[str, int]] = defaultdict(dict)
    for line in _lines(data):
        question, _, answer, relevance = line
        values[question][answer] = int(relevance)
    return values


def scores(data: bytes) -> dict[str, dict[str, float]]:
    """Read a run as {question: {answer: score}}."""
    values: dict[str, dict[str, float]] = defaultdict(dict)
    for line in _lines(data):
        question, _, answer, _, score, *_ = line
        values[question][answer] = float(score)
    return values


def _lines(data: bytes) -> list[list[str]]:
    data = data.removeprefix(b"\xef\xbb\xbf")
    lines = [[field.decode() for field in line.split()] for line in data.split(b"\n")]
    return [line for line in lines if line and not line[0].startswith("#")]


def measures(qrels: dict[str, dict[str, int]], run: dict[str, dict[str, float]]) -> dict[str, float]:
    """Compute MAP, MRR and P@1 over the questions of the qrels, by definition."""
    sums = {"MAP": 0.0, "MRR": 0.0, "P@1": 0.0}
    for question, labels in qrels.items():
        ranked = sorted(
            run.get(question, {}).items(), key=lambda pair: (pair[1], pair[0].encode()), reverse=True
        )
        relevant = [labels.get(answer, 0) > 0 for answer, _ in ranked]
        total = sum(value > 0 for value in labels.values())
        ranks = [rank for rank, is_relevant in enumerate(relevant, 1) if is_relevant]
        sums["MAP"] += sum(n / rank for n, rank in enumerate(ranks, 1)) / total if total else 0.0
        sums["MRR"] += 1 / ranks[0] if ranks else 0.0
        sums["P@1"] += float(bool(ranks) and ranks[0] == 1)
    return {name: value / len(qrels) for name, value in sums.items()}


def pool_texts(folder: str) -> list[tuple[str, str, str, str]]:
    """Read (question id, question, answer id, answer) of every pair of a collection with pyarrow."""
    import pyarrow.parquet as pq

    shared = Path(folder, "answers.parquet")
    texts = dict(zip(*pq.read_table(shared).to_pydict().values(), strict=True)) if shared.exists() else {}
    return [
        (
            row["question_id"],
            row["question"],
            candidate["answer_id"],
            candidate["text"] or texts.get(candidate["answer_id"], ""),
        )
        for path in sorted(Path(folder).glob("*.pools.parquet"))
        for row in pq.read_table(path).to_pylist()
        for candidate in row["candidates"]
    ]


def table(data: bytes) -> list[tuple[str, str, int]]:
    """Read (question, answer, label) of each row of a TSV file with a text of the answer."""
    lines = data.removeprefix(b"\xef\xbb\xbf").decode().split("\n")
    rows = [line.removesuffix("\r").split("\t") for line in lines if line.strip()]
    names = ("question", "answer", "label")
    header = next(number for number, row in enumerate(rows) if {*names} <= {*row})
    columns = [rows[header].index(name) for name in names]
    rows = rows[header + 1 :]
    values = [(row[columns[0]], row[columns[1]], int(row[columns[2]])) for row in rows]
    return [value for value in values if value[1].strip()]


def text_vectors(data: bytes, dim: int) -> dict[str, list[float]]:
    """Read {word: numbers} from the regular rows of a text file."""
    values: dict[str, list[float]] = {}
    for line in data.removeprefix(b"\xef\xbb\xbf").split(b"\n"):
        fields = line.strip(b" \t\r").split(b" ")
        if len(fields) == dim + 1 and fields[0]:
            try:
                values.setdefault(fields[0].decode(), [float(field) for field in fields[1:]])
            except ValueError:
                continue
    return values


def binary_vectors(data: bytes) -> dict[bytes, tuple[float, ...]]:
    """Read {word: numbers} from a binary word2vec file."""
    head, _, rest = data.partition(b"\n")
    count, dim = map(int, head.split())
    values: dict[bytes, tuple[float, ...]] = {}
    for _ in range(count):
        word, _, rest = rest.partition(b" ")
        values.setdefault(word.lstrip(b"\n"), struct.unpack(f"<{dim}f", rest[: 4 * dim]))
        rest = rest[4 * dim :]
    return values


def listing(folder: Path) -> dict[str, tuple[int, int, int]]:
    """Size, time and type of every path in a folder."""
    values, folders = {}, [("", str(folder))]
    while folders:
        name, path = folders.pop()
        with os.scandir(path) as entries:
            for entry in entries:
                status = entry.stat(follow_symlinks=False)
                is_folder = entry.is_dir(follow_symlinks=False)
                if is_folder:
                    folders.append((f"{name}{entry.name}/", entry.path))
                size, changed = (0, 0) if is_folder else (status.st_size, status.st_mtime_ns)
                values[name + entry.name] = (status.st_mode, size, changed)
    return values
