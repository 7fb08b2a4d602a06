"""Export of trained models to the layouts of sentence-transformers, and of PyLate for MaxSim.

``aptool.models.checkpoints`` reads both layouts, except a cross-encoder with modules after its network.
"""

import json
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from aptool.config import TextOptions
from aptool.errors import InputError
from aptool.formats.atomic import output_folder
from aptool.formats.outputs import Kind
from aptool.models.backbone import Backbone
from aptool.models.checkpoints.network import OPTIONS
from aptool.models.features import NoHead
from aptool.models.hub import CONFIG, MODULES, ST_CONFIG, WEIGHTS
from aptool.models.matching import MaxSimPooling
from aptool.models.model import LoadedModel
from aptool.models.pooling import FirstPooling, MeanPooling, VectorPooling
from aptool.models.pretrained import network_library
from aptool.models.similarity import Cosine, Dot
from aptool.models.tensor_file import write_tensors
from aptool.models.transformer import (
    CrossInput,
    CrossPooling,
    HeadPooling,
    PairPooling,
    TransformerEncoder,
)
from aptool.text.subwords import PLAIN, SubwordTokenizer, TextForm

_LIBRARY = "sentence_transformers.models."
_MODES: dict[type[Any], str] = {MeanPooling: "mean", FirstPooling: "cls"}
_SIMILARITIES: dict[type[Any], str] = {Cosine: "cosine", Dot: "dot"}
_SPECIAL = {"unk_token": ("[UNK]", "<unk>"), "mask_token": ("[MASK]", "<mask>")}
_ACTIVATIONS: dict[str, type[nn.Module]] = {
    kind.__name__.lower(): kind for kind in (nn.Identity, nn.Tanh, nn.ReLU, nn.GELU, nn.Sigmoid, nn.SiLU)
}


class _Module(NamedTuple):
    """A module after the network."""

    kind: str  # class of the library
    config: dict[str, Any]
    weights: dict[str, Tensor]


class _Layout(NamedTuple):
    """The content of an exported folder."""

    library: str
    network: Any
    longest: int  # maximum tokens of a text, or of a pair
    options: dict[str, Any]  # of the network, without its length
    settings: dict[str, Any]  # config_sentence_transformers.json
    modules: dict[str, _Module]  # by subfolder
    has_types: bool = False  # whether the network reads token types


def export_model(model: LoadedModel, folder: Path, *, source: object = "model") -> str:
    """Export a model to a folder, atomically; return the name of the library that loads it."""
    _check(model, source)
    pooling, tokenizer = model.ranker.pooling, model.tokenizer
    assert isinstance(tokenizer, SubwordTokenizer)
    if isinstance(pooling, PairPooling):
        layout = _cross_encoder(model, tokenizer, pooling)
    elif isinstance(pooling, MaxSimPooling):
        layout = _late_interaction(model, tokenizer, source)
    else:
        layout = _sentence_encoder(model, tokenizer, pooling)
    with output_folder(folder, Kind.EXPORT, MODULES) as into:
        _write_network(layout, tokenizer, into)
        _write_json(into / ST_CONFIG, {"prompts": {}, "default_prompt_name": None, **layout.settings})
        length = {"max_seq_length": layout.longest, "do_lower_case": False}
        _write_json(into / OPTIONS, {**length, **layout.options})
        for subfolder, module in layout.modules.items():
            (into / subfolder).mkdir()
            _write_json(into / subfolder / CONFIG, module.config)
            if module.weights:
                write_tensors(into / subfolder / WEIGHTS, module.weights, {"format": "pt"})
        kinds = {
            "": _LIBRARY + "Transformer",
            **{name: module.kind for name, module in layout.modules.items()},
        }
        entries = [
            {"idx": number, "name": str(number), "path": subfolder, "type": kind}
            for number, (subfolder, kind) in enumerate(kinds.items())
        ]
        _write_json(into / MODULES, entries)
    return layout.library


def _sentence_encoder(model: LoadedModel, tokenizer: SubwordTokenizer, pooling: Any) -> _Layout:
    """A network, a pooling, and the projection: the mean of projected states equals the projected mean."""
    backbone = _backbone(model)
    question, answer = _forms(tokenizer)
    pools_prompt = not (question.prompt_tokens or answer.prompt_tokens)
    modules = {"1_Pooling": _pooling(_MODES[type(pooling)], model.ranker.encoder.size, pools_prompt)}
    if model.ranker.projection is not None:
        modules["2_Dense"] = _dense(_LIBRARY + "Dense", _weight(model))
    settings = {
        "similarity_fn_name": _SIMILARITIES[type(pooling.similarity)],
        "prompts": {"query": question.prompt, "document": answer.prompt},
    }
    options = _transformer_options(tokenizer, backbone.layer)
    longest = _longest_text(model)
    return _Layout("sentence-transformers", backbone.network, longest, options, settings, modules)


def _late_interaction(model: LoadedModel, tokenizer: SubwordTokenizer, source: object) -> _Layout:
    """A network and a projection; PyLate requires a projection, by default the identity."""
    backbone = _backbone(model)
    settings = _pylate_settings(tokenizer, backbone.layer, model.recipe.text, source)
    modules = {"1_Dense": _dense("pylate.models.Dense.Dense", _weight(model))}
    return _Layout("pylate", backbone.network, _longest_text(model), {}, settings, modules)


def _cross_encoder(model: LoadedModel, tokenizer: SubwordTokenizer, pooling: PairPooling) -> _Layout:
    """A network with its head, or a network, a pooling of the states of the pair, and a linear function."""
    spec, limits = model.ranker.encoder.spec.backbone, model.recipe.text
    assert spec is not None
    pair, around = tokenizer.special_tokens(), tokenizer.prefix_length + tokenizer.suffix_length
    texts = limits.max_question_tokens + limits.max_answer_tokens - 2 * around
    longest = spec.get("max_tokens") or texts + len(pair.before + pair.between + pair.after)
    modules, activation = {}, "identity"
    if isinstance(pooling, HeadPooling):
        network, activation = pooling.classifier.network, pooling.activation
        options = {
            "transformer_task": "sequence-classification",
            "module_output_name": "scores",
            "modality_config": {"text": {"method": "forward", "method_output_name": "logits"}},
            "processing_kwargs": {"text": {"truncation": spec["truncation"]}},
        }
    else:
        assert isinstance(pooling, CrossPooling)
        network = pooling.backbone.network
        options = _transformer_options(tokenizer, pooling.backbone.layer)
        mode = "cls" if pooling.read == "first" else "mean"
        head = _dense(_LIBRARY + "Dense", pooling.head.weight.detach(), pooling.head.bias.detach())
        head.config["module_output_name"] = "scores"
        modules = {"1_Pooling": _pooling(mode, model.ranker.encoder.size), "2_Dense": head}
    function = _ACTIVATIONS[activation]
    settings = {
        "model_type": "CrossEncoder",
        "activation_fn": f"{function.__module__}.{function.__name__}",
    }
    has_types = any(spec["pair"]["types"])
    return _Layout("sentence-transformers", network, longest, options, settings, modules, has_types)


def _backbone(model: LoadedModel) -> Backbone:
    encoder = model.ranker.encoder
    assert isinstance(encoder, TransformerEncoder)
    return encoder.backbone


def _longest_text(model: LoadedModel) -> int:
    """The larger limit of both roles: the libraries have one."""
    limits = model.recipe.text
    return max(limits.max_question_tokens, limits.max_answer_tokens)


def _pooling(mode: str, size: int, pools_prompt: bool = True) -> _Module:
    modes = {"pooling_mode_mean_tokens": mode == "mean", "pooling_mode_cls_token": mode == "cls"}
    options = {"word_embedding_dimension": size, **modes, "include_prompt": pools_prompt}
    return _Module(_LIBRARY + "Pooling", options, {})


def _weight(model: LoadedModel) -> Tensor:
    """(outputs, inputs): the weight of the projection; the identity if there is none."""
    projection = model.ranker.projection
    size = model.ranker.encoder.size
    return torch.eye(size) if projection is None else projection.state_dict()["linear.weight"]


def _dense(kind: str, weight: Tensor, bias: Tensor | None = None) -> _Module:
    config = {
        "in_features": weight.shape[1],
        "out_features": weight.shape[0],
        "bias": bias is not None,
        "activation_function": "torch.nn.modules.linear.Identity",
    }
    return _Module(kind, config, {"linear.weight": weight} | ({} if bias is None else {"linear.bias": bias}))


def _check(model: LoadedModel, source: object) -> None:
    """Raise unless another library supports this kind of model."""
    ranker, pooling = model.ranker, model.ranker.pooling
    exported = (*_MODES, MaxSimPooling, CrossPooling, HeadPooling)
    if model.config.get("model_type") != "aptool":
        expected = "a model that aptool trained; copy the folder instead"
        raise InputError(source, problem="a model of another library", expected=expected)
    problem = None
    if type(ranker.encoder) not in (TransformerEncoder, CrossInput):
        kind = model.recipe.encoder["type"]
        problem, expected = f"a model over a {kind} encoder", "an encoder over a pretrained network"
    elif type(pooling) not in exported:
        problem = f"{model.recipe.pooling['type']} pooling"
        expected = (
            "mean or first pooling or a cross-encoder, for sentence-transformers, or maxsim, for PyLate"
        )
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


def _write_network(layout: _Layout, tokenizer: SubwordTokenizer, folder: Path) -> None:
    """Write the network and its tokenizer in the layout of ``transformers``."""
    transformers = network_library()
    layout.network.save_pretrained(folder)
    copy = tokenizer.copy()
    names = {
        role: next((name for name in candidates if copy.token_to_id(name) is not None), None)
        for role, candidates in _SPECIAL.items()
    }
    padding = layout.network.config.pad_token_id
    if padding is not None:
        names["pad_token"] = copy.id_to_token(padding)
    transformers.PreTrainedTokenizerFast(
        tokenizer_object=copy,
        model_max_length=layout.longest,
        truncation_side="left" if tokenizer.presentation.truncates_left else "right",
        model_input_names=["input_ids", *(["token_type_ids"] if layout.has_types else []), "attention_mask"],
        **{role: name for role, name in names.items() if name is not None},
    ).save_pretrained(folder)


def _write_json(path: Path, value: Any) -> None:
    path.write_text(json.dumps(value, indent=2) + "\n", encoding="utf-8")
