"""From a checkpoint of another library to an open scorer that calls sentence-transformers.

The library loads the checkpoint, renders prompts and templates, and computes the scores, in PyTorch or
OpenVINO. No code of a checkpoint runs, no pickle is read, and no file is downloaded.
"""

import contextlib
import hashlib
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import torch
from typing_extensions import override

from aptool.environment import Engine, EnginePrecision, versions_of
from aptool.errors import AptoolError, InputError, first_line
from aptool.formats.pools import Answers, PoolBatch, Unit
from aptool.models.checkpoints import checkpoint_fingerprint
from aptool.models.checkpoints.files import (
    Layout,
    checkpoint_name,
    kind_of,
    optional_object,
    read_layout,
    require_safetensors,
)
from aptool.models.checkpoints.keys import ENGINE
from aptool.models.device import check_precision, is_out_of_memory, pick_device, set_products
from aptool.models.hub import CONFIG, ST_CONFIG, find_folder
from aptool.models.pretrained import check_network_config, without_code
from aptool.scoring.openvino import EXPECTED, Input, calibration_texts, openvino_model
from aptool.scoring.openvino import PACKAGES as OPENVINO_PACKAGES
from aptool.scoring.systems import Scorer, System
from aptool.text.tokenizer_file import read_tokenizer
from aptool.version import require

# The class of the library that reads a kind of checkpoint.
_CLASSES = {
    "sentence-transformers": "SentenceTransformer",
    "static": "SentenceTransformer",
    "cross-encoder": "CrossEncoder",
    "causal-lm": "CrossEncoder",
    "colbert": "MultiVectorEncoder",
}

# Other names of a class, in config_sentence_transformers.json.
_ALIASES = {"ColBERT": "MultiVectorEncoder"}

# Packages whose versions decide scores.
_PACKAGES = ("sentence-transformers", "transformers", "tokenizers", "torch")

# Entries that name a function, and those that name another checkpoint.
_FUNCTIONS = ("activation_fn", "activation_function", "sbert_ce_default_activation_function")
_NAMES = ("tokenizer_name_or_path",)

# The library's default number of texts per batch, and the tokens of a text of a model without a limit.
_BATCH, _TOKENS = 32, 512

# Maximum number of answers encoded, and of pairs compared, at a time: both bound memory.
_ANSWERS, _PAIRS = 1024, 8192

# Rows of pairs, and their scores.
_Block: TypeAlias = tuple[np.ndarray, np.ndarray]


@dataclass(frozen=True)
class LibrarySystem(System):
    """A checkpoint that sentence-transformers loads and scores with."""

    folder: str  # or a name on the hub
    device: str = "auto"  # ``auto``, ``cpu``, ``cuda`` or a GPU such as ``cuda:1``
    precision: EnginePrecision = "auto"  # ``auto`` is fp32
    tokens_per_batch: int | None = None  # None: ``_BATCH`` texts
    kind: str = "auto"  # checkpoint type
    engine: Engine = ENGINE  # computes in PyTorch; ``openvino`` on the CPU
    texts: tuple[Input, ...] = ()  # that calibrate ``int8``, from ``calibrated``

    def __post_init__(self) -> None:
        """Set the device of OpenVINO."""
        if self.engine == "openvino":
            object.__setattr__(self, "device", "cpu")

    def calibrated(self, units: Sequence[Unit], answers: Answers | None) -> "LibrarySystem":
        """Return the system with texts of the pools that calibrate it, if it needs them and has none."""
        if self.precision != "int8" or self.texts or not units:
            return self
        kind = kind_of(read_layout(local_folder(self.folder), check=False), self.kind)
        pairs = _CLASSES.get(kind) == "CrossEncoder"
        return replace(self, texts=calibration_texts(units, answers, pairs=pairs))

    @override
    def open(
        self, units: Sequence[Unit] = (), answers: Answers | None = None, device: str | None = None
    ) -> "LibraryScorer":
        target = pick_device(self.device) if device is None else torch.device(device)
        check_precision("--precision", self.precision, target)
        system = self.calibrated(units, answers)
        return LibraryScorer(system, load_library_model(system).to(target), str(target))

    @property
    @override
    def paths(self) -> tuple[str, ...]:
        return (self.folder,)


class LibraryScorer(Scorer):
    """An open checkpoint of sentence-transformers."""

    def __init__(self, system: LibrarySystem, model: Any, device: str) -> None:
        """Wrap a model of the library that scores on a device."""
        folder, kind = local_folder(system.folder), type(model).__name__
        limit, tokens = model.max_seq_length, system.tokens_per_batch
        self.max_answer_tokens = limit if isinstance(limit, int) and limit < 1 << 24 else None
        self.device = device
        self._folder, self._model = folder, model
        self._precision = "fp32" if system.precision == "auto" else system.precision
        self._batch = _BATCH if tokens is None else max(1, tokens // (self.max_answer_tokens or _TOKENS))
        description = {
            "name": checkpoint_name(folder),
            "engine": f"{system.engine} {kind}",
            "fingerprint": checkpoint_fingerprint(folder, kind, suffixes=("",)),
            "device": device,
            "precision": self._precision,
            "versions": _versions(system.engine),
        }
        if system.texts:
            texts = json.dumps(system.texts).encode()
            description["calibration"] = hashlib.sha256(texts).hexdigest()[:16]
        tag = "-".join(checkpoint_name(folder).split())
        super().__init__(system, tag, [description, self._batch], description)

    @override
    def score(self, inputs: PoolBatch, progress: Callable[[int], None] = lambda pairs: None) -> np.ndarray:
        set_products(self._precision)
        scores = np.empty(len(inputs.pair_answer), dtype=np.float32)
        score = self._score_pairs if hasattr(self._model, "predict") else self._score_texts
        questions, answers = inputs.questions.to_pylist(), inputs.answers.to_pylist()
        with _library_errors(self._folder), torch.inference_mode():
            for rows, of_rows in score(questions, answers, inputs.pair_question, inputs.pair_answer):
                scores[rows] = of_rows
                progress(len(rows))
        return scores

    def _score_pairs(
        self, questions: list[str], answers: list[str], pair_question: np.ndarray, pair_answer: np.ndarray
    ) -> Iterator[_Block]:
        """Yield the scores of a model that reads question and answer together."""
        order = np.argsort(_lengths(questions)[pair_question] + _lengths(answers)[pair_answer], kind="stable")
        for rows in _blocks(order, _PAIRS):
            indices = zip(pair_question[rows].tolist(), pair_answer[rows].tolist(), strict=True)
            pairs = [(questions[question], answers[answer]) for question, answer in indices]
            yield rows, self._model.predict(pairs, batch_size=self._batch, show_progress_bar=False)

    def _score_texts(
        self, questions: list[str], answers: list[str], pair_question: np.ndarray, pair_answer: np.ndarray
    ) -> Iterator[_Block]:
        """Yield the scores of a model that encodes each text alone."""
        model = self._model
        queries = self._encoded(model.encode_query, questions)
        for numbers in _blocks(np.argsort(_lengths(answers), kind="stable"), _ANSWERS):
            documents = self._encoded(model.encode_document, [answers[number] for number in numbers])
            positions = np.full(len(answers), -1)
            positions[numbers] = np.arange(len(numbers))
            for rows in _blocks(np.flatnonzero(positions[pair_answer] >= 0), _PAIRS):
                of_queries = _select(queries, pair_question[rows])
                of_documents = _select(documents, positions[pair_answer[rows]])
                yield rows, model.similarity_pairwise(of_queries, of_documents).float().cpu().numpy()

    def _encoded(self, encode: Callable[..., Any], texts: list[str]) -> Any:
        """Return a vector per text, or a list of the vectors of the tokens of each text."""
        options = {"batch_size": self._batch, "show_progress_bar": False}
        if type(self._model).__name__ == "SentenceTransformer":
            return encode(texts, convert_to_tensor=True, **options).float()
        return [vectors.float() for vectors in encode(texts, **options)]


def _lengths(texts: list[str]) -> np.ndarray:
    return np.array([len(text) for text in texts], dtype=np.int64)


def _blocks(order: np.ndarray, size: int) -> Iterator[np.ndarray]:
    for begin in range(0, len(order), size):
        yield order[begin : begin + size]


def _select(texts: Any, rows: np.ndarray) -> Any:
    if isinstance(texts, list):
        return [texts[row] for row in rows.tolist()]
    return texts[torch.from_numpy(rows).to(texts.device)]


def load_library_model(system: LibrarySystem) -> Any:
    """Load a checkpoint on the CPU with the class of the library for its kind."""
    purpose = f"engine {system.engine}"
    require("transformers", purpose=purpose, extra=system.engine)
    library = require("sentence_transformers", purpose=purpose, extra=system.engine)
    folder = local_folder(system.folder)
    layout = read_layout(folder, check=False)
    kind = kind_of(layout, system.kind)
    if kind == "aptool":
        raise InputError(folder, problem="a model of aptool", expected="a checkpoint of another library")
    _check_folder(layout)
    declared = layout.st_config.get("model_type", "SentenceTransformer")
    if layout.modules is not None and _ALIASES.get(declared, declared) != _CLASSES[kind]:
        # The library would convert the checkpoint, with other modules.
        path, expected = layout.folder / ST_CONFIG, f"{_CLASSES[kind]}, as other files say"
        raise InputError(path, position="model_type", value=declared, expected=expected)

    def load(seed: int) -> tuple[Any, bytes]:
        torch.manual_seed(seed)
        model = getattr(library, _CLASSES[kind])(
            str(folder),
            device="cpu",
            trust_remote_code=False,
            local_files_only=True,
            model_kwargs={"dtype": torch.float32, "use_safetensors": True},
        )
        return model.float().requires_grad_(False).eval(), _probe(model)

    with _library_errors(folder):
        # The library initializes missing weights at random.
        probe = load(0)[1]
        model, second_probe = load(1)
    if probe != second_probe:
        expected = "all weights of the network; others would be random"
        raise InputError(folder, problem="missing weights", expected=expected)
    if getattr(model, "num_labels", 1) != 1:
        problem, expected = f"{model.num_labels} labels", "one label, which orders the candidates"
        raise InputError(folder, problem=problem, expected=expected)
    if system.engine == "openvino":
        require("optimum.intel", purpose=purpose, extra=system.engine)
        precision = "fp32" if system.precision == "auto" else system.precision
        with _library_errors(folder, EXPECTED):
            return openvino_model(type(model), folder, _versions(system.engine), precision, system.texts)
    return model.bfloat16() if system.precision == "bf16" else model


def _versions(engine: str) -> dict[str, str]:
    return versions_of(*_PACKAGES, *(OPENVINO_PACKAGES if engine == "openvino" else ()))


def _probe(model: Any) -> bytes:
    """Return the logits of a pair, or the vectors of a text, which depend on all weights in use."""
    if hasattr(model, "predict"):
        outputs = [model.predict([("a", "b")], activation_fn=torch.nn.Identity())]
    else:
        outputs = [model.encode_query("a"), model.encode_document("a")]
    return b"".join(np.asarray(output).tobytes() for output in outputs)


def local_folder(name: str) -> Path:
    """Return the folder of a model; raise for a URL."""
    folder = find_folder(name)
    if not isinstance(folder, Path):
        raise InputError(name, problem="a URL", expected="a folder on this machine, or a name on the hub")
    return folder


def _check_folder(layout: Layout) -> None:
    """Raise if a checkpoint refers to code, to other checkpoints or to pickled weights."""
    for path in sorted(layout.folder.rglob("*")):
        if path.name == "adapter_config.json":
            expected = "a checkpoint with merged weights (merge_and_unload() of peft)"
            raise InputError(path, problem="an adapter", expected=expected)
        if path.name.startswith("pytorch_model") and path.suffix == ".bin":
            require_safetensors(path.parent)
        if path.name == "tokenizer.json":
            read_tokenizer(path)
        elif path.name in (CONFIG, ST_CONFIG) or path.match("sentence_*_config.json"):
            config = without_code(optional_object(path))
            check_network_config(path, config, path.name)
            _check_config(path, config)


def _check_config(path: Path, config: dict[str, Any]) -> None:
    for name, value in config.items():
        if isinstance(value, dict):
            _check_config(path, value)
        elif name in _FUNCTIONS and value is not None and not str(value).startswith("torch.nn."):
            raise InputError(path, position=name, value=value, expected="a module of torch.nn")
        elif name in _NAMES and value is not None:
            raise InputError(path, position=name, value=value, expected="no name of another checkpoint")


@contextlib.contextmanager
def _library_errors(
    folder: Path, expected: str = f"a checkpoint that {ENGINE} can score with"
) -> Iterator[None]:
    """Convert the errors of the library to one line; a full memory stays one."""
    try:
        yield
    except AptoolError:
        raise
    except Exception as error:  # checkpoints can let the library raise anything
        if isinstance(error, RuntimeError | MemoryError) and is_out_of_memory(error):
            raise
        raise InputError(folder, problem=first_line(error), expected=expected) from error
