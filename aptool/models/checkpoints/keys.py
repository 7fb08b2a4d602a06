"""The keys of all JSON files of a checkpoint, with the values that aptool implements.

A key with another value, or a key that is not listed, is refused: it could change the scores. The keys are
those of sentence-transformers 6.2, transformers 5.23, PyLate 1.6 and model2vec 0.10, and of the files that
earlier versions wrote.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from aptool.environment import Engine
from aptool.errors import InputError
from aptool.models.pretrained import network_library

# The engine that scores with the library of a checkpoint: its name, and that of its extra.
ENGINE: Engine = "sentence-transformers"


class UnsupportedError(InputError):
    """A setting of a checkpoint that aptool does not implement, but its library may."""

    def __init__(self, path: object, *, expected: str, **problem: Any) -> None:
        super().__init__(
            path, expected=f"{expected}; or `aptool score --engine {ENGINE}` uses the library", **problem
        )


class Key(NamedTuple):
    """The values of a key that are implemented."""

    values: tuple[Any, ...] | None = None  # None: every value, or those that the reader accepts
    effect: bool = True  # whether the key can change scores


READ = Key()
HARMLESS = Key(effect=False)


def only(*values: Any) -> Key:
    """Accept only these values."""
    return Key(values)


Table = dict[str, Key]

# config_sentence_transformers.json
_SETTINGS: Table = {
    "__version__": HARMLESS,
    "model_type": READ,
    "requirements": HARMLESS,
    "prompts": READ,
    "default_prompt_name": READ,
}
_SENTENCE_SETTINGS: Table = {**_SETTINGS, "similarity_fn_name": READ, "truncate_dim": READ}
_MATCHING: Table = {
    **_SETTINGS,
    "similarity_fn_name": only(None, "cosine", "dot", "maxsim", "MaxSim", "meanmaxsim"),
}

# sentence_bert_config.json
_TRANSFORMER: Table = {
    "transformer_task": only("feature-extraction"),
    "modality_config": READ,
    "module_output_name": only("token_embeddings"),
    "processing_kwargs": READ,
    "unpad_inputs": HARMLESS,
    "query_length": READ,
    "document_length": READ,
    "query_expansion": only(None),
    "max_seq_length": READ,
    "do_lower_case": only(False, True, None),
    "tokenizer_name_or_path": only(None),
    **dict.fromkeys(("model_args", "model_kwargs"), READ),
    **dict.fromkeys(("tokenizer_args", "processor_kwargs"), READ),
    **dict.fromkeys(("config_args", "config_kwargs"), READ),
}

_FEATURES: Table = {"module_input_name": READ, "module_output_name": READ}
_INCREASING = ("linear.Identity", "activation.Sigmoid")
_MODES = (
    "cls_token",
    "max_tokens",
    "mean_tokens",
    "mean_sqrt_len_tokens",
    "weightedmean_tokens",
    "lasttoken",
)

# The files of a checkpoint, by file and type of checkpoint or module.
TABLES: dict[str, Table] = {
    "config_sentence_transformers.json of sentence-transformers": _SENTENCE_SETTINGS,
    "config_sentence_transformers.json of static": _SENTENCE_SETTINGS,
    "config_sentence_transformers.json of cross-encoder": {
        **_SETTINGS,
        "prompts": HARMLESS,
        "default_prompt_name": only(None),
        "activation_fn": READ,
        "keep_in_fp32_modules": HARMLESS,
    },
    "config_sentence_transformers.json of causal-lm": {
        **_SETTINGS,
        # Both keep the order of the logits, which are the scores.
        "activation_fn": only(None, *(f"torch.nn.modules.{name}" for name in _INCREASING)),
        "keep_in_fp32_modules": HARMLESS,
    },
    "config_sentence_transformers.json of colbert": _MATCHING,
    "config_sentence_transformers.json of pylate": {
        **_MATCHING,
        "query_prefix": READ,
        "document_prefix": READ,
        "query_length": READ,
        "document_length": READ,
        "do_query_expansion": only(True, False, None),
        "attend_to_expansion_tokens": only(True, False, None),
        "skiplist_words": READ,
    },
    "sentence_bert_config.json of sentence-transformers": _TRANSFORMER,
    "sentence_bert_config.json of colbert": {**_TRANSFORMER, "query_expansion": READ},
    "sentence_bert_config.json of pylate": {
        **_TRANSFORMER,
        "do_lower_case": only(False, None),
        "processing_kwargs": only(None, {}),
        **dict.fromkeys(("query_length", "document_length"), only(None)),
    },
    "sentence_bert_config.json of cross-encoder": {
        **_TRANSFORMER,
        "transformer_task": only("sequence-classification"),
        "module_output_name": only("scores"),
        **dict.fromkeys(("query_length", "document_length"), HARMLESS),
    },
    "sentence_bert_config.json of causal-lm": {
        **_TRANSFORMER,
        "transformer_task": only("text-generation", "sequence-classification"),
        "module_output_name": only("causal_logits", "scores"),
        "do_lower_case": only(False, None),
        **dict.fromkeys(("query_length", "document_length"), HARMLESS),
    },
    "modules.json": {"idx": HARMLESS, "name": HARMLESS, "path": READ, "type": READ, "kwargs": only(None, [])},
    "config.json of Pooling": {
        "embedding_dimension": READ,
        "word_embedding_dimension": READ,
        "pooling_mode": READ,
        "include_prompt": only(True, False),
        **{f"pooling_mode_{mode}": only(True, False) for mode in _MODES},
    },
    "config.json of Dense": {
        **dict.fromkeys(("in_features", "out_features", "bias", "activation_function", "use_residual"), READ),
        **_FEATURES,
    },
    "config.json of Normalize": _FEATURES,
    "config.json of LayerNorm": {"dimension": READ},
    "config.json of Dropout": {"dropout": HARMLESS},
    "config.json of LogitScore": {
        "true_token_id": READ,
        "false_token_id": READ,
        "module_input_name": only("causal_logits"),
    },
    "config.json of MultiVectorMask": {
        "skiplist_words": READ,
        "skiplist_tasks": only(None, ["document"], "document"),
        "keep_only_token_ids": only(None, []),
    },
    "config.json of model2vec": {
        "max_length": READ,
        **dict.fromkeys(
            (
                *("model_type", "architectures", "tokenizer_name", "normalize", "seq_length", "hidden_dim"),
                *("apply_pca", "apply_zipf", "sif_coefficient", "pooling", "embedding_dtype", "head_config"),
                *("vocabulary_quantization", "language", "base_model_name"),
            ),
            HARMLESS,
        ),
    },
    "artifact.metadata of ColBERT": {
        **dict.fromkeys(("query_token_id", "doc_token_id", "query_maxlen", "doc_maxlen"), READ),
        **dict.fromkeys(("attend_to_mask_tokens", "mask_punctuation"), READ),
        "similarity": only("cosine"),
        "interaction": only("colbert"),
        "relu": only(False),
        # Of training and of the index.
        **dict.fromkeys(
            (
                *("query_token", "doc_token", "dim", "model_name", "checkpoint", "triples", "collection"),
                *("queries", "index_name", "index_path", "index_root", "index_bsize", "overwrite", "root"),
                *("experiment", "name", "rank", "nranks", "amp", "gpus", "avoid_fork_if_possible", "meta"),
                *("ncells", "centroid_score_threshold", "ndocs", "load_index_with_mmap", "nbits", "resume"),
                *("kmeans_niters", "num_partitions_max", "bsize", "accumsteps", "lr", "maxsteps"),
                *("save_every", "warmup", "warmup_bert", "nway", "use_ib_negatives", "reranker"),
                *("distillation_alpha", "ignore_scores"),
            ),
            HARMLESS,
        ),
    },
    # Arguments in sentence_bert_config.json.
    "query_expansion": {
        "strategy": only("fixed", "min"),
        **dict.fromkeys(("attend", "token", "length"), READ),
    },
    "processing_kwargs, text and common": {
        "max_length": READ,
        "truncation": only(True, "longest_first", "only_first", "only_second"),
        "add_special_tokens": only(True, False),
        "return_tensors": only("pt"),
        **dict.fromkeys(("padding", "padding_side", "pad_to_multiple_of", "verbose"), HARMLESS),
        "logits_to_keep": HARMLESS,
    },
    "tokenizer_args, processor_kwargs": {
        "model_max_length": READ,
        "truncation_side": only("left", "right"),
        **dict.fromkeys(("padding_side", "use_fast", "clean_up_tokenization_spaces"), HARMLESS),
        "trust_remote_code": HARMLESS,
    },
    "model_args, model_kwargs": {
        **dict.fromkeys(("dtype", "torch_dtype"), HARMLESS),  # aptool computes in fp32
        **dict.fromkeys(("add_pooling_layer", "low_cpu_mem_usage", "use_safetensors"), HARMLESS),
        **dict.fromkeys(("device_map", "trust_remote_code"), HARMLESS),
        "attn_implementation": only(None, "eager", "sdpa"),
    },
    # Of a network's config.json: keys that the class of the configuration does not have.
    "config.json of a network": {
        # sans_pos: only of ModernBERT, whose positions are rotary.
        "position_embedding_type": only("absolute", "sans_pos", None),
        "pruned_heads": only({}, None),
        "sentence_transformers": READ,
        "sbert_ce_default_activation_function": READ,
        # Read by the network.
        **dict.fromkeys(("global_attn_every_n_layers", "sliding_window_pattern"), READ),
        **dict.fromkeys(("is_causal", "causal_mask"), only(False)),
        **dict.fromkeys(("attention_bias", "mlp_bias"), only(False, None)),
        "sliding_window": only(None),
        "talking_head": only(False),
        **dict.fromkeys(("share_att_key", "norm_rel_ebd", "position_buckets"), READ),
        **dict.fromkeys(
            ("conv_kernel_size", "conv_act", "conv_groups", "attention_head_size", "embedding_size"), READ
        ),
        # Of training, of other heads and of earlier versions.
        **dict.fromkeys(
            (
                *("auto_map", "torch_dtype", "tokenizer_class", "name", "language", "finetuning_task"),
                *("gradient_checkpointing", "output_past", "tie_weights_", "tie_word_embeddings"),
                *("directionality", "pooler_fc_size", "pooler_num_attention_heads", "pooler_num_fc_layers"),
                *("pooler_size_per_head", "pooler_type", "summary_activation", "summary_last_dropout"),
                *("summary_type", "summary_use_proj", "summary_first_dropout", "summary_proj_to_labels"),
                *("task_specific_params", "torchscript", "use_bfloat16", "xla_device", "prefix"),
                *("sep_token_id", "cls_token_id", "mask_token_id", "padding_idx", "n_positions"),
                *("reference_compile", "repad_logits_with_grad", "adapters", "num_labels", "_num_labels"),
                *("classifier_dropout", "cls_dropout", "classifiers_size", "problem_type", "layer_norm_eps"),
                *("use_flash_attn", "unpad_inputs", "use_memory_efficient_attention", "is_decoder"),
                *("add_cross_attention", "cross_attention_hidden_size", "tie_encoder_decoder"),
                *("use_mrope", "initializer_factor", "_sliding_window_pattern", "use_sliding_window"),
                *("down_scale_factor", "gap_size", "net_structure_type", "num_memory_blocks"),  # ALBERT
                *("cell", "emb_size", "pre_trained", "structure", "training"),  # TinyBERT
                *("tf_legacy_loss", "eos_token_ids"),
            ),
            HARMLESS,
        ),
    },
}


def check_keys(path: str | Path, name: str, document: Mapping[str, Any], position: str = "") -> None:
    """Raise unless a table of ``TABLES`` has the keys and values of a document."""
    for key, value in document.items():
        check_key(path, name, str(key), value, position)


def check_key(path: str | Path, name: str, key: str, value: Any, position: str = "") -> None:
    """Raise unless a table of ``TABLES`` has a key with this value."""
    table = TABLES[name]
    if key not in table:
        expected = f"one of {', '.join(table)}" if len(table) < 12 else "a key that aptool knows"
        raise UnsupportedError(path, position=position + key, value=value, expected=expected)
    values = table[key].values
    if values is not None and not any(
        value == allowed and type(value) is type(allowed) for allowed in values
    ):
        expected = " or ".join(map(_shown, values))
        raise UnsupportedError(path, position=position + key, value=value, expected=expected)


def check_network_keys(path: Path, document: Mapping[str, Any], config: Any) -> None:
    """Raise for a key of a network that its class and that of text generation lack, unless it is listed."""
    defaults, generation = type(config)(), network_library().GenerationConfig()
    for key, value in document.items():
        if key in vars(config) and not hasattr(defaults, key) and not hasattr(generation, key):
            check_key(path, "config.json of a network", key, value)


def key_table() -> str:
    """Return all keys as a Markdown table, for the documentation."""
    lines = ["| file | implemented | harmless |", "|---|---|---|"]
    for name, table in TABLES.items():
        implemented: list[str] = []
        harmless: list[str] = []
        for key, (values, effect) in table.items():
            shown = "" if values is None else f" ({', '.join(map(_shown, values))})"
            (implemented if effect else harmless).append(f"`{key}`{shown}")
        lines.append(f"| {name} | {', '.join(implemented)} | {', '.join(harmless)} |")
    return "\n".join(lines)


def _shown(value: Any) -> str:
    return json.dumps(value).strip('"')
