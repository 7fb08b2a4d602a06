"""File formats for encoded answers: read speed of random rows of variable length, and size.

    python -m bench.encoded_formats [--answers 20000] [--repeats 5]
    python -m bench.encoded_formats --s3 [...]    files on an S3 server on loopback

Answers of about 100 tokens and 384 fp16 features are in eight shards. A random tenth of them is read in file
order into one array, from the page cache. Lance is measured if it is installed. Times are medians. The store
of ``aptool encode`` has the first of these formats, read by position; ``bench.encoded`` measures it with
checksums.

With ``--s3``, the files are on moto's server. It shares the cores and is slow: the number of requests and the
bytes transferred per requested byte matter more than the speed.
"""

import importlib.util
import os
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from pyarrow import fs
from safetensors import safe_open
from safetensors.numpy import save_file

from aptool.models.ragged import rows_of
from bench.common import benchmark_parser
from bench.encoded import NUMBERS
from bench.object_server import BUCKET, object_server
from bench.workloads import texts

WIDTH = 2 * NUMBERS
SHARDS = 8
SCHEMA = pa.schema([("rows", pa.large_binary())])

# On S3: number of parallel requests, and answers per record batch, which is the smallest unit to read.
REQUESTS, BATCH = 16, 16

# Reads selected answers, (n,) in ascending order, as (rows, NUMBERS) fp16.
Read = Callable[[np.ndarray], np.ndarray]


class Answers(NamedTuple):
    """Lengths of the answers (n,), and the first row of each (n,)."""

    lengths: np.ndarray
    starts: np.ndarray
    bounds: np.ndarray  # (SHARDS + 1,) first answer of each shard

    def shards(self) -> Iterator[tuple[int, int, np.ndarray]]:
        """First answer, end (exclusive) and rows of each shard."""
        for number, (first, last) in enumerate(zip(self.bounds[:-1], self.bounds[1:], strict=True)):
            rows = int(self.lengths[first:last].sum())
            some = np.random.default_rng(number).standard_normal(1 << 22).astype(np.float16)
            yield int(first), int(last), np.resize(some, (rows, NUMBERS))

    def by_shard(self, chosen: np.ndarray) -> Iterator[tuple[int, np.ndarray, np.ndarray]]:
        """Per shard: its number, and the first row and the length of each selected answer in it."""
        for number, (first, last) in enumerate(zip(self.bounds[:-1], self.bounds[1:], strict=True)):
            subset = chosen[(chosen >= first) & (chosen < last)]
            yield number, self.starts[subset] - self.starts[first], self.lengths[subset]


def write_safetensors(path: Path, rows: np.ndarray) -> int:
    """Write a shard; return the byte offset of its rows, which reach to the end of the file."""
    save_file({"rows": rows}, path)
    return path.stat().st_size - rows.nbytes


def safetensors_files(folder: Path, answers: Answers) -> list[tuple[str, Read]]:
    """One file per shard: read by position, by a memory map, and by the library."""
    paths, begins, maps = [], [], []
    for number, (_, _, rows) in enumerate(answers.shards()):
        path = folder / f"{number}.safetensors"
        paths.append(path)
        begins.append(write_safetensors(path, rows))
        maps.append(np.memmap(path, np.float16, "r", begins[-1], rows.shape))

    def by_position(chosen: np.ndarray) -> np.ndarray:
        pieces = []
        for shard, starts, lengths in answers.by_shard(chosen):
            with paths[shard].open("rb", buffering=0) as file:
                for start, length in zip(starts.tolist(), lengths.tolist(), strict=True):
                    file.seek(begins[shard] + start * WIDTH)
                    pieces.append(file.read(length * WIDTH))
        return np.frombuffer(b"".join(pieces), np.float16).reshape(-1, NUMBERS)

    def by_map(chosen: np.ndarray) -> np.ndarray:
        pieces = [
            maps[shard][rows_of(starts, lengths)] for shard, starts, lengths in answers.by_shard(chosen)
        ]
        return np.concatenate(pieces)

    def by_library(chosen: np.ndarray) -> np.ndarray:
        pieces = []
        for shard, starts, lengths in answers.by_shard(chosen):
            with safe_open(paths[shard], framework="np") as file:
                rows = file.get_slice("rows")
                pieces += [
                    rows[start : start + length] for start, length in zip(starts, lengths, strict=True)
                ]
        return np.concatenate(pieces)

    return [
        ("safetensors, read by positions", by_position),
        ("safetensors, memory-mapped", by_map),
        ("safetensors, slices of safe_open", by_library),
    ]


def batches(answers: Answers) -> Iterator[pa.RecordBatch]:
    """The shards as record batches with one column: the rows of an answer as bytes."""
    for first, last, rows in answers.shards():
        offsets = np.concatenate([[0], np.cumsum(answers.lengths[first:last])]) * WIDTH
        buffers = [None, pa.py_buffer(offsets.astype(np.int64)), pa.py_buffer(rows)]
        column = pa.Array.from_buffers(pa.large_binary(), last - first, buffers)
        yield pa.record_batch([column], schema=SCHEMA)


def rows_in(column: pa.ChunkedArray) -> np.ndarray:
    """The rows of a column of bytes, (rows, NUMBERS)."""
    joined: Any = pa.concat_arrays(column.chunks)
    ends = np.frombuffer(joined.buffers()[1], np.int64)[joined.offset : joined.offset + len(joined) + 1]
    data = np.frombuffer(joined.buffers()[2], np.uint8)[ends[0] : ends[-1]]
    return data.view(np.float16).reshape(-1, NUMBERS)


def write_arrow(path: Path, answers: Answers, largest: int | None = None) -> np.ndarray:
    """Write record batches in Arrow's IPC format; return the first answer of each batch.

    Args:
        path: the file.
        answers: the answers.
        largest: maximum number of answers per record batch; None writes one batch per shard.
    """
    heads = []
    with pa.ipc.new_file(path, SCHEMA) as writer:
        for shard, batch in zip(answers.bounds.tolist(), batches(answers), strict=False):
            for first in range(0, len(batch), largest or len(batch)):
                writer.write_batch(batch.slice(first, largest))
                heads.append(shard + first)
    return np.array(heads)


def arrow_file(folder: Path, answers: Answers) -> list[tuple[str, Read]]:
    """One file in Arrow's IPC format, memory-mapped."""
    path = folder / "answers.arrow"
    write_arrow(path, answers)
    table = pa.ipc.open_file(pa.memory_map(str(path))).read_all()
    return [("Arrow IPC, memory-mapped", lambda chosen: rows_in(table["rows"].take(pa.array(chosen))))]


def lance_dataset(
    folder: Path | str, answers: Answers, options: dict[str, str] | None = None
) -> list[tuple[str, Read]]:
    """A dataset of Lance in a folder or at a URL; empty if Lance is not installed."""
    if importlib.util.find_spec("lance") is None:
        return []
    lance = importlib.import_module("lance")
    reader = pa.RecordBatchReader.from_batches(SCHEMA, batches(answers))
    data = lance.write_dataset(reader, f"{folder}/answers.lance", storage_options=options)
    return [("Lance", lambda chosen: rows_in(data.take(chosen.tolist(), columns=["rows"])["rows"]))]


def upload(path: Path, files: fs.FileSystem) -> None:
    """Move a file into the bucket of an S3 server."""
    fs.copy_files(str(path), f"{BUCKET}/{path.name}", destination_filesystem=files)
    path.unlink()


def safetensors_on_s3(folder: Path, answers: Answers, files: fs.FileSystem) -> list[tuple[str, Read]]:
    """One file per shard, with one request per answer."""
    begins = []
    for number, (_, _, rows) in enumerate(answers.shards()):
        path = folder / f"{number}.safetensors"
        begins.append(write_safetensors(path, rows))
        upload(path, files)

    def by_position(chosen: np.ndarray) -> np.ndarray:
        opened = [files.open_input_file(f"{BUCKET}/{number}.safetensors") for number in range(SHARDS)]
        ranges = [
            (opened[shard], length * WIDTH, begins[shard] + start * WIDTH)
            for shard, starts, lengths in answers.by_shard(chosen)
            for start, length in zip(starts.tolist(), lengths.tolist(), strict=True)
        ]
        with ThreadPoolExecutor(REQUESTS) as pool:
            pieces = list(pool.map(lambda part: part[0].read_at(*part[1:]), ranges))
        return np.frombuffer(b"".join(pieces), np.float16).reshape(-1, NUMBERS)

    return [("safetensors, a request per answer", by_position)]


def arrow_on_s3(folder: Path, answers: Answers, files: fs.FileSystem) -> list[tuple[str, Read]]:
    """One file in Arrow's IPC format; the record batches with selected answers are read."""
    path = folder / "answers.arrow"
    heads = write_arrow(path, answers, BATCH)
    upload(path, files)

    def by_batch(chosen: np.ndarray) -> np.ndarray:
        number = np.searchsorted(heads, chosen, "right") - 1
        reader = pa.ipc.open_file(files.open_input_file(f"{BUCKET}/{path.name}"))
        columns = []
        for batch in np.unique(number).tolist():
            subset = chosen[number == batch] - heads[batch]
            columns.append(reader.get_batch(batch).column(0).take(pa.array(subset)))
        return rows_in(pa.chunked_array(columns))

    return [(f"Arrow IPC, batches of {BATCH}", by_batch)]


def measure_on_s3(answers: Answers, chosen: list[np.ndarray]) -> None:
    """Print the requests and the bytes of each format."""
    print(f"{'format, on S3':<34} requests  bytes for one  GB/s  server at work")
    with tempfile.TemporaryDirectory(prefix="aptool-bench-") as name, object_server(Path(name)) as server:
        address = server.url.removeprefix("http://")
        files = fs.S3FileSystem(endpoint_override=address, scheme="http", region="us-east-1")
        formats = [
            *safetensors_on_s3(Path(name), answers, files),
            *arrow_on_s3(Path(name), answers, files),
            *lance_dataset(server.bucket, answers, {"endpoint": server.url, "allow_http": "true"}),
        ]
        for title, read in formats:
            rows = []
            for some in chosen:
                array, took, served = server.watched(read, some)
                size = array.nbytes
                rows.append((served.number, served.bytes / size, size / took / 1e9, served.seconds / took))
            requests, share, rate, busy = np.median(rows[1:], axis=0)
            print(f"{title:<34} {requests:>8.0f} {share:>14.2f} {rate:>5.3f} {busy:>15.0%}", flush=True)


def main() -> None:
    """Print the table."""
    parser = benchmark_parser(__doc__)
    parser.add_argument("--answers", type=int, default=20_000, help="number of answers (default 20,000)")
    parser.add_argument("--repeats", type=int, default=5, help="number of repeats (default 5)")
    parser.add_argument("--s3", action="store_true", help="read from an S3 server on loopback")
    options = parser.parse_args()
    generator = np.random.default_rng(0)
    lengths = texts(options.answers, 100, 0.6, generator).lengths
    bounds = np.linspace(0, options.answers, SHARDS + 1).astype(np.int64)
    answers = Answers(lengths, np.cumsum(lengths) - lengths, bounds)
    tenth = [
        np.sort(generator.choice(options.answers, options.answers // 10, replace=False))
        for _ in range(options.repeats + 1)  # the first repeat is a warm-up
    ]
    if options.s3:
        measure_on_s3(answers, tenth)
        return
    print(f"{'format':<34} bytes/token  GB/s")
    for write in (safetensors_files, arrow_file, lance_dataset):
        with tempfile.TemporaryDirectory(prefix="aptool-bench-") as name:
            formats = write(Path(name), answers)
            size = sum(file.stat().st_size for file in Path(name).rglob("*") if file.is_file())
            os.sync()
            for title, read in formats:
                rates = []
                for chosen in tenth:
                    begun = time.perf_counter()
                    rows = read(chosen)
                    rates.append(rows.nbytes / (time.perf_counter() - begun) / 1e9)
                    assert rows.shape == (lengths[chosen].sum(), NUMBERS)
                print(
                    f"{title:<34} {size / lengths.sum():>11.1f} {statistics.median(rates[1:]):>5.2f}",
                    flush=True,
                )


if __name__ == "__main__":
    main()
