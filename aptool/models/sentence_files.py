"""Files that make the folder of a model with mean pooling one of sentence-transformers, too."""

import json
from pathlib import Path
from typing import Any

from aptool.config import Recipe
from aptool.models.hub import CONFIG, MODULES, ST_CONFIG
from aptool.text.tokenizer import TextTokenizer

OPTIONS, TOKENIZER_CONFIG = "sentence_bert_config.json", "tokenizer_config.json"
POOLING = "1_Pooling"

# Names of the files, relative to the folder.
FILES = (MODULES, ST_CONFIG, OPTIONS, TOKENIZER_CONFIG, f"{POOLING}/{CONFIG}")

# Names of these modules in all versions of the library.
_LIBRARY = "sentence_transformers.models."


def write_sentence_files(
    folder: Path, recipe: Recipe, tokenizer: TextTokenizer, network: dict[str, Any], size: int
) -> None:
    """Write the files, if sentence-transformers can compute the scores of a model.

    Args:
        folder: the folder of the model.
        recipe: the recipe of the model.
        tokenizer: the tokenizer of the model.
        network: configuration of the network.
        size: features per state.
    """
    similarity = recipe.similarity["type"]
    is_mean = recipe.pooling["type"] == "mean" and not recipe.pooling.get("dim")
    if not is_mean or similarity not in ("cosine", "dot") or recipe.head["type"] != "none":
        return
    longest = max(recipe.text.max_question_tokens, recipe.text.max_answer_tokens)
    kinds = {"": "Transformer", POOLING: "Pooling"}
    if similarity == "cosine":
        kinds["2_Normalize"] = "Normalize"
    (folder / POOLING).mkdir()
    modules = [
        {"idx": number, "name": str(number), "path": path, "type": f"{_LIBRARY}{kind}"}
        for number, (path, kind) in enumerate(kinds.items())
    ]
    padding = tokenizer._tokenizer.id_to_token(network.get("pad_token_id") or 0)
    _write(folder / MODULES, modules)
    _write(folder / POOLING / CONFIG, {"word_embedding_dimension": size, "pooling_mode_mean_tokens": True})
    _write(folder / ST_CONFIG, {"similarity_fn_name": similarity})
    _write(folder / OPTIONS, {"max_seq_length": longest, "do_lower_case": False})
    options = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "model_max_length": longest,
        "pad_token": padding,
    }
    _write(folder / TOKENIZER_CONFIG, {**options, "model_input_names": ["input_ids", "attention_mask"]})


def _write(path: Path, value: Any) -> None:
    path.write_text(json.dumps(value, indent=2) + "\n", encoding="utf-8")
