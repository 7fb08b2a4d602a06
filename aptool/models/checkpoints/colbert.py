"""ColBERT in the layouts of PyLate, of sentence-transformers (MultiVectorEncoder) and of Stanford.

The score is MaxSim: the sum over the question's tokens of the maximum inner product with an answer token.
Each text starts with a marker token of its role, and questions are padded with mask tokens. The network reads
all tokens of an answer, but punctuation and other skipped words are not matched.
"""

import string
from pathlib import Path
from typing import Any

from aptool.errors import InputError
from aptool.models.checkpoints.files import (
    Checkpoint,
    Layout,
    check_features,
    default_prompt,
    optional_object,
    positive_integer,
    projection_of,
    read_dense,
    read_tensor,
    recipe_of,
    shapes,
)
from aptool.models.checkpoints.keys import UnsupportedError, check_keys
from aptool.models.checkpoints.network import OpenedEncoder, open_encoder
from aptool.models.checkpoints.sentence import read_prompts
from aptool.models.hub import CONFIG, MODULES, ST_CONFIG, WEIGHTS
from aptool.models.matching import MaxSimPooling
from aptool.models.pooling import Dense
from aptool.models.ranker import Ranker
from aptool.text.subwords import TextForm
from aptool.text.tokenizer import Role

METADATA = "artifact.metadata"

_PREFIXES = ("query_prefix", "document_prefix")

# PyLate's default lengths.
_QUESTION_TOKENS, _ANSWER_TOKENS = 32, 180


def read_colbert(layout: Layout) -> Checkpoint:
    """Read a ColBERT model."""
    is_native = layout.st_config.get("model_type") == "MultiVectorEncoder"
    kind, path = "colbert" if is_native else "pylate", layout.folder / ST_CONFIG
    check_keys(path, f"{ST_CONFIG} of {kind}", layout.st_config)
    opened = open_encoder(layout, kind)
    settings = layout.st_config
    if layout.modules is None:
        path = layout.folder / METADATA
        settings = _stanford_settings(path)
        layers = [_stanford_projection(layout, opened.encoder.size)]
    else:
        layers = _projection(layout, opened.encoder.size)
    forms, limits = (
        _native_forms(layout, opened) if is_native else _pylate_forms(layout, path, settings, opened)
    )
    special = opened.tokenizer.prefix_length + opened.tokenizer.suffix_length
    for form, limit in zip(forms.values(), limits, strict=True):
        least = special + (form.mark >= 0) + 1
        if not least <= limit <= opened.positions:
            expected = f"{least} to {opened.positions}, as the network takes, special tokens included"
            raise InputError(path, problem=f"texts of {limit} tokens", expected=expected)
    if opened.tokenizer.presentation.truncates_left and not is_native and opened.tokenizer.prefix_length != 1:
        problem, expected = "truncation_side left with a marker", "one special token before a text"
        raise UnsupportedError(layout.transformer, problem=problem, expected=expected)
    if forms["question"].filler >= 0 and opened.hf_tokenizer.padding_side == "left":
        expected = "right: aptool adds the tokens that extend a question at its end"
        raise UnsupportedError(layout.transformer, position="padding_side", value="left", expected=expected)
    opened.encoder.backbone.has_fillers = forms["question"].filler >= 0
    means = layout.st_config.get("similarity_fn_name") == "meanmaxsim"
    pooling = MaxSimPooling(0, MaxSimPooling.Options(reduce="mean" if means else "sum"))
    ranker = Ranker(opened.encoder, pooling, projection=projection_of(layers))
    recipe = recipe_of(layout, "transformer", "maxsim", *limits)
    return Checkpoint(ranker, opened.tokenizer_with(forms), recipe)


def _projection(layout: Layout, size: int) -> list[Dense]:
    """Read the Dense layers after the network."""
    layers = []
    for module in layout.modules_of("Dense"):
        layers.append(read_dense(module, size, "token_embeddings"))
        size = layers[-1].outputs
    kinds = [module.kind for module in layout.modules or []]
    if layout.st_config.get("model_type") == "MultiVectorEncoder":
        ends = (["Normalize"], ["MultiVectorMask", "Normalize"], ["Normalize", "MultiVectorMask"])
        if kinds[1 + len(layers) :] not in ends or kinds[1 : 1 + len(layers)] != ["Dense"] * len(layers):
            problem = f"modules {', '.join(kinds)}: vectors without unit length"
            expected = "Transformer, Dense, and Normalize and MultiVectorMask"
            raise UnsupportedError(layout.folder / MODULES, problem=problem, expected=expected)
        for module in layout.modules_of("Normalize"):
            check_features(module, "token_embeddings", "sentence_embedding")
    elif kinds != ["Transformer", *["Dense"] * len(layers)]:
        problem = f"modules {', '.join(kinds)}"
        raise UnsupportedError(layout.folder / MODULES, problem=problem, expected="Transformer and Dense")
    return layers


def _stanford_settings(path: Path) -> dict[str, Any]:
    """Read the settings of Stanford's ColBERT, under the names of PyLate."""
    metadata = optional_object(path)
    check_keys(path, "artifact.metadata of ColBERT", metadata)
    return {
        "query_prefix": metadata.get("query_token_id") or "[unused0]",
        "document_prefix": metadata.get("doc_token_id") or "[unused1]",
        "query_length": metadata.get("query_maxlen"),
        "document_length": metadata.get("doc_maxlen"),
        "attend_to_expansion_tokens": bool(metadata.get("attend_to_mask_tokens")),
        "skiplist_words": None if metadata.get("mask_punctuation", True) else [],
    }


def _stanford_projection(layout: Layout, size: int) -> Dense:
    """Read the projection in the weights of the network."""
    path = layout.folder / WEIGHTS
    shape = shapes(path).get("linear.weight")
    if shape is None or len(shape) != 2 or shape[1] != size:
        raise InputError(
            path, position="linear.weight", value=shape, expected=f"a projection of {size} features"
        )
    layer = Dense(size, shape[0])
    layer.linear.load_state_dict({"weight": read_tensor(path, "linear.weight")})
    return layer


def _pylate_forms(
    layout: Layout, path: Path, settings: dict[str, Any], opened: OpenedEncoder
) -> tuple[dict[Role, TextForm], tuple[int, int]]:
    """Return the forms and maximum lengths of texts, from the configuration of PyLate."""
    fill_to = positive_integer(path, settings, "query_length", _QUESTION_TOKENS)
    longest = positive_integer(path, settings, "document_length", _ANSWER_TOKENS)
    prefixes = settings.get("query_prefix", "[Q] "), settings.get("document_prefix", "[D] ")
    marks = [_mark(path, name, prefix, opened) for name, prefix in zip(_PREFIXES, prefixes, strict=True)]
    fills = settings.get("do_query_expansion") is not False
    # PyLate removes outer white space, of the prompt too.
    prompt = default_prompt(layout)
    question = TextForm(
        prompt=prompt,
        strips=True,
        mark=marks[0],
        filler=_filler(path, opened, None) if fills else -1,
        fill_to=fill_to if fills else 0,
        attend_filler=bool(settings.get("attend_to_expansion_tokens")),
    )
    words = settings.get("skiplist_words")
    skipped = _ids(path, list(string.punctuation) if words is None else words, opened)
    answer = TextForm(prompt=prompt, strips=True, mark=marks[1], unpooled=skipped)
    return {"question": question, "answer": answer}, (fill_to, longest)


def _native_forms(layout: Layout, opened: OpenedEncoder) -> tuple[dict[Role, TextForm], tuple[int, int]]:
    """Return the forms and maximum lengths of texts, from the modules of sentence-transformers."""
    path, entries = opened.options.path, opened.options.entries
    prompts = read_prompts(layout)
    limits = [opened.limit(name) for name in ("query_length", "document_length")]
    expansion = entries.get("query_expansion")
    filling: dict[str, Any] = {}
    if expansion is not None:
        if not layout.modules_of("MultiVectorMask"):
            expected = "a module MultiVectorMask, without which the added tokens do not count"
            raise InputError(path, position="query_expansion", value=expansion, expected=expected)
        if not isinstance(expansion, dict):
            raise InputError(path, position="query_expansion", value=expansion, expected="its settings")
        check_keys(path, "query_expansion", expansion, "query_expansion/")
        limit, options = "processing_kwargs/common/max_length", opened.options
        if options.limit_name == limit:  # the library cuts the added tokens off again
            expected = "none with query_expansion"
            raise UnsupportedError(path, position=limit, value=options.max_length, expected=expected)
        fill_to = positive_integer(path, expansion, "length", _QUESTION_TOKENS)
        filler, attend = _filler(path, opened, expansion.get("token")), bool(expansion.get("attend"))
        filling = {"filler": filler, "fill_to": fill_to, "attend_filler": attend}
        if expansion["strategy"] == "fixed":
            limits[0] = fill_to
        elif opened.options.max_length is None and entries.get("query_length") is not None:
            limits[0] = max(limits[0], fill_to)
    skipped: tuple[int, ...] = ()
    for mask in layout.modules_of("MultiVectorMask"):
        skipped = _ids(mask.folder / CONFIG, mask.config.get("skiplist_words") or [], opened)
    question = TextForm(prompt=prompts["question"], **filling)
    answer = TextForm(prompt=prompts["answer"], unpooled=skipped)
    return {"question": question, "answer": answer}, (limits[0], limits[1])


def _mark(path: Path, name: str, prefix: object, opened: OpenedEncoder) -> int:
    """Return the id of the marker token of a role; -1 if there is none."""
    if prefix in (None, ""):
        return -1
    token = opened.hf_tokenizer.get_vocab().get(prefix) if isinstance(prefix, str) else None
    if token is None:
        raise InputError(path, position=name, value=prefix, expected="a token of tokenizer.json")
    return int(token)


def _filler(path: Path, opened: OpenedEncoder, token: object) -> int:
    """Return the id of the token that pads questions: the named token, or the mask token."""
    tokenizer = opened.hf_tokenizer
    if token is not None:
        return _mark(path, "query_expansion", token, opened)
    filler = tokenizer.mask_token_id if tokenizer.mask_token_id is not None else tokenizer.eos_token_id
    if filler is None:
        raise InputError(
            path, problem="no mask token", expected="a tokenizer with a mask token, to pad questions"
        )
    return int(filler)


def _ids(path: Path, words: object, opened: OpenedEncoder) -> tuple[int, ...]:
    """Return the ids of those words of a skip list that are tokens."""
    if not isinstance(words, list) or not all(isinstance(word, str) for word in words):
        raise InputError(path, position="skiplist_words", value=words, expected="a list of words")
    vocabulary = opened.hf_tokenizer.get_vocab()
    return tuple(int(vocabulary[word]) for word in words if word in vocabulary)
