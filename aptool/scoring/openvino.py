"""From a checkpoint to a model of sentence-transformers that computes in OpenVINO.

The library exports and quantizes the network. Exported models are kept in the cache of the user.
"""

import contextlib
import hashlib
import json
import logging
import os
import tempfile
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch

from aptool.errors import InputError
from aptool.formats.pools import Answers, Unit
from aptool.models.checkpoints import checkpoint_fingerprint
from aptool.scoring.model_system import sample_units, sampled_pools
from aptool.version import require

logger = logging.getLogger(__name__)

# A text of a sentence encoder, or the question and the answer that a cross-encoder reads.
Input: TypeAlias = str | tuple[str, str]

# Packages whose versions decide scores.
PACKAGES = ("openvino", "optimum-intel", "nncf")

EXPECTED = "a network that OpenVINO can convert; the engine sentence-transformers runs others in PyTorch"

# Number of inputs that calibrate a quantized model: the default of NNCF.
_TEXTS = 300

# File of a quantized model, as sentence-transformers names it.
_QUANTIZED = "openvino_model_qint8_quantized.xml"


def calibration_texts(
    units: Sequence[Unit], answers: Answers | None, *, pairs: bool = False
) -> tuple[Input, ...]:
    """Draw texts of a sample of pools that calibrate a quantized model, or pairs of texts; deterministic."""
    inputs: set[Input] = set()
    for pools in sampled_pools(sample_units(units), answers):
        if pairs:
            columns = pools.questions.take(pools.pair_question), pools.answers.take(pools.pair_answer)
            inputs.update(zip(*(column.to_pylist() for column in columns), strict=True))
        else:
            inputs.update(pools.questions.to_pylist(), pools.answers.to_pylist())
    ordered = sorted(inputs)
    drawn = np.random.default_rng(0).permutation(len(ordered))[:_TEXTS]
    return tuple(ordered[number] for number in drawn)


def openvino_model(
    model_class: Any, folder: Path, versions: dict[str, str], precision: str, texts: Sequence[Input]
) -> Any:
    """Load a checkpoint with a class of sentence-transformers in OpenVINO.

    Args:
        model_class: class of the library that reads the checkpoint.
        folder: the checkpoint.
        versions: versions of the packages, which decide whether an exported model is used again.
        precision: ``fp32``, ``bf16`` or ``int8``.
        texts: texts or pairs of texts that calibrate ``int8``.
    """
    is_int8 = precision == "int8"
    if is_int8 and not texts:
        raise InputError(folder, problem="no texts to calibrate int8", expected="pools with texts")
    fingerprint = checkpoint_fingerprint(folder, model_class.__name__, suffixes=("",))
    key = json.dumps([fingerprint, versions, list(texts) if is_int8 else None], sort_keys=True)
    cached = _cache() / hashlib.sha256(key.encode()).hexdigest()[:16]
    if not cached.is_dir():
        logger.info(f"{folder}: converting the network for OpenVINO, once; it is kept in {cached}")
        cached.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=cached.parent) as temporary, _silence():
            exported = Path(temporary) / "model"
            model = _load(model_class, folder, "fp32", export=True)
            if isinstance(model.transformers_model, torch.nn.Module | None):
                # The library would compute such a module in PyTorch.
                raise InputError(folder, problem=f"a module {type(model[0]).__name__}", expected=EXPECTED)
            model.save_pretrained(str(exported))
            if is_int8:
                _quantize(model, exported, Path(temporary) / "texts", texts)
            with contextlib.suppress(OSError):  # another process was faster
                exported.rename(cached)
    with _silence():
        return _load(
            model_class, cached, precision, file_name=_QUANTIZED if is_int8 else "openvino_model.xml"
        )


def _load(model_class: Any, folder: Path, precision: str, **options: Any) -> Any:
    # Without the hint, OpenVINO computes in bf16 on processors with native bf16.
    hint = "bf16" if precision == "bf16" else "f32"
    config = {"INFERENCE_PRECISION_HINT": hint, "INFERENCE_NUM_THREADS": torch.get_num_threads()}
    return model_class(
        str(folder),
        backend="openvino",
        device="cpu",
        trust_remote_code=False,
        local_files_only=True,
        model_kwargs={"ov_config": config, **options},
    )


def _quantize(model: Any, exported: Path, folder: Path, texts: Sequence[Input]) -> None:
    """Add a quantized network to an exported model."""
    purpose = "precision int8"
    require("datasets", purpose=purpose, extra="openvino")
    library = require("sentence_transformers", purpose=purpose, extra="openvino")
    folder.mkdir()
    pq.write_table(pa.table({"text": list(texts)}), folder / "train.parquet")
    library.export_static_quantized_openvino_model(
        model,
        None,
        str(exported),
        dataset_name=str(folder),
        dataset_config_name="default",
        dataset_split="train",
        column_name="text",
    )


def _cache() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "aptool" / "openvino"


@contextlib.contextmanager
def _silence() -> Iterator[None]:
    """Hide progress bars, messages and warnings of the libraries."""
    before = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        with Path(os.devnull).open("w") as null, warnings.catch_warnings():
            warnings.simplefilter("ignore")
            with contextlib.redirect_stdout(null), contextlib.redirect_stderr(null):
                yield
    finally:
        logging.disable(before)
