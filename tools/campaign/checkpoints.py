"""Tiny models in the layouts of other libraries, with random weights."""

import json
from pathlib import Path
from typing import Any

from networks import IDS, piece_tokenizer, write_network, write_with_tokenizer

SIZE = 16
KINDS = ("network", "sentence", "cross", "colbert", "static")


def write_all(folder: Path) -> None:
    """Write a model of each kind into a separate folder."""
    import torch
    import transformers
    from safetensors.torch import save_file

    torch.manual_seed(4)
    dense = {"linear.weight": torch.randn(8, SIZE)}
    transformer = {"idx": 0, "name": "0", "path": "", "type": "sentence_transformers.models.Transformer"}
    write_network(folder / "network", layers=1, size=SIZE)

    sentence = write_network(folder / "sentence", layers=1, size=SIZE)
    pooling = {"idx": 1, "name": "1", "path": "1_Pooling", "type": "sentence_transformers.models.Pooling"}
    last = {"idx": 2, "name": "2", "path": "2_Dense", "type": "sentence_transformers.models.Dense"}
    _write(sentence / "modules.json", [transformer, pooling, last])
    _write(sentence / "sentence_bert_config.json", {"max_seq_length": 32, "do_lower_case": False})
    about = {"prompts": {"query": "where is ", "document": ""}, "similarity_fn_name": "cosine"}
    _write(sentence / "config_sentence_transformers.json", about)
    _write(
        sentence / "1_Pooling" / "config.json",
        {"word_embedding_dimension": SIZE, "pooling_mode_mean_tokens": True, "include_prompt": True},
    )
    identity = {"bias": False, "activation_function": "torch.nn.modules.linear.Identity"}
    _write(sentence / "2_Dense" / "config.json", {"in_features": SIZE, "out_features": 8, **identity})
    save_file(dense, sentence / "2_Dense" / "model.safetensors")

    config = transformers.BertConfig(
        vocab_size=len(IDS),
        hidden_size=SIZE,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=2 * SIZE,
        max_position_embeddings=64,
        num_labels=1,
    )
    write_with_tokenizer(folder / "cross", transformers.BertForSequenceClassification(config))

    colbert = write_network(folder / "colbert", layers=1, size=SIZE)
    pylate = {"idx": 1, "name": "1", "path": "1_Dense", "type": "pylate.models.Dense.Dense"}
    _write(colbert / "modules.json", [transformer, pylate])
    about = {"query_prefix": "where", "document_prefix": "the", "query_length": 12, "document_length": 32}
    more = {"do_query_expansion": True, "attend_to_expansion_tokens": False, "skiplist_words": ["?"]}
    _write(colbert / "config_sentence_transformers.json", {**about, **more, "similarity_fn_name": "MaxSim"})
    _write(colbert / "1_Dense" / "config.json", {"in_features": SIZE, "out_features": 8, **identity})
    save_file(dense, colbert / "1_Dense" / "model.safetensors")

    static = folder / "static"
    static.mkdir()
    _write(static / "config.json", {"model_type": "model2vec", "max_length": 64, "normalize": True})
    save_file({"embeddings": torch.randn(len(IDS), SIZE)}, static / "model.safetensors")
    (static / "tokenizer.json").write_text(piece_tokenizer().to_str(), encoding="utf-8")


def _write(path: Path, document: Any) -> None:
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(document), encoding="utf-8")
