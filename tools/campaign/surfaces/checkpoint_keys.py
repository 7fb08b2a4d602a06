"""A checkpoint with one key changed: its scores are those of sentence-transformers, or it is refused."""

import importlib.util
import json
import shutil
from pathlib import Path
from typing import Any

import libraries
import numpy as np
from case import Case, surface

from aptool.errors import AptoolError

_LAYERS = [["hidden_states", layer] for layer in (-1, -2, 0, 5)]
_ACTIVATIONS = [
    f"torch.nn.modules.{name}" for name in ("linear.Identity", "activation.Tanh", "activation.Sigmoid")
]
_TEXTS = (
    *({"max_length": length} for length in (3, 6, 9, 20, 64)),
    *({"truncation": how, "max_length": 9} for how in (True, False, "only_first", "only_second")),
    *({"padding": how} for how in (True, "max_length")),
    {"add_special_tokens": False},
    {"padding_side": "left"},
    {"stride": 1},
    {"return_token_type_ids": False},
)
_TOKENIZERS = (
    *({"model_max_length": length} for length in (3, 7, 12, 40)),
    *({"truncation_side": side, "model_max_length": 9} for side in ("left", "right")),
    {"padding_side": "left"},
    {"do_lower_case": False},
    {"use_fast": True},
    {"unk_token": "the"},
)
_CONFIGS = (
    {"num_hidden_layers": 1},
    {"hidden_act": "relu"},
    {"layer_norm_eps": 0.1},
    {"is_decoder": True},
    {"output_hidden_states": True},
    {"chunk_size_feed_forward": 1},
    {"revision": "main"},
    {"something": 1},
)
_STRIP = {"type": "Strip", "strip_left": True, "strip_right": True}
_OUTPUTS = ("last_hidden_state", ["last_hidden_state"], "pooler_output", "logits", *_LAYERS)
_METHODS = [{"method": "forward", "method_output_name": output} for output in _OUTPUTS]

# Values by file and key.
CHANGES: dict[str, dict[str, tuple[Any, ...]]] = {
    "sentence_bert_config.json": {
        "max_seq_length": (None, 3, 7, 12, 40, 64, -1, "8"),
        "do_lower_case": (True, False),
        "query_length": (None, 3, 6, 12, 20),
        "document_length": (None, 3, 6, 12, 20),
        "processing_kwargs": tuple({name: table} for name in ("text", "common", "audio") for table in _TEXTS),
        "tokenizer_args": _TOKENIZERS,
        "processor_kwargs": _TOKENIZERS,
        "config_args": _CONFIGS,
        "config_kwargs": _CONFIGS,
        "model_args": ({"dtype": "float32"}, {"attn_implementation": "eager"}, {"something": 1}),
        "model_kwargs": ({"add_pooling_layer": False}, {"dtype": "auto"}),
        "modality_config": (
            *({"text": method} for method in _METHODS),
            {"text": _METHODS[0], "message": {**_METHODS[0], "format": "flat"}},
            {"image": _METHODS[0]},
        ),
        "module_output_name": ("token_embeddings", "sentence_embedding", "scores"),
        "transformer_task": ("feature-extraction", "sequence-classification", "fill-mask"),
        "query_expansion": (
            None,
            *({"strategy": how, "length": size} for how in ("fixed", "min") for size in (4, 12, 20)),
            {"strategy": "fixed", "length": 12, "attend": True},
            {"strategy": "min", "length": 9, "token": "the"},
        ),
        "unpad_inputs": (True, False),
        "tokenizer_name_or_path": (None, "."),
        "something": (1,),
    },
    "config_sentence_transformers.json": {
        "similarity_fn_name": (None, "cosine", "dot", "euclidean", "manhattan", "maxsim", "meanmaxsim"),
        "truncate_dim": (None, 1, 3, 5, 100, 0, -2),
        "prompts": (
            {},
            None,
            {"query": None, "document": "the river "},
            {"query": "the ", "passage": "near "},
            {"document": "", "passage": "near "},
            {"other": "the ", "query": "where "},
        ),
        "default_prompt_name": (None, "query", "document", "other"),
        "activation_fn": (None, *_ACTIVATIONS, "evil.Evil"),
        "keep_in_fp32_modules": ([],),
        "model_type": ("SentenceTransformer", "CrossEncoder", "ColBERT", "MultiVectorEncoder", None),
        "query_prefix": ("the", None),
        "something": (1,),
    },
    "tokenizer_config.json": {
        "model_max_length": (4, 9, 20, 64, 10**30),
        "truncation_side": ("left", "right"),
        "padding_side": ("left",),
        "split_special_tokens": (True, False),
        "model_input_names": (["input_ids", "attention_mask"], ["input_ids"]),
        "do_lower_case": (True, False),
        "tokenizer_class": ("BertTokenizer", "PreTrainedTokenizerFast", "RobertaTokenizerFast"),
        "mask_token": ("[UNK]", None, "the"),
        "additional_special_tokens": (["market"],),
        "extra_special_tokens": (["market"],),
        "max_length": (5,),
        "truncation_strategy": ("only_first",),
        "stride": (2,),
        "add_bos_token": (True,),
        "chat_template": ("{{ messages[0].content }}",),
        "clean_up_tokenization_spaces": (True,),
        "something": (1,),
    },
    "config.json": {
        "num_hidden_layers": (1, 2),
        "hidden_act": ("relu", "gelu_new"),
        "layer_norm_eps": (1e-3,),
        "position_embedding_type": ("absolute", "relative_key"),
        "is_decoder": (True, False),
        "architectures": (["BertModel"], ["BertForMaskedLM"], ["BertForSequenceClassification"], None),
        "pad_token_id": (0, None, 5),
        "max_position_embeddings": (64,),
        "num_attention_heads": (1, 4),
        "dtype": ("float32", "bfloat16"),
        "torch_dtype": ("float32",),
        "output_hidden_states": (True,),
        "chunk_size_feed_forward": (1,),
        "problem_type": ("regression",),
        "sentence_transformers": tuple({"activation_fn": name} for name in _ACTIVATIONS),
        "sbert_ce_default_activation_function": tuple(_ACTIVATIONS),
        "is_causal": (False, True),
        "tie_word_embeddings": (False,),
        "gradient_checkpointing": (True,),
        "something": (1,),
    },
    "tokenizer.json": {
        "truncation": tuple(
            {"direction": side, "max_length": 4, "strategy": "LongestFirst", "stride": 0}
            for side in ("Left", "Right")
        ),
        "padding": (
            {"strategy": {"Fixed": 12}, "direction": "Right", "pad_to_multiple_of": None, "pad_id": 0,
             "pad_type_id": 0, "pad_token": "[PAD]"},
        ),
        "normalizer": (None, {"type": "Lowercase"}, _STRIP),
    },
    "1_Pooling/config.json": {
        "pooling_mode": ("mean", "cls", "max", "lasttoken", "weightedmean", ["cls", "max"], "evil"),
        "pooling_mode_max_tokens": (True, False),
        "include_prompt": (True, False),
        "embedding_dimension": (16, 8),
        "something": (1,),
    },
    **{
        f"{number}_Dense/config.json": {
            "activation_function": (*_ACTIVATIONS, "evil.Evil"),
            "bias": (True, False),
            "use_residual": (True, False),
            "module_input_name": (None, "sentence_embedding", "token_embeddings"),
            "module_output_name": (None, "sentence_embedding", "token_embeddings", "other"),
            "out_features": (8, 4),
            "something": (1,),
        }
        for number in (1, 2)
    },
    **{
        f"{number}_Normalize/config.json": {
            "module_input_name": ("sentence_embedding", "token_embeddings"),
            "module_output_name": (None, "other"),
            "something": (1,),
        }
        for number in (3,)
    },
    "2_MultiVectorMask/config.json": {
        "skiplist_words": ([], ["the"], ["?", "near", "nowhere"]),
        "skiplist_tasks": (["document"], ["query", "document"], "query"),
        "keep_only_token_ids": (None, [5, 6, 7]),
    },
}  # fmt: skip


@surface(2 if importlib.util.find_spec("sentence_transformers") else 0)
def checkpoint_keys(case: Case) -> None:
    kind = case.random.choice(libraries.KINDS)
    shutil.copytree(case.world.libraries / kind, "m")
    changed = []
    for _ in range(case.random.choice((1, 1, 1, 2))):
        names = [name for name in CHANGES if Path("m", name).is_file()]
        name = case.random.choice(sorted(names))
        key = case.random.choice(sorted(CHANGES[name]))
        value = case.random.choice(CHANGES[name][key])
        path = Path("m", name)
        path.write_text(json.dumps({**json.loads(path.read_text()), key: value}))
        changed.append(f"{name}: {key}: {value}")
    if case.random.random() < 0.05:
        path = Path("m/modules.json")
        modules = json.loads(path.read_text())
        del modules[case.random.randrange(len(modules))]
        path.write_text(json.dumps(modules))
        changed.append("modules.json: one module less")
    try:
        actual = libraries.aptool_scores("m")
    except AptoolError as error:
        case.ended = "1"
        assert "\n" not in str(error), "a message of several lines"
        return
    case.ended = "0"
    try:
        expected = libraries.library_scores("m", kind)
    except Exception:  # the library can raise anything
        case.ended = "-"
        return
    limit = 1e-4 * np.maximum(1, np.abs(expected))
    if "dtype: bfloat16" in " ".join(changed):
        limit = limit * 1000  # the library computes in 16 bits
    worst = np.abs(actual - expected).max()
    assert (np.abs(actual - expected) <= limit).all(), f"{kind}: differs by {worst:.1e}: {changed}"
