"""Encoding of answers into an answer store, in independent chunks.

Stored texts are skipped, so an interrupted command resumes and files may share texts. Workers of a cluster
call ``encode_chunk``.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple, TypeAlias

import numpy as np
import pyarrow as pa
import torch

from aptool.errors import InputError
from aptool.formats.inputs import Input, check_unchanged, stat
from aptool.formats.local_store import free_bytes
from aptool.formats.location import location
from aptool.formats.parquet import open_parquet, to_arrow
from aptool.formats.pools import Unit, answers_beside, cached_answers, list_units, read_pools
from aptool.models.checkpoints import load_any
from aptool.models.device import pick_device, set_products
from aptool.models.model import LoadedModel
from aptool.progress import progress
from aptool.scoring.answer_store import AnswerStore, StoredPrecision, open_store, precision_for, writing_to
from aptool.scoring.ranker_scorer import RankerScorer
from aptool.scoring.stored_answers import StoredAnswers

# Number of texts per chunk, and in the sample that estimates the size of a store.
CHUNK = 1024
SAMPLE = 64

# Size of the index of a part, in bytes per answer.
_INDEX_BYTES = 32


class Chunk(NamedTuple):
    """Texts to encode: rows of an answers file, or the unshared texts of a row group of pools."""

    path: str
    version: str | None  # expected version of the file; None is any
    rows: np.ndarray | None  # (n,) int64 of an answers file
    row_group: int  # of a pools file
    texts: int  # number of texts, at most ``CHUNK`` of an answers file
    shared: str | None = None  # the answers file of candidates without a text


class EncodeJob(NamedTuple):
    """The settings of all workers."""

    model: str
    kind: str
    store: str
    tokens_per_batch: int | None


class Encoded(NamedTuple):
    """Number of texts, and the cost of encoding them."""

    texts: int = 0
    encoded: int = 0  # number of encoded texts, without stored ones and duplicates
    tokens: int = 0  # of the encoded texts
    size: int = 0  # bytes of the encoded texts
    seconds: float = 0.0  # wall time

    def plus(self, other: "Encoded") -> "Encoded":
        """Add all fields except the time."""
        return Encoded(*(a + b for a, b in zip(self[:4], other[:4], strict=True)))


# Encodes chunks in other processes; yields a result per chunk.
EncodeBackend: TypeAlias = Callable[[EncodeJob, Sequence[Chunk]], Iterator[Encoded]]


class AnswerEncoder:
    """A model that adds answers to a store."""

    def __init__(
        self,
        model: LoadedModel,
        store: AnswerStore,
        device: torch.device | str,
        tokens_per_batch: int | None,
    ) -> None:
        set_products("fp32")
        self._model = model
        self._store = store
        self._stored = StoredAnswers(store)
        self._scorer = RankerScorer(model.ranker, device=device, tokens_per_batch=tokens_per_batch)

    def encode(self, texts: pa.Array) -> Encoded:
        """Encode the missing texts; ``flush`` writes them."""
        done = Encoded(texts=len(texts))
        for begin in range(0, len(texts), CHUNK):
            done = done.plus(self._put(texts.slice(begin, CHUNK), self._stored))
            self.flush(force=False)
        return done

    def flush(self, *, force: bool = True) -> None:
        """Write the encoded texts; without ``force``, only if they are many or old."""
        self._stored.flush(force=force)

    def bytes_needed(self, texts: pa.Array) -> float:
        """Estimate the bytes per text in the store, from a sample of texts."""
        probe = self._put(texts, StoredAnswers(self._store))
        return (probe.size + _INDEX_BYTES * probe.encoded) / len(texts)

    def _put(self, texts: pa.Array, stored: StoredAnswers) -> Encoded:
        """Encode the missing texts, and add them to the buffer of ``stored``."""
        tokens = self._model.tokenizer.encode(texts, self._model.recipe.text.max_answer_tokens)
        rows, keys = stored.new(tokens)
        missing, size = tokens.take(rows), 0
        for batch, encoded in self._scorer.encode(missing):
            size += stored.put(keys[batch], missing.take(batch), encoded, self._scorer.row_multiple)
        return Encoded(encoded=len(rows), tokens=len(missing.ids), size=size)


def encode(
    files: Sequence[str],
    output: str,
    *,
    model: str,
    kind: str = "auto",
    answers: str | None = None,
    precision: StoredPrecision | None = None,
    device: str = "auto",
    tokens_per_batch: int | None = None,
    run: EncodeBackend | None = None,
) -> Encoded:
    """Encode the answers that are missing in a store; the arguments are those of `aptool.encode`.

    ``run`` encodes the chunks; None is this process, on ``device``.
    """
    started = time.monotonic()
    # With a backend, this process only encodes a sample.
    local_device = pick_device(device) if run is None else torch.device("cpu")
    with progress("loading model"):
        loaded = load_any(model, local_device, kind)
    if loaded.ranker.encoder.output_kind == "ids":
        raise InputError(
            model, problem="reads question and answer as one text", expected="a model that encodes answers"
        )
    precision = precision_for(output, loaded, model, precision)
    chunks = list_chunks(files, answers)
    paths = dict.fromkeys(path for chunk in chunks for path in (chunk.path, chunk.shared) if path is not None)
    inputs = [Input(path, stat(path).version) for path in paths]
    job = EncodeJob(model, kind, output, tokens_per_batch)
    texts = sum(chunk.texts for chunk in chunks)
    with writing_to(output), progress("encode", texts, "answers") as bar:
        store = AnswerStore(location(output).absolute(), precision, loaded.fingerprint)
        store.refresh(repair=True)
        encoder = AnswerEncoder(loaded, store, local_device, tokens_per_batch)
        if isinstance(store.folder, Path):
            _check_room(store.folder, encoder, chunks)
        store.write_manifest(loaded.recipe)
        total = Encoded()
        for result in _encode_locally(encoder, chunks) if run is None else run(job, chunks):
            total = total.plus(result)
            bar.update(result.texts)
        check_unchanged(inputs)
    return total._replace(seconds=round(time.monotonic() - started, 3))


def list_chunks(files: Sequence[str], answers: str | None = None) -> list[Chunk]:
    """Split answers files and pools files into chunks; each row of an answers file is in one chunk."""
    chunks = []
    rows: dict[str, list[np.ndarray]] = {}  # of answers files
    for path in files:
        with open_parquet(path) as reader:
            columns, number = set(reader.schema.names), reader.metadata.num_rows
        if "text" in columns and "candidates" not in columns:
            rows.setdefault(str(path), []).append(np.arange(number))
            continue
        shared = answers if answers is not None else answers_beside(path)
        texts = cached_answers(shared) if shared is not None else None
        for unit in list_units([path]):
            pools = read_pools(unit, texts)
            is_shared = pools.shared_rows >= 0
            unshared = int((~is_shared).sum())
            if unshared:
                file = texts.path if texts is not None else None
                chunks.append(Chunk(unit.path, unit.version, None, unit.row_group, unshared, file))
            if texts is not None:
                rows.setdefault(texts.path, []).append(pools.shared_rows[is_shared])
    for path, parts in rows.items():
        distinct, version = np.unique(np.concatenate(parts)), stat(path).version
        for begin in range(0, len(distinct), CHUNK):
            chunk_rows = distinct[begin : begin + CHUNK]
            chunks.append(Chunk(path, version, chunk_rows, -1, len(chunk_rows)))
    return chunks


def read_chunk(chunk: Chunk) -> pa.Array:
    """Read the texts of a chunk."""
    if chunk.rows is not None:
        return cached_answers(chunk.path, chunk.version).texts.take(to_arrow(chunk.rows))
    shared = cached_answers(chunk.shared) if chunk.shared is not None else None
    pools = read_pools(Unit(chunk.path, chunk.row_group, chunk.version), shared)
    return pools.answers.filter(to_arrow(pools.shared_rows < 0))


def encode_chunk(job: EncodeJob, chunk: Chunk, device: str) -> Encoded:
    """Encode a chunk in a worker; the worker loads the model only once."""
    encoder, store = _opened(job, device)
    store.refresh()  # other workers may have added answers
    encoded = encoder.encode(read_chunk(chunk))
    encoder.flush()
    return encoded


@lru_cache(maxsize=1)
def _opened(job: EncodeJob, device: str) -> tuple[AnswerEncoder, AnswerStore]:
    model = load_any(job.model, device, job.kind)
    store = open_store(job.store, model, job.model)
    return AnswerEncoder(model, store, device, job.tokens_per_batch), store


def _encode_locally(encoder: AnswerEncoder, chunks: Sequence[Chunk]) -> Iterator[Encoded]:
    for chunk in chunks:
        yield encoder.encode(read_chunk(chunk))
    encoder.flush()


def _check_room(folder: Path, encoder: AnswerEncoder, chunks: Sequence[Chunk]) -> None:
    """Raise if the disk is too small for the encoded answers, estimated from a sample."""
    if not chunks:
        return
    chosen = [chunks[i] for i in np.unique(np.linspace(0, len(chunks) - 1, 4).astype(int))]
    sample = []
    for chunk in chosen:
        texts = read_chunk(chunk)
        rows = np.unique(np.linspace(0, len(texts) - 1, SAMPLE // 4).astype(np.int64))
        sample.append(texts.take(to_arrow(rows)))
    needed = encoder.bytes_needed(pa.concat_arrays(sample)) * sum(chunk.texts for chunk in chunks)
    free = free_bytes(folder)
    if needed > free:
        raise InputError(
            folder,
            problem=f"{free:,} bytes free",
            expected=f"about {needed:,.0f} for the encoded answers; --precision fp16 takes half",
        )
