"""Checkpoints of other libraries, which sentence-transformers loads and scores, in PyTorch or OpenVINO.

The library decides what the files of a checkpoint mean, and renders its prompts and templates. No code of a
checkpoint runs, and no pickle is read.
"""

import contextlib
import hashlib
import logging
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import torch
from typing_extensions import override

from aptool.data.pools import Answers, PoolBatch, Unit
from aptool.documents import read_json
from aptool.environment import Backend, Precision, require, versions_of
from aptool.errors import AptoolError, InputError, first_line
from aptool.models.device import check_precision, exact_products, is_out_of_memory, pick_device
from aptool.models.hub import CONFIG, MODULES, ST_CONFIG, find_folder, model_name
from aptool.scoring.systems import Count, Scorer, System, Work

# Packages whose versions decide scores.
_PACKAGES = ("sentence-transformers", "transformers", "tokenizers", "torch")
_OPENVINO = ("openvino", "optimum-intel")

# The classes of the library, by ``model_type`` in config_sentence_transformers.json.
_CLASSES = {
    "SentenceTransformer": "SentenceTransformer",
    "CrossEncoder": "CrossEncoder",
    "MultiVectorEncoder": "MultiVectorEncoder",
    "ColBERT": "MultiVectorEncoder",
}

# The library's default number of texts per batch, and the tokens of a text of a model without a limit.
_BATCH, _TOKENS = 32, 512

# Maximum number of answers encoded, and of pairs compared, at a time: both bound memory.
_ANSWERS, _PAIRS = 1024, 8192

# By a part of the library's message: what the user can do about it.
_REMEDIES = {
    "trust_remote_code": "a checkpoint without code of its own, which is not run",
    "model.safetensors": "weights in safetensors files; pickled ones are not read",
    "peft": "a checkpoint with merged weights (merge_and_unload() of peft)",
    "openvino": "a network that OpenVINO can convert, or --backend torch",
}

# Rows of pairs, and their scores.
_Block: TypeAlias = tuple[np.ndarray, np.ndarray]


@dataclass(frozen=True)
class SentenceTransformers(System):
    """A checkpoint that sentence-transformers loads and scores."""

    has_network = True
    folder: str  # or a name on the hub
    device: str = "auto"  # ``auto``, ``cpu``, ``cuda`` or a GPU such as ``cuda:1``
    precision: Precision = "auto"  # ``auto`` is fp32
    tokens_per_batch: int | None = None  # None: ``_BATCH`` texts
    backend: Backend = "torch"  # ``openvino`` computes on the CPU
    # The model of the library, if it is already loaded on the device.
    model: Any = field(default=None, compare=False, repr=False)

    @override
    def open(
        self, units: Sequence[Unit] = (), answers: Answers | None = None, device: str | None = None
    ) -> "SentenceTransformersScorer":
        target = pick_device(self.device) if device is None else torch.device(device)
        check_precision("--precision", self.precision, target)
        model = self.model if self.model is not None else load_checkpoint(self).to(target)
        return SentenceTransformersScorer(self, model, str(target))


class SentenceTransformersScorer(Scorer):
    """An open checkpoint."""

    def __init__(self, system: SentenceTransformers, model: Any, device: str) -> None:
        """Wrap a model of the library that scores on a device."""
        exact_products()
        folder, kind = local_folder(system.folder), type(model).__name__
        limit, tokens = model.max_seq_length, system.tokens_per_batch
        self.max_answer_tokens = limit if isinstance(limit, int) and limit < 1 << 24 else None
        self.device = device
        self.model = model
        self._folder = folder
        self._precision = "fp32" if system.precision == "auto" else system.precision
        self._batch = _BATCH if tokens is None else max(1, tokens // (self.max_answer_tokens or _TOKENS))
        packages = (*_PACKAGES, *(_OPENVINO if system.backend == "openvino" else ()))
        description = {
            "name": model_name(folder),
            "engine": f"sentence-transformers {kind}",
            "backend": system.backend,
            "fingerprint": checkpoint_fingerprint(folder, kind),
            "device": device,
            "precision": self._precision,
            "versions": versions_of(*packages),
        }
        tag = "-".join(model_name(folder).split())
        super().__init__(replace(system, model=None), tag, [description, self._batch], description)

    @override
    def prepare(self, pools: PoolBatch) -> Work:
        texts = pools.questions.to_pylist(), pools.answers.to_pylist()
        return Work(partial(self.score_texts, *texts, pools.pair_question, pools.pair_answer))

    def score_texts(
        self,
        questions: Sequence[str],
        answers: Sequence[str],
        pair_question: np.ndarray,
        pair_answer: np.ndarray,
        count: Count = lambda pairs: None,
    ) -> np.ndarray:
        """(P,) float32 scores of pairs of distinct questions and answers."""
        scores = np.empty(len(pair_answer), dtype=np.float32)
        score = self._score_pairs if hasattr(self.model, "predict") else self._score_encoded
        with _library_errors(self._folder), torch.inference_mode():
            for rows, of_rows in score(questions, answers, pair_question, pair_answer):
                scores[rows] = of_rows
                count(len(rows))
        return scores

    def _score_pairs(
        self,
        questions: Sequence[str],
        answers: Sequence[str],
        pair_question: np.ndarray,
        pair_answer: np.ndarray,
    ) -> Iterator[_Block]:
        """Yield the scores of a model that reads question and answer together."""
        order = np.argsort(_lengths(questions)[pair_question] + _lengths(answers)[pair_answer], kind="stable")
        for rows in _blocks(order, _PAIRS):
            indices = zip(pair_question[rows].tolist(), pair_answer[rows].tolist(), strict=True)
            pairs = [(questions[question], answers[answer]) for question, answer in indices]
            yield rows, self.model.predict(pairs, batch_size=self._batch, show_progress_bar=False)

    def _score_encoded(
        self,
        questions: Sequence[str],
        answers: Sequence[str],
        pair_question: np.ndarray,
        pair_answer: np.ndarray,
    ) -> Iterator[_Block]:
        """Yield the scores of a model that encodes each text alone."""
        queries = self._encoded(self.model.encode_query, questions)
        for numbers in _blocks(np.argsort(_lengths(answers), kind="stable"), _ANSWERS):
            documents = self._encoded(self.model.encode_document, [answers[number] for number in numbers])
            positions = np.full(len(answers), -1)
            positions[numbers] = np.arange(len(numbers))
            for rows in _blocks(np.flatnonzero(positions[pair_answer] >= 0), _PAIRS):
                of_queries = _select(queries, pair_question[rows])
                of_documents = _select(documents, positions[pair_answer[rows]])
                yield rows, self.model.similarity_pairwise(of_queries, of_documents).float().cpu().numpy()

    def _encoded(self, encode: Callable[..., Any], texts: Sequence[str]) -> Any:
        """Return a vector per text, or a list of the vectors of the tokens of each text."""
        options = {"batch_size": self._batch, "show_progress_bar": False}
        if type(self.model).__name__ == "SentenceTransformer":
            return encode(list(texts), convert_to_tensor=True, **options).float()
        return [vectors.float() for vectors in encode(list(texts), **options)]


def _lengths(texts: Sequence[str]) -> np.ndarray:
    return np.array([len(text) for text in texts], dtype=np.int64)


def _blocks(order: np.ndarray, size: int) -> Iterator[np.ndarray]:
    for begin in range(0, len(order), size):
        yield order[begin : begin + size]


def _select(texts: Any, rows: np.ndarray) -> Any:
    if isinstance(texts, list):
        return [texts[row] for row in rows.tolist()]
    return texts[torch.from_numpy(rows).to(texts.device)]


def load_checkpoint(system: SentenceTransformers) -> Any:
    """Load a checkpoint on the CPU with the class of the library that its files name."""
    purpose, extra = "a checkpoint of another library", "sentence-transformers"
    if system.backend == "openvino":
        purpose, extra = "backend openvino", "openvino"
        require("optimum.intel", purpose=purpose, extra=extra)
    require("transformers", purpose=purpose, extra=extra)
    library = require("sentence_transformers", purpose=purpose, extra=extra)
    folder = local_folder(system.folder)
    model_class = getattr(library, class_of(folder))
    with _library_errors(folder), torch.random.fork_rng(devices=[]):
        model, report = _load(model_class, folder, system, seed=0)
        if "MISSING" in report:
            of_torch = replace(system, backend="torch")  # without another conversion to OpenVINO
            first = model if system == of_torch else _load(model_class, folder, of_torch, seed=0)[0]
            other, _ = _load(model_class, folder, of_torch, seed=1)
            if _probe(first) != _probe(other):
                # Other missing weights, such as those of an unused pooler, do not change scores.
                expected = "all weights of the network; others would be random"
                raise InputError(folder, problem="missing weights", expected=expected)
    if getattr(model, "num_labels", 1) != 1:
        problem, expected = f"{model.num_labels} labels", "one label, which orders the candidates"
        raise InputError(folder, problem=problem, expected=expected)
    return model.bfloat16() if (system.backend, system.precision) == ("torch", "bf16") else model


def _load(model_class: Any, folder: Path, system: SentenceTransformers, seed: int) -> tuple[Any, str]:
    """Load a model; return it with the report of transformers on its weights."""
    options: dict[str, Any] = {"dtype": torch.float32, "use_safetensors": True}
    if system.backend == "openvino":
        # Without the hint, OpenVINO computes in bf16 on processors with native bf16.
        hint = "bf16" if system.precision == "bf16" else "f32"
        config = {"INFERENCE_PRECISION_HINT": hint, "INFERENCE_NUM_THREADS": torch.get_num_threads()}
        options = {"ov_config": config}
        # Conversion warns of what is usual.
        for name in ("optimum.intel", "sentence_transformers"):
            logging.getLogger(name).setLevel(logging.ERROR)
        warnings.filterwarnings("ignore", "Converting a tensor to a Python boolean")
    torch.manual_seed(seed)
    with _recorded("transformers.modeling_utils") as messages:
        model = model_class(
            str(folder),
            backend=system.backend,
            device="cpu",
            trust_remote_code=False,
            local_files_only=True,
            model_kwargs=options,
        )
    model = model.float() if system.backend == "torch" else model
    return model.requires_grad_(False).eval(), "\n".join(messages)


@contextlib.contextmanager
def _recorded(name: str) -> Iterator[list[str]]:
    """Collect the warnings of a logger, which are not shown."""
    messages: list[str] = []
    logger, handler = logging.getLogger(name), logging.Handler(logging.WARNING)
    handler.emit = lambda record: messages.append(record.getMessage())  # type: ignore[method-assign]
    level, propagate = logger.level, logger.propagate
    logger.addHandler(handler)
    logger.setLevel(logging.WARNING)
    logger.propagate = False
    try:
        yield messages
    finally:
        logger.removeHandler(handler)
        logger.setLevel(level)
        logger.propagate = propagate


def _probe(model: Any) -> bytes:
    """Return the logits of a pair, or the vectors of a text, which depend on all weights in use."""
    if hasattr(model, "predict"):
        outputs = [model.predict([("a", "b")], activation_fn=torch.nn.Identity())]
    else:
        outputs = [model.encode_query("a"), model.encode_document("a")]
    return b"".join(np.asarray(output).tobytes() for output in outputs)


def class_of(folder: Path) -> str:
    """Return the class of the library that saved a checkpoint, or that reads its network."""
    if (folder / MODULES).is_file():
        name = _object(folder / ST_CONFIG).get("model_type") or "SentenceTransformer"
        if name not in _CLASSES:
            expected = f"one of {', '.join(_CLASSES)}"
            raise InputError(folder / ST_CONFIG, position="model_type", value=name, expected=expected)
        return _CLASSES[name]
    architecture = str((_object(folder / CONFIG).get("architectures") or [""])[0])
    if architecture.endswith(("ForSequenceClassification", "ForCausalLM")):
        return "CrossEncoder"
    return "MultiVectorEncoder" if architecture == "HF_ColBERT" else "SentenceTransformer"


def _object(path: Path) -> dict[str, Any]:
    """Read the object in a JSON file; return an empty object if the file is missing."""
    content = read_json(path, "a file of a checkpoint, in JSON") if path.is_file() else {}
    if not isinstance(content, dict):
        raise InputError(path, value=content, expected="a JSON object")
    return content


def local_folder(name: str) -> Path:
    """Return the folder of a checkpoint; raise for the URL of an object store."""
    folder = find_folder(name)
    if not isinstance(folder, Path):
        raise InputError(name, problem="a URL", expected="a folder on this machine, or a name on the hub")
    return folder


def checkpoint_fingerprint(folder: Path, kind: str = "") -> str:
    """Hash the name, the class and all files of a checkpoint."""
    digest = hashlib.sha256(f"{kind}\0{model_name(folder)}".encode())
    for path in sorted(folder.rglob("*")):
        if path.is_file():
            digest.update(str(path.relative_to(folder)).encode())
            with path.open("rb") as file:
                digest.update(hashlib.file_digest(file, "sha256").digest())
    return digest.hexdigest()[:16]


@contextlib.contextmanager
def _library_errors(folder: Path) -> Iterator[None]:
    """Convert the errors of the library to one line; a full memory stays one."""
    try:
        yield
    except AptoolError:
        raise
    except Exception as error:  # checkpoints can let the library raise anything
        if isinstance(error, RuntimeError | MemoryError) and is_out_of_memory(error):
            raise
        remedies = (remedy for part, remedy in _REMEDIES.items() if part in str(error))
        expected = next(remedies, "a checkpoint that sentence-transformers can score with")
        raise InputError(folder, problem=first_line(error), expected=expected) from error
