"""Export of trained models to the layouts of sentence-transformers, and of PyLate for MaxSim.

``aptool.models.checkpoints`` reads both layouts.
"""

import json
from pathlib import Path
from typing import Any

import torch
from torch import nn

from aptool.config import TextOptions
from aptool.errors import InputError
from aptool.formats.atomic import output_folder
from aptool.formats.outputs import Kind
from aptool.models.checkpoints.network import OPTIONS
from aptool.models.features import NoHead
from aptool.models.hub import CONFIG, MODULES, ST_CONFIG, WEIGHTS
from aptool.models.matching import MaxSimPooling
from aptool.models.model import LoadedModel
from aptool.models.pooling import FirstPooling, MeanPooling, VectorPooling
from aptool.models.pretrained import network_library
from aptool.models.similarity import Cosine, Dot
from aptool.models.tensor_file import write_tensors
from aptool.models.transformer import TransformerEncoder
from aptool.text.subwords import PLAIN, SubwordTokenizer, TextForm

_LIBRARY = "sentence_transformers.models."
_MODES: dict[type[Any], str] = {MeanPooling: "mean", FirstPooling: "cls"}
_SIMILARITIES: dict[type[Any], str] = {Cosine: "cosine", Dot: "dot"}
_SPECIAL = {"unk_token": ("[UNK]", "<unk>"), "mask_token": ("[MASK]", "<mask>")}


def export_model(model: LoadedModel, folder: Path, *, source: object = "model") -> str:
    """Export a model to a folder, atomically; return the name of the library that loads it."""
    _check(model, source)
    ranker, pooling, limits = model.ranker, model.ranker.pooling, model.recipe.text
    longest = max(limits.max_question_tokens, limits.max_answer_tokens)
    modules = {"": _LIBRARY + "Transformer"}  # by subfolder
    encoder, tokenizer = ranker.encoder, model.tokenizer
    assert isinstance(encoder, TransformerEncoder)
    assert isinstance(tokenizer, SubwordTokenizer)
    question, answer = _forms(tokenizer)
    st_config: dict[str, Any] = {"prompts": {}, "default_prompt_name": None}
    transformer: dict[str, Any] = {"max_seq_length": longest, "do_lower_case": False}
    if isinstance(pooling, MaxSimPooling):
        library, modules["1_Dense"] = "pylate", "pylate.models.Dense.Dense"
        st_config |= _pylate_settings(tokenizer, encoder.backbone.layer, limits, source)
    else:
        assert isinstance(pooling, VectorPooling)
        library, modules["1_Pooling"] = "sentence-transformers", _LIBRARY + "Pooling"
        st_config["similarity_fn_name"] = _SIMILARITIES[type(pooling.similarity)]
        st_config["prompts"] = {"query": question.prompt, "document": answer.prompt}
        transformer |= _transformer_options(tokenizer, encoder.backbone.layer)
        # The mean of projected states equals the projected mean.
        if ranker.projection is not None:
            modules["2_Dense"] = _LIBRARY + "Dense"
    with output_folder(folder, Kind.EXPORT, MODULES) as into:
        _write_network(encoder.backbone.network, tokenizer, into, longest)
        _write_json(into / ST_CONFIG, st_config)
        _write_json(into / OPTIONS, transformer)
        size = encoder.size
        for subfolder in list(modules)[1:]:
            (into / subfolder).mkdir()
            if subfolder == "1_Pooling":
                mode = _MODES[type(pooling)]
                modes = {"pooling_mode_mean_tokens": mode == "mean", "pooling_mode_cls_token": mode == "cls"}
                pools_prompt = not (question.prompt_tokens or answer.prompt_tokens)
                options = {"word_embedding_dimension": size, **modes, "include_prompt": pools_prompt}
                _write_json(into / subfolder / CONFIG, options)
            else:
                _write_dense(into / subfolder, ranker.projection, size)
        entries = [
            {"idx": number, "name": str(number), "path": subfolder, "type": name}
            for number, (subfolder, name) in enumerate(modules.items())
        ]
        _write_json(into / MODULES, entries)
    return library


def _check(model: LoadedModel, source: object) -> None:
    """Raise unless another library supports this kind of model."""
    ranker, pooling = model.ranker, model.ranker.pooling
    exported = (*_MODES, MaxSimPooling)
    if model.config.get("model_type") != "aptool":
        expected = "a model that aptool trained; copy the folder instead"
        raise InputError(source, problem="a model of another library", expected=expected)
    problem = None
    if type(ranker.encoder) is not TransformerEncoder:
        kind = model.recipe.encoder["type"]
        problem, expected = f"a model over a {kind} encoder", "an encoder over a pretrained network"
    elif type(pooling) not in exported:
        problem = f"{model.recipe.pooling['type']} pooling"
        expected = "mean or first pooling, for sentence-transformers, or maxsim, for PyLate"
    elif isinstance(pooling, VectorPooling) and type(pooling.similarity) not in _SIMILARITIES:
        problem, expected = f"{model.recipe.similarity['type']} similarity", "cosine or dot"
    elif not isinstance(ranker.head, NoHead):
        problem, expected = f"a {model.recipe.head['type']} head", "none"
    if problem is not None:
        raise InputError(source, problem=f"no other library has {problem}", expected=expected)


def _forms(tokenizer: SubwordTokenizer) -> tuple[TextForm, TextForm]:
    """Return the forms of questions and answers."""
    forms = tokenizer.presentation.forms
    return forms.get("question", PLAIN), forms.get("answer", PLAIN)


def _pylate_settings(
    tokenizer: SubwordTokenizer, layer: int | None, limits: TextOptions, source: object
) -> dict[str, Any]:
    """Return the settings of PyLate that present texts as the model does."""
    (question, answer), token_of = _forms(tokenizer), tokenizer.copy().id_to_token
    fills = question.filler >= 0
    fits = not fills or (
        question.fill_to == limits.max_question_tokens and token_of(question.filler) in _SPECIAL["mask_token"]
    )
    is_described = question.prompt == answer.prompt and layer is None and tokenizer.presentation.special
    if not (is_described and fits) or question.unpooled:
        problem = "prompts by role, another filler or layer, or no special tokens"
        raise InputError(source, problem=problem, expected="a model that PyLate can describe")
    prefixes = ["" if form.mark < 0 else token_of(form.mark) for form in (question, answer)]
    return {
        "model_type": "ColBERT",
        "query_prefix": prefixes[0],
        "document_prefix": prefixes[1],
        "query_length": limits.max_question_tokens,
        "document_length": limits.max_answer_tokens,
        "do_query_expansion": fills,
        "attend_to_expansion_tokens": question.attend_filler,
        "skiplist_words": [token_of(token) for token in answer.unpooled],
        "similarity_fn_name": "MaxSim",
        "prompts": {"query": question.prompt} if question.prompt else {},
        "default_prompt_name": "query" if question.prompt else None,
    }


def _transformer_options(tokenizer: SubwordTokenizer, layer: int | None) -> dict[str, Any]:
    """Return the options of sentence-transformers that the texts and the states of a model require."""
    options: dict[str, Any] = {}
    if not tokenizer.presentation.special:
        options["processing_kwargs"] = {"text": {"add_special_tokens": False}}
    if layer is not None:
        text = {"method": "forward", "method_output_name": ["hidden_states", layer]}
        options |= {"modality_config": {"text": text}, "module_output_name": "token_embeddings"}
    return options


def _write_network(network: Any, tokenizer: SubwordTokenizer, folder: Path, longest: int) -> None:
    """Write the network and its tokenizer in the layout of ``transformers``."""
    transformers = network_library()
    network.save_pretrained(folder)
    copy = tokenizer.copy()
    names = {
        role: next((name for name in candidates if copy.token_to_id(name) is not None), None)
        for role, candidates in _SPECIAL.items()
    }
    if network.config.pad_token_id is not None:
        names["pad_token"] = copy.id_to_token(network.config.pad_token_id)
    transformers.PreTrainedTokenizerFast(
        tokenizer_object=copy,
        model_max_length=longest,
        truncation_side="left" if tokenizer.presentation.truncates_left else "right",
        model_input_names=["input_ids", "attention_mask"],
        **{role: name for role, name in names.items() if name is not None},
    ).save_pretrained(folder)


def _write_dense(folder: Path, projection: nn.Module | None, size: int) -> None:
    """Write the projection as a layer without bias; PyLate requires a layer, by default the identity."""
    weight = torch.eye(size) if projection is None else projection.state_dict()["linear.weight"]
    options: dict[str, Any] = {
        "in_features": weight.shape[1],
        "out_features": weight.shape[0],
        "bias": False,
        "activation_function": "torch.nn.modules.linear.Identity",
    }
    _write_json(folder / CONFIG, options)
    write_tensors(folder / WEIGHTS, {"linear.weight": weight}, {"format": "pt"})


def _write_json(path: Path, value: Any) -> None:
    path.write_text(json.dumps(value, indent=2) + "\n", encoding="utf-8")
