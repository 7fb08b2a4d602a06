"""Encoding of answers into a store, in chunks that are independent of each other.

A chunk is encoded as far as the store lacks its texts, so that the same work is never done twice: not after
an interruption, and not for texts of another file that are there already. One process and a cluster map the
same function over the chunks.
"""

import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple, TypeAlias

import numpy as np
import pyarrow as pa
import torch

from aptool.errors import InputError
from aptool.formats.location import location
from aptool.formats.parquet import open_parquet
from aptool.formats.pools import Answers, Unit, answers_beside, list_units, read_answers, read_pools
from aptool.formats.storage import Input, check_unchanged, stat
from aptool.models.checkpoints.load import load_any
from aptool.models.device import pick_device
from aptool.models.model import LoadedModel
from aptool.progress import get_progress
from aptool.scoring.answer_store import AnswerStore, StoredPrecision, open_store, precision_for, writing_to
from aptool.scoring.scorer import Scorer
from aptool.scoring.stored_answers import StoredAnswers

# Texts of a chunk, and of the sample by which the size of a store is estimated.
CHUNK = 1024
SAMPLE = 64

# Bytes of an answer beside its rows.
_INDEX_BYTES = 32


class Chunk(NamedTuple):
    """Texts to encode: those of an answers file at some rows, or those that a row group of pools has itself.

    Attributes:
        path: the file.
        version: of the file; see ``formats.pools.Unit``.
        rows: (n,) int64 of an answers file.
        row_group: of a pools file.
        texts: number of texts, at most ``CHUNK`` of an answers file.
        shared: the answers file that candidates without a text refer to.
    """

    path: str
    version: str | None
    rows: np.ndarray | None
    row_group: int
    texts: int
    shared: str | None = None


class EncodeJob(NamedTuple):
    """The settings of the work, the same for all workers."""

    model: str
    kind: str
    store: str
    tokens_per_batch: int | None


class Encoded(NamedTuple):
    """What was done with some texts.

    Attributes:
        texts: their number.
        encoded: how many were encoded; the store had the others, or they are equal to another text.
        tokens: of those that were encoded.
        size: bytes of their rows.
        seconds: the whole took.
    """

    texts: int = 0
    encoded: int = 0
    tokens: int = 0
    size: int = 0
    seconds: float = 0.0

    def plus(self, other: "Encoded") -> "Encoded":
        """Both together, without the time."""
        return Encoded(
            self.texts + other.texts,
            self.encoded + other.encoded,
            self.tokens + other.tokens,
            self.size + other.size,
        )


# Encodes chunks somewhere; yields what was done with each.
EncodeBackend: TypeAlias = Callable[[EncodeJob, Sequence[Chunk]], Iterator[Encoded]]


class AnswerEncoder:
    """A model that adds to a store."""

    def __init__(
        self, model: LoadedModel, store: AnswerStore, device: torch.device | str, tokens_per_batch: int | None
    ) -> None:
        self._model = model
        self._store = store
        self._stored = StoredAnswers(store, fill=True)
        self._scorer = Scorer(model.ranker, device=device, tokens_per_batch=tokens_per_batch)

    def encode(self, texts: pa.Array) -> Encoded:
        """Encodes the texts that the store lacks; they are in it after the next ``flush``."""
        done = Encoded(texts=len(texts))
        for begin in range(0, len(texts), CHUNK):
            some = self._model.tokenizer.encode(
                texts.slice(begin, CHUNK), self._model.recipe.text.max_answer_tokens
            )
            rows, keys = self._stored.new(some)
            if not len(rows):
                continue
            lacking = some.take(rows)
            multiple = self._scorer.row_multiple
            for batch, encoded in self._scorer.encode(lacking):
                _, written = self._stored.put(keys[batch], lacking.take(batch), encoded, multiple)
                done = done._replace(size=done.size + written.nbytes)
            done = done._replace(encoded=done.encoded + len(rows), tokens=done.tokens + len(lacking.ids))
            self.flush(everything=False)
        return done

    def refresh(self) -> None:
        """Sees what others have added to the store since."""
        self._store.refresh()

    def flush(self, *, everything: bool = True) -> None:
        """See ``StoredAnswers.flush``."""
        self._stored.flush(everything=everything)

    def bytes_needed(self, texts: pa.Array) -> float:
        """About how many bytes a text will take in the store, of texts that are a sample of others."""
        some = self._model.tokenizer.encode(texts, self._model.recipe.text.max_answer_tokens)
        rows, keys = self._stored.new(some)
        if not len(rows):
            return 0.0
        probe = StoredAnswers(self._store, fill=True)
        lacking = some.take(rows)
        sizes = [
            probe.put(keys[batch], lacking.take(batch), encoded, self._scorer.row_multiple)[1].nbytes
            for batch, encoded in self._scorer.encode(lacking)
        ]
        return (sum(sizes) + _INDEX_BYTES * len(rows)) / len(texts)


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
    """Encodes answers into a store, as far as it lacks them.

    Args:
        files: answers files and pools files.
        output: folder of the store.
        model: model folder.
        kind: see ``load_any``.
        answers: texts of shared answers of pools; None is ``answers.parquet`` beside each.
        precision: what numbers are stored in; None is that of the store, fp32 of a new one.
        device: see ``pick_device``.
        tokens_per_batch: see ``Scorer``.
        run: where to encode; None is this process, on ``device``.

    Raises:
        UsageError: the store has another precision, or there is no such device.
        InputError: an input is not valid, the model encodes no answers, the store is another model's or
            another process's, there is no room for it, or an input was replaced meanwhile.
    """
    started = time.monotonic()
    # Where others encode, this process only takes a sample.
    here = pick_device(device) if run is None else torch.device("cpu")
    with get_progress().task("loading model"):
        loaded = load_any(model, here, kind)
    if loaded.ranker.encoder.output_kind == "ids":
        raise InputError(
            model, problem="reads question and answer as one text", expected="a model that encodes answers"
        )
    precision = precision_for(output, loaded, model, precision)
    chunks = list_chunks(files, answers)
    names = dict.fromkeys(path for chunk in chunks for path in (chunk.path, chunk.shared) if path is not None)
    inputs = [Input(path, stat(path).version) for path in names]
    job = EncodeJob(model, kind, output, tokens_per_batch)
    with writing_to(output), get_progress().task("encode") as update:
        store = AnswerStore(location(output).absolute(), precision, loaded.fingerprint)
        store.refresh(repair=True)
        encoder = AnswerEncoder(loaded, store, here, tokens_per_batch)
        if isinstance(store.folder, Path):
            _check_room(store.folder, encoder, chunks)
        store.write_manifest(loaded.recipe.preset)
        done, total = Encoded(), sum(chunk.texts for chunk in chunks)
        update(0, total, "answers")
        for one in _run_here(encoder, chunks) if run is None else run(job, chunks):
            done = done.plus(one)
            update(done.texts, total, "answers")
        check_unchanged(inputs)
    return done._replace(seconds=round(time.monotonic() - started, 3))


def list_chunks(files: Sequence[str], answers: str | None = None) -> list[Chunk]:
    """The texts of answers files and pools files, each row of an answers file once.

    Raises:
        InputError: a file is neither.
    """
    chunks = []
    rows: dict[str, list[np.ndarray]] = {}  # of answers files
    for path in files:
        with open_parquet(path) as reader:
            columns, number = set(reader.schema.names), reader.metadata.num_rows
        if "text" in columns and "candidates" not in columns:
            rows.setdefault(str(path), []).append(np.arange(number))
            continue
        shared = answers if answers is not None else answers_beside(path)
        texts = _shared(None if shared is None else str(shared))
        for unit in list_units([path]):
            pools = read_pools(unit, texts)
            is_shared = pools.shared_rows >= 0
            own = int((~is_shared).sum())
            if own:
                file = texts.path if texts is not None else None
                chunks.append(Chunk(unit.path, unit.version, None, unit.row_group, own, file))
            if texts is not None:
                rows.setdefault(texts.path, []).append(pools.shared_rows[is_shared])
    for path, parts in rows.items():
        wanted, version = np.unique(np.concatenate(parts)), stat(path).version
        for begin in range(0, len(wanted), CHUNK):
            some = wanted[begin : begin + CHUNK]
            chunks.append(Chunk(path, version, some, -1, len(some)))
    return chunks


def read_chunk(chunk: Chunk) -> pa.Array:
    """The texts of a chunk.

    Raises:
        InputError: its file cannot be read, or was replaced.
    """
    if chunk.rows is not None:
        return _answers(chunk.path, chunk.version).texts.take(pa.array(chunk.rows))
    pools = read_pools(Unit(chunk.path, chunk.row_group, chunk.version), _shared(chunk.shared))
    return pools.answers.filter(pa.array(pools.shared_rows < 0))


def encode_chunk(job: EncodeJob, chunk: Chunk, device: str) -> Encoded:
    """Encodes a chunk in a worker, which loads the model once.

    Raises:
        AptoolError: the chunk, the model or the store cannot be read, or the store cannot be written.
    """
    encoder = _opened(job, device)
    encoder.refresh()
    done = encoder.encode(read_chunk(chunk))
    encoder.flush()
    return done


@lru_cache(maxsize=1)
def _opened(job: EncodeJob, device: str) -> AnswerEncoder:
    model = load_any(job.model, device, job.kind)
    return AnswerEncoder(model, open_store(job.store, model, job.model), device, job.tokens_per_batch)


def _shared(path: str | None) -> Answers | None:
    return _answers(path, None) if path is not None else None


@lru_cache(maxsize=1)
def _answers(path: str, version: str | None) -> Answers:
    return read_answers(path, version)


def _run_here(encoder: AnswerEncoder, chunks: Sequence[Chunk]) -> Iterator[Encoded]:
    for chunk in chunks:
        yield encoder.encode(read_chunk(chunk))
    encoder.flush()


def _check_room(folder: Path, encoder: AnswerEncoder, chunks: Sequence[Chunk]) -> None:
    """Checks, before anything is encoded, that a disk has room.

    Raises:
        InputError: it has not.
    """
    if not chunks:
        return
    chosen = [chunks[i] for i in np.unique(np.linspace(0, len(chunks) - 1, 4).astype(int))]
    texts = pa.concat_arrays(
        [texts.take(_spread(len(texts), SAMPLE // 4)) for texts in map(read_chunk, chosen)]
    )
    needed = encoder.bytes_needed(texts) * sum(chunk.texts for chunk in chunks)
    free = shutil.disk_usage(folder).free
    if needed > free:
        raise InputError(
            folder,
            problem=f"{free / 1e9:.1f} GB free",
            expected=f"about {needed / 1e9:.1f} GB for the encoded answers; --precision fp16 takes half",
        )


def _spread(number: int, most: int) -> pa.Array:
    """At most ``most`` numbers below ``number``, spread evenly."""
    return pa.array(np.unique(np.linspace(0, number - 1, most).astype(np.int64)))
