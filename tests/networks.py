"""Tiny pretrained networks with random weights."""

import os
from pathlib import Path

import numpy as np
import pytest
import torch
from tiny import THINGS
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors

from aptool.config import load_recipe
from aptool.models.initialization import TrainingTexts, initialize

REASON = "these tests need the extra transformers"
SENTENCE_TRANSFORMERS = "these tests compare with sentence-transformers: pip install it"
os.environ.setdefault("HF_HUB_OFFLINE", "1")  # names are not looked up on the hub

SPECIAL_TOKENS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
# "river" and "bridge" are not in the vocabulary: they are two pieces each.
WORDS = (
    *("where", "is", "the", "near", "with", "riv", "##er", "bri", "##dge", "?"),
    *(thing for thing in THINGS if thing not in ("river", "bridge")),
)
IDS = {word: number for number, word in enumerate((*SPECIAL_TOKENS, *WORDS))}

# Texts of these words for pools; one is empty.
TEXTS = {
    "a1": "the river is near the bridge",
    "a2": "market",
    "a3": "the silver hammer with the violin is the forest near the mountain",
    "a4": "",
    "a5": "the teacher near the window",
}
QUESTIONS = {"q1": "where is the market", "q2": "river bridge?", "q3": "violin", "q4": "is the hammer near"}

SYSTEMS = ("ap-minilm", "maxsim-minilm", "mean-maxsim-minilm", "mean-minilm")
# Options of a small system that trains fast and ranks better than random.
QUICK = (
    *("text.max_question_tokens=12", "text.max_answer_tokens=20"),
    *("training.epochs=3", "training.minibatch=8", "training.learning_rate=0.01", "training.warmup=0.1"),
    *(
        "training.negatives=pool",
        "training.sampled_negatives=5",
        "training.hard_negatives=1",
        "training.pairs=all",
    ),
)


def piece_tokenizer() -> Tokenizer:
    """A WordPiece tokenizer with the special tokens of BERT."""
    tokenizer = Tokenizer(models.WordPiece(IDS, unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.Lowercase()
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]",
        pair="[CLS] $A [SEP] $B:1 [SEP]:1",
        special_tokens=[("[CLS]", IDS["[CLS]"]), ("[SEP]", IDS["[SEP]"])],
    )
    return tokenizer


def write_network(folder: Path, layers: int = 2, size: int = 16, positions: int = 64) -> Path:
    """Write a BERT in the layout of the Hugging Face hub."""
    transformers = pytest.importorskip("transformers", reason=REASON)
    torch.manual_seed(0)
    config = transformers.BertConfig(
        vocab_size=len(IDS),
        hidden_size=size,
        num_hidden_layers=layers,
        num_attention_heads=2,
        intermediate_size=2 * size,
        max_position_embeddings=positions,
        initializer_range=0.2,
    )
    return write_with_tokenizer(folder, transformers.BertModel(config))


def write_with_tokenizer(folder: Path, model) -> Path:
    """Write a network and the tokenizer in the layout of the Hugging Face hub."""
    import transformers

    transformers.logging.disable_progress_bar()
    model.save_pretrained(folder)
    names = {"pad_token": "[PAD]", "unk_token": "[UNK]", "cls_token": "[CLS]", "sep_token": "[SEP]"}
    longest = getattr(model.config, "max_position_embeddings", 64)
    transformers.PreTrainedTokenizerFast(
        tokenizer_object=piece_tokenizer(), model_max_length=longest, **names
    ).save_pretrained(folder)
    return folder


def cross_encoder(network, folder, labels):
    """Write a cross-encoder of sentence-transformers over a network."""
    library = pytest.importorskip("sentence_transformers", reason=SENTENCE_TRANSFORMERS)

    torch.manual_seed(3)
    model = library.CrossEncoder(str(network), num_labels=labels, device="cpu")
    model.save(str(folder))
    return model


def colbert(network, folder):
    """Write a ColBERT model of sentence-transformers over a network."""
    library = pytest.importorskip("sentence_transformers", reason=SENTENCE_TRANSFORMERS)
    from sentence_transformers.base.modules import Dense, Normalize, Transformer
    from sentence_transformers.multi_vector_encoder.modules import MultiVectorMask

    torch.manual_seed(4)
    name = "token_embeddings"
    modules = [
        Transformer(str(network)),
        Dense(16, 8, bias=False, activation_function=torch.nn.Identity(), module_input_name=name),
        MultiVectorMask(skiplist_words=[]),
        Normalize(module_input_name=name),
    ]
    model = library.MultiVectorEncoder(modules=modules, device="cpu")
    model.save(str(folder), create_model_card=False)
    return model


def corpus(texts, seed=0, longest=40):
    """Ids of random texts of at least three tokens."""
    generator = np.random.default_rng(seed)
    return [generator.integers(5, 30, size=generator.integers(3, longest)).tolist() for _ in range(texts)]


def network_recipe(system: str, network: Path, *more: str):
    return load_recipe(system, (*QUICK, f"encoder.name={network}", *more))


def initialized(system, network, *more):
    """A system before training, in evaluation mode, and its tokenizer."""
    recipe = network_recipe(system, network, *more)
    torch.manual_seed(1)
    system = initialize(recipe, TrainingTexts([], lambda: iter(()), 0))
    return system.ranker.eval(), system.tokenizer
