"""Tiny checkpoints that sentence-transformers wrote, and the scores of that library."""

import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from networks import colbert, cross_encoder, piece_tokenizer, write_network

# A warning of the compared library is no fault of aptool.
logging.getLogger("sentence_transformers").setLevel(logging.ERROR)

KINDS = ("encoder", "plain", "reranker", "labels", "matching", "static")
QUESTIONS = ("where is the river near the market", "Violin BRIDGE?", " [MASK] the hammer ")
ANSWERS = (
    "the bridge is near the market with the violin and the silver hammer of the teacher in the forest",
    "Market",
    " the river [SEP] is with the mountain ? ",
    "near near near the window",
)


def write_all(folder: Path) -> None:
    """Write a checkpoint of each kind into a separate folder."""
    import json

    import torch
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.base.modules import Dense, Normalize, Transformer
    from sentence_transformers.sentence_transformer.modules import Pooling, StaticEmbedding

    def write(name: str, *modules: Any, **more: Any) -> None:
        model = SentenceTransformer(modules=list(modules), device="cpu", **more)
        model.save(str(folder / name), create_model_card=False)

    torch.manual_seed(8)
    network = write_network(folder / "bert")
    path = network / "tokenizer_config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "mask_token": "[MASK]"}))
    prompts = {"query": "where is ", "document": "near "}
    last = Dense(16, 8), Normalize()
    write("encoder", Transformer(str(network)), Pooling(16, "mean"), *last, prompts=prompts)
    write("plain", Transformer(str(network)), Pooling(16, "cls"))
    cross_encoder(network, folder / "reranker", 1)
    cross_encoder(network, folder / "labels", 2)
    expansion = {"strategy": "fixed", "length": 12}
    colbert(network, folder / "matching", transformer={"query_expansion": expansion}, prompts=prompts)
    tokenizer = piece_tokenizer()
    tokenizer.post_processor = None
    write("static", StaticEmbedding(tokenizer, embedding_dim=8), Dense(8, 8), prompts=prompts)


def library_scores(folder: str, kind: str) -> np.ndarray:
    """(questions · answers,) scores of the library, of texts that are not padded."""
    import sentence_transformers as library

    pairs = [(question, answer) for question in QUESTIONS for answer in ANSWERS]
    if kind in ("reranker", "labels"):
        model = library.CrossEncoder(folder, device="cpu")
        scores = np.asarray(model.predict(pairs, batch_size=1, show_progress_bar=False))
        return scores if scores.ndim == 1 else scores[:, 1] - scores[:, 0]
    loader = library.MultiVectorEncoder if kind == "matching" else library.SentenceTransformer
    model = loader(folder, device="cpu")
    questions, answers = _encoded(model.encode_query, QUESTIONS), _encoded(model.encode_document, ANSWERS)
    return np.asarray(model.similarity(questions, answers)).reshape(-1)


def _encoded(encode: Any, texts: Sequence[str]) -> Any:
    return encode(list(texts), batch_size=1, show_progress_bar=False)


def aptool_scores(folder: str) -> np.ndarray:
    """(questions · answers,) scores of aptool."""
    import aptool

    pairs = [(question, answer) for question in QUESTIONS for answer in ANSWERS]
    return np.asarray(aptool.load(folder).score(pairs))
