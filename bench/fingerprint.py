"""Numeric fingerprints: scores of tiny trained models, which show that a result is of older code.

The fingerprint of a preset is eight scores of a tiny version of the system, trained on made-up texts.

It depends little on the machine: fp32, one CPU thread, two short epochs, no dropout, and weights of the
pretrained network from NumPy's generator, whose stream is fixed. Scores are rounded to 3 decimals, and
fingerprints are of the same version if no score differs by more than one unit of the last decimal. A hash
would differ where a score is close to a rounding boundary.

Changes of the last bits of a training remain invisible: processors differ by as much.
"""

import contextlib
import importlib
import logging
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from aptool.config import load_recipe, preset_names
from aptool.data.collection import Collection
from aptool.data.pools import list_units
from aptool.data.writing import LabelledPool, write_collection
from aptool.scoring.model_system import ModelSystem
from aptool.scoring.run import score_in_memory
from aptool.training.fit import fit

DECIMALS = 3
PAIRS = 8

_WORDS = (
    *("river", "mountain", "kitchen", "engine", "window", "garden", "letter", "doctor", "winter", "market"),
    *("bridge", "violin", "island", "candle", "pocket", "mirror", "forest", "teacher", "hammer", "silver"),
)
_SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]")
_OTHER = ("where", "is", "the", "with", "near")

_COMMON = ("training.epochs=2", "training.minibatch=4", "training.dropout=0", "training.patience=0")
_FROM_WORDS = ("vectors.source=random", "vectors.dim=16", "training.learning_rate=0.01")
# Small sizes: by type of encoder, and by preset for the options of its pooling and head.
_OF_ENCODER = {
    "cnn": (*_FROM_WORDS, "encoder.features=8"),
    "bilstm": (*_FROM_WORDS, "encoder.hidden=8"),
    "words": _FROM_WORDS,
    "transformer": ("training.learning_rate=0.001",),
}
_OF_PRESET = {
    "yin-2015": ("pooling.features=8", "pooling.window=2"),
    "wang-nyberg-2015": ("pooling.hidden=8",),
    "wang-ittycheriah-2015": ("head.size=8",),
    "severyn-2015": ("head.dropout=0",),
}


def numeric_fingerprint(preset: str) -> str:
    """The fingerprint of a preset: scores in order, with 3 decimals.

    Raises:
        ModuleNotFoundError: the preset needs the extra ``transformers``, which is not installed.
    """
    with tempfile.TemporaryDirectory() as name, _quiet_on_one_thread():
        folder = Path(name)
        recipe = load_recipe(preset)
        kind = recipe.encoder["type"]
        options = [*_COMMON, *_OF_ENCODER[kind], *_OF_PRESET.get(preset, ())]
        if kind == "transformer":
            options.append(f"encoder.name={_write_network(folder / 'network')}")
        collection = _write_collection(folder / "collection")
        model = str(folder / "model")
        fit(collection, load_recipe(preset, options), model, seed=1, device="cpu")
        frame, _ = score_in_memory(
            list_units([collection.pools_file("test")]), ModelSystem(model, "cpu", "fp32")
        )
    scores = frame.sort("question_id", "answer_id")["score"][:PAIRS]
    return " ".join(f"{value:.{DECIMALS}f}" for value in scores)


def numeric_fingerprints() -> dict[str, str]:
    """The fingerprint of every preset of this version."""
    return {preset: numeric_fingerprint(preset) for preset in preset_names()}


def is_same_version(fingerprint: str, other: str) -> bool:
    """Whether no score differs by more than one unit of the last decimal.

    >>> is_same_version("0.512 -0.100", "0.513 -0.100")
    True
    >>> is_same_version("0.512 -0.100", "0.514 -0.100")
    False
    """
    pairs = [[round(float(score) * 10**DECIMALS) for score in text.split()] for text in (fingerprint, other)]
    return len(pairs[0]) == len(pairs[1]) and all(abs(a - b) <= 1 for a, b in zip(*pairs, strict=True))


@contextlib.contextmanager
def _quiet_on_one_thread() -> Iterator[None]:
    """Set one thread of PyTorch, and drop log messages."""
    import torch

    logger, threads = logging.getLogger("aptool"), torch.get_num_threads()
    level = logger.level
    logger.setLevel(logging.WARNING)
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)
        logger.setLevel(level)


def _write_collection(folder: Path) -> Collection:
    """Write 16, 4 and 4 questions, whose two words occur together only in the relevant answer."""
    splits = {}
    for number, (split, questions) in enumerate((("train", 16), ("dev", 4), ("test", 4))):
        pairs = [
            (_WORDS[(number + 3 * index) % 20], _WORDS[(number + 7 * index + 5) % 20])
            for index in range(questions)
        ]
        answers = [f"the {first} near the {second} is {first}" for first, second in pairs]
        splits[split] = [
            LabelledPool(
                f"{split}-{index:02}",
                f"where is the {first} with the {second}",
                [f"{split}-{index:02}-{(index + step) % questions:02}" for step in range(4)],
                [answers[(index + step) % questions] for step in range(4)],
                {f"{split}-{index:02}-{index:02}": 1},
            )
            for index, (first, second) in enumerate(pairs)
        ]
    write_collection(folder, splits, name="tiny", source="bench.fingerprint")
    return Collection(folder)


def _write_network(folder: Path) -> Path:
    """Write a BERT of one layer in the layout of the Hugging Face hub."""
    import numpy as np
    import torch
    from tokenizers import Tokenizer, models, pre_tokenizers, processors

    transformers: Any = importlib.import_module("transformers")  # not annotated
    vocabulary = {word: number for number, word in enumerate((*_SPECIAL, *_OTHER, *_WORDS))}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    ids = [(name, vocabulary[name]) for name in ("[CLS]", "[SEP]")]
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B:1 [SEP]:1", special_tokens=ids
    )
    config = transformers.BertConfig(
        vocab_size=len(vocabulary),
        hidden_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=32,
        max_position_embeddings=512,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
    )
    network = transformers.BertModel(config)
    generator = np.random.default_rng(0)
    with torch.no_grad():
        for name, weights in sorted(network.named_parameters()):
            values = 0.3 * generator.standard_normal(tuple(weights.shape))
            weights.copy_(torch.from_numpy(values + ("LayerNorm.weight" in name)))
    transformers.logging.disable_progress_bar()
    network.save_pretrained(folder)
    names = {"pad_token": "[PAD]", "unk_token": "[UNK]", "cls_token": "[CLS]", "sep_token": "[SEP]"}
    transformers.PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, model_max_length=512, **names
    ).save_pretrained(folder)
    return folder
