"""Word vectors from static embedding models: a matrix and a tokenizer, as model2vec keeps them."""

import json
import logging
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np
from tokenizers import Tokenizer

from aptool.errors import AptoolError, InputError, first_line
from aptool.text.word_vectors import WordVectors

logger = logging.getLogger(__name__)

# Names under which input embeddings stand: model2vec, sentence-transformers and aptool, transformers.
_EMBEDDINGS = (
    "embeddings",
    "embedding.weight",
    "word_embeddings.weight",
    "embed_tokens.weight",
    "wte.weight",
)
_ROWS_AT_ONCE = 1 << 15
_WORD_STARTS = "▁Ġ"  # how tokenizers mark a piece that begins a word


class Table(Protocol):
    """A matrix that is read by ranges of rows."""

    def __getitem__(self, rows: slice, /) -> np.ndarray:
        """(rows, d), of any number type."""


class StaticTable(NamedTuple):
    """The rows of a static model.

    Attributes:
        tokenizer: text to token ids.
        table: (rows, d), one a token, or fewer where ``mapping`` says which.
        shape: (rows, d).
        mapping: (tokens,) row of each token; None where they are the same.
        weights: (tokens,) factor of each token; None where they are all 1.
    """

    tokenizer: Tokenizer
    table: Table
    shape: tuple[int, int]
    mapping: np.ndarray | None
    weights: np.ndarray | None


def read_folder(folder: Path, words: Iterable[str] | None) -> WordVectors:
    """Reads ``model.safetensors`` and ``tokenizer.json``; see ``aptool.text.vectors.read_vectors``.

    Raises:
        InputError: either is missing or broken, no tensor is an embedding matrix, or it does not fit the
            tokenizer.
    """
    from safetensors import SafetensorError, safe_open

    weights_file, tokenizer_file = folder / "model.safetensors", folder / "tokenizer.json"
    for file in (weights_file, tokenizer_file):
        if not file.is_file():
            raise InputError(
                file, problem="file not found", expected="a folder with both, or a file of vectors"
            )
    try:
        tokenizer = Tokenizer.from_file(str(tokenizer_file))
    except Exception as error:  # the library raises nothing more special
        raise InputError(tokenizer_file, problem=first_line(error), expected="a tokenizer.json") from error
    try:
        with safe_open(weights_file, framework="pt") as tensors:
            name = _embedding_name(weights_file, list(tensors.keys()))
            part = tensors.get_slice(name)
            shape = tuple(part.get_shape())
            if len(shape) != 2 or 0 in shape:
                raise InputError(
                    weights_file, column=name, value=shape, expected="a matrix with a row for each token"
                )
            extras = {key: _array(tensors.get_tensor(key)) for key in _extras(list(tensors.keys()))}
            table = _Slices(part)
            static = StaticTable(tokenizer, table, shape, extras.get("mapping"), extras.get("weights"))
            return _look_up(static, words, str(folder), weights_file)
    except (SafetensorError, OSError) as error:
        raise InputError(weights_file, problem=first_line(error), expected="a safetensors file") from error


def read_hub(name: str, words: Iterable[str] | None) -> WordVectors:
    """Downloads a static model by its name on the Hugging Face hub, or takes it from the hub's cache.

    Raises:
        AptoolError: the package that does it is not installed.
        InputError: there is no such model, or it cannot be had.
    """
    try:
        from model2vec import StaticModel
    except ImportError as error:
        message = f'{name}: vectors from the Hugging Face hub need `pip install "aptool[distill]"`'
        raise AptoolError(message) from error
    try:
        model = StaticModel.from_pretrained(name, force_download=False)
    except Exception as error:  # whatever a network, a hub and a file format can raise
        expected = "a file or folder here, or a static model on the Hugging Face hub"
        raise InputError(name, problem=first_line(error), expected=expected) from error
    matrix = np.asarray(model.embedding)
    shape = (int(matrix.shape[0]), int(matrix.shape[1]))
    static = StaticTable(model.tokenizer, matrix, shape, model.token_mapping, model.weights)
    return _look_up(static, words, name, name)


def _look_up(
    static: StaticTable,
    words: Iterable[str] | None,
    source: str,
    place: str | Path,
) -> WordVectors:
    """Vectors of words: the mean of the rows of their pieces, as model2vec encodes a text of one word."""
    tokenizer = static.tokenizer
    tokenizer.no_padding()
    tokenizer.no_truncation()
    _check_fit(static, place)
    unknown = _unknown_id(tokenizer)
    wanted = _whole_words(tokenizer, unknown, place) if words is None else list(dict.fromkeys(words))
    pieces = [[token for token in ids if token != unknown] for ids in _encode(tokenizer, wanted, place)]
    known = [index for index, ids in enumerate(pieces) if ids]
    ids = np.array([token for index in known for token in pieces[index]], dtype=np.int64)
    lengths = np.array([len(pieces[index]) for index in known], dtype=np.int64)
    owner = np.repeat(np.arange(len(known)), lengths)
    factors = np.ones(len(ids), dtype=np.float32) if static.weights is None else static.weights[ids]
    rows = ids if static.mapping is None else static.mapping[ids]
    total = np.zeros((len(known), static.shape[1]), dtype=np.float32)
    for at, values in _gather(static, rows):
        np.add.at(total, owner[at], values * factors[at, None].astype(np.float32))
    matrix = total / np.maximum(lengths, 1)[:, None].astype(np.float32)
    bad = np.flatnonzero(~np.isfinite(matrix).all(axis=1))
    if len(bad):
        raise InputError(place, column=wanted[known[bad[0]]], problem="NaN", expected="finite numbers")
    whole = int((lengths == 1).sum())
    logger.info(
        f"{source}: static model, {static.shape[1]} numbers a word, {len(known):,} words found, "
        f"{whole:,} whole and {len(known) - whole:,} from their pieces"
    )
    return WordVectors([wanted[index] for index in known], matrix, source)


def _gather(static: StaticTable, rows: np.ndarray) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Positions in ``rows`` and the table's values there, a range of the table at a time."""
    order = np.argsort(rows, kind="stable")
    for start in range(0, static.shape[0], _ROWS_AT_ONCE):
        low, high = np.searchsorted(rows[order], [start, start + _ROWS_AT_ONCE])
        if high > low:
            at = order[low:high]
            block = np.asarray(static.table[start : start + _ROWS_AT_ONCE], dtype=np.float32)
            yield at, block[rows[at] - start]


def _check_fit(static: StaticTable, place: str | Path) -> None:
    tokens = 1 + max(static.tokenizer.get_vocab(with_added_tokens=True).values(), default=-1)
    per_token = [len(array) for array in (static.mapping, static.weights) if array is not None]
    rows = static.shape[0] if static.mapping is None else tokens
    # Embedding matrices may be padded beyond the vocabulary, never be shorter.
    if rows < tokens or any(length < tokens for length in per_token):
        value = f"{min([rows, *per_token]):,} rows"
        raise InputError(place, value=value, expected=f"a row for each of the tokenizer's {tokens:,} tokens")
    if static.mapping is not None and not ((static.mapping >= 0) & (static.mapping < static.shape[0])).all():
        raise InputError(place, column="mapping", expected=f"rows from 0 to {static.shape[0] - 1:,}")


def _whole_words(tokenizer: Tokenizer, unknown: int | None, place: str | Path) -> list[str]:
    """The words that are a single token: those that tokenize into themselves."""
    added = {token.content for token in tokenizer.get_added_tokens_decoder().values()}
    by_id = sorted(tokenizer.get_vocab(with_added_tokens=True).items(), key=lambda item: item[1])
    candidates = [(token.lstrip(_WORD_STARTS), index) for token, index in by_id if token not in added]
    candidates = [(word, index) for word, index in candidates if word and not word.isspace()]
    encoded = _encode(tokenizer, [word for word, _ in candidates], place)
    pairs = zip(candidates, encoded, strict=True)
    return [word for (word, index), ids in pairs if ids == [index] and index != unknown]


def _encode(tokenizer: Tokenizer, words: list[str], place: str | Path) -> list[list[int]]:
    try:
        return [encoding.ids for encoding in tokenizer.encode_batch(words, add_special_tokens=False)]
    except Exception as error:  # the library raises nothing more special
        raise InputError(
            place, problem=first_line(error), expected="a tokenizer that tokenizes any word"
        ) from error


def _unknown_id(tokenizer: Tokenizer) -> int | None:
    """The token that stands for everything unknown; some models keep its text and some its id."""
    model = json.loads(tokenizer.to_str())["model"]  # the library shows neither for every kind of model
    if model.get("unk_token") is not None:
        return tokenizer.token_to_id(model["unk_token"])
    index: int | None = model.get("unk_id")
    return index


class _Slices:
    """Ranges of rows of a tensor in a safetensors file, which stays on disk."""

    def __init__(self, part: Any) -> None:
        self._part = part

    def __getitem__(self, rows: slice, /) -> np.ndarray:
        return _array(self._part[rows])


def _array(tensor: Any) -> np.ndarray:
    """A torch tensor as numbers numpy knows; it has no bfloat16."""
    array: np.ndarray = (tensor.float() if tensor.dtype.is_floating_point else tensor).numpy()
    return array


def _embedding_name(file: Path, names: Sequence[str]) -> str:
    for wanted in _EMBEDDINGS:
        for name in names:
            if name == wanted or name.endswith(f".{wanted}"):
                return name
    raise InputError(file, value=sorted(names), expected=f"a tensor named {' or '.join(_EMBEDDINGS)}")


def _extras(names: Sequence[str]) -> list[str]:
    return [name for name in ("mapping", "weights") if name in names]
