"""Pretrained networks and their tokenizers, from a folder or the Hugging Face hub; no code of a model runs.

The ``transformers`` package is an optional extra and is imported only when a network is loaded.
"""

import json
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from aptool.errors import InputError, first_line
from aptool.formats.urls import is_remote
from aptool.text.subwords import SubwordTokenizer
from aptool.text.tokenizer import SAFELY, check_encodes, check_installed, require

EXPECTED = "the folder of a pretrained network, or its name on the Hugging Face hub"

# Entries of a network's configuration that do not affect its structure.
_NOT_STRUCTURE = {"_name_or_path", "architectures", "dtype", "torch_dtype", "transformers_version"}

# Maximum number of weights of a network that its files lack.
SPARE_WEIGHTS = 1 << 24

# Maximum length of a network without a limit, in tokens.
_UNLIMITED = 1 << 30

# Entries of a configuration that lead to code, or to another network.
_LEADS_ELSEWHERE = (
    "auto_map",
    "backbone",
    "backbone_config",
    "code_revision",
    "custom_generate",
    "custom_pipelines",
    "kernel_config",
    "quantization_config",
    "trust_remote_code",
    "use_kernels",
    "use_pretrained_backbone",
    "use_timm_backbone",
)

# Implementations in transformers and torch; transformers looks up any other name on the hub.
_IMPLEMENTATIONS = (None, "eager", "sdpa", "flex_attention", "batched_mm", "grouped_mm")

_MOST_LAYERS = 4096
_DEEPEST = 20


class Pretrained(NamedTuple):
    """A pretrained network."""

    tokenizer: SubwordTokenizer
    config: dict[str, Any]  # everything that decides its structure
    weights: dict[str, Tensor]  # state dict, fp32
    size: int  # c, features per state
    max_tokens: int  # maximum length of a text
    causal: bool  # the state of a token depends only on the tokens up to it


class OpenedNetwork(NamedTuple):
    """A network of ``transformers`` with its weights."""

    network: Any  # fp32, in evaluation mode
    tokenizer: Any  # of ``transformers``
    max_tokens: int  # maximum length of a text
    causal: bool  # the state of a token depends only on the tokens up to it


def network_library() -> Any:
    """Import the ``transformers`` package."""
    return require("transformers", purpose="a pretrained encoder", extra="transformers")


def check_named(where: str, name: str) -> None:
    """Raise unless a network is named, its folder exists and ``transformers`` is installed."""
    if not name:
        raise InputError(where, place="encoder.name", value=name, expected=EXPECTED)
    if (name[0] in "/.~" or name.count("/") > 1) and not Path(name).is_dir():
        raise InputError(where, place=f"encoder.name: {name}", problem="folder not found", expected=EXPECTED)
    check_installed("transformers", purpose=f"encoder.name {name!r}", extra="transformers")


def read_pretrained(name: str, layers: int = 0) -> Pretrained:
    """Load a network and its tokenizer from a folder or the hub; see ``open_network``."""
    opened = open_network(name, layers=layers)
    network = opened.network
    full = json.loads(network.config.to_json_string(use_diff=False))
    return Pretrained(
        tokenizer=SubwordTokenizer(opened.tokenizer.backend_tokenizer),
        config={key: value for key, value in without_code(full).items() if key not in _NOT_STRUCTURE},
        weights={key: value.detach().clone() for key, value in network.state_dict().items()},
        size=network.config.hidden_size,
        max_tokens=opened.max_tokens,
        causal=opened.causal,
    )


def open_network(name: str, *, layers: int = 0, head: bool = False) -> OpenedNetwork:
    """Load a network of ``transformers``; raise if a weight is missing.

    Args:
        name: folder, or name on the hub.
        layers: number of first layers to keep; 0 keeps all.
        head: keep the classification head.
    """
    transformers = network_library()
    loader = transformers.AutoModelForSequenceClassification if head else transformers.AutoModel
    if is_remote(name):
        raise InputError(name, problem="a URL", expected=EXPECTED)
    try:
        described, _ = transformers.PretrainedConfig.get_config_dict(name)
        check_network_config(name, without_code(described), "config.json")
        config = transformers.AutoConfig.from_pretrained(name, **SAFELY)
        available = config.num_hidden_layers
        _keep_layers(config, min(layers, available) if layers else available)
        _check_size(name, loader, config)
        tokenizer = transformers.AutoTokenizer.from_pretrained(name, use_fast=True, **SAFELY)
        has_tokenizer_file = _has_tokenizer_file(transformers, name, tokenizer)
        if getattr(tokenizer, "backend_tokenizer", None) is not None:
            check_encodes(tokenizer.backend_tokenizer)
        whole, loading = loader.from_pretrained(name, config=config, output_loading_info=True, **SAFELY)
        network = (whole if head else bare_encoder(whole)).eval()
        kept_weights = {id(weight) for weight in network.state_dict(keep_vars=True).values()}
        causal = False if head else _is_causal(network)
    except InputError:
        raise
    except Exception as error:  # whatever a network, a hub and several file formats can raise
        raise InputError(name, problem=first_line(error), expected=EXPECTED) from error
    weights = whole.state_dict(keep_vars=True)
    missing = [key for key in sorted(loading["missing_keys"]) if id(weights.get(key)) in kept_weights]
    if missing:
        # The library would initialize them at random.
        raise InputError(name, problem=f"no weights {missing[0]}", expected="all weights of the network")
    if layers > available:
        raise InputError(name, place="encoder.layers", value=layers, expected=f"at most {available}")
    if not has_tokenizer_file:
        # The library would construct one without a vocabulary.
        raise InputError(name, problem="no tokenizer.json", expected="a network with its tokenizer")
    if getattr(tokenizer, "backend_tokenizer", None) is None:
        raise InputError(name, value=type(tokenizer).__name__, expected="a network with a tokenizer.json")
    network = network.float()
    rows = network.get_input_embeddings().weight.shape[0]
    if len(tokenizer) > rows:
        expected = f"at most {rows}, as the network has embeddings"
        raise InputError(name, problem=f"{len(tokenizer)} tokens in the vocabulary", expected=expected)
    _check_ids(name, tokenizer.backend_tokenizer, rows, getattr(network.config, "type_vocab_size", 0))
    return OpenedNetwork(network, tokenizer, _longest_text(name, tokenizer, network, head), causal)


def _check_ids(name: str, tokenizer: Any, rows: int, kinds: int) -> None:
    """Raise unless a network has an embedding of every id (``rows``) and token type (``kinds``).

    A network with fewer than two token types receives no types.
    """
    encodings = [tokenizer.encode("a"), tokenizer.encode("a", "a")]
    special = [token for encoding in encodings for token in encoding.ids]
    if (largest := max([*tokenizer.get_vocab().values(), *special])) >= rows:
        expected = f"ids below {rows}, as the network has embeddings"
        raise InputError(name, place="tokenizer.json", problem=f"token id {largest}", expected=expected)
    largest = max((kind for encoding in encodings for kind in encoding.type_ids), default=0)
    if 1 < kinds <= largest:
        expected = f"types below {kinds}, as the network has embeddings"
        raise InputError(name, place="tokenizer.json", problem=f"token type {largest}", expected=expected)


def _longest_text(name: str, words: Any, network: nn.Module, pair: bool) -> int:
    """Return the maximum length of a text, in tokens, by the network's positions and by its tokenizer."""
    least = words.num_special_tokens_to_add(pair) + (2 if pair else 1)
    declared, positions = words.model_max_length, max_positions(network)
    if not isinstance(declared, int | float) or isinstance(declared, bool) or not declared >= least:
        place, expected = "tokenizer_config.json: model_max_length", f"a number of tokens from {least}"
        raise InputError(name, place=place, value=declared, expected=expected)
    if positions < least:
        expected = f"at least {least}, special tokens included"
        raise InputError(name, problem=f"texts of up to {positions} tokens", expected=expected)
    return int(min(declared, positions))


def _check_size(name: str, loader: Any, config: Any) -> None:
    """Raise, before it takes memory, if a network is much larger than its weight files."""
    files = list(Path(name).glob("*.safetensors")) if Path(name).is_dir() else []
    if not files:
        return
    with torch.device("meta"):
        described = sum(weight.numel() for weight in loader.from_config(config, **SAFELY).parameters())
    # A weight has at least one byte; a pooler or a head may be missing.
    largest = sum(file.stat().st_size for file in files) + SPARE_WEIGHTS
    if described > largest:
        expected = f"a network of at most {largest:,}, as its files have bytes"
        raise InputError(name, place="config.json", problem=f"{described:,} weights", expected=expected)


def bare_encoder(network: Any) -> Any:
    """Return the part of a network that computes states: no decoder, no pooler, no cache."""
    if isinstance(getattr(network, "decoder", None), nn.Module) and hasattr(network, "encoder"):
        network = network.get_encoder()
    if isinstance(getattr(network, "pooler", None), nn.Module):
        network.pooler = None
    network.config.use_cache = False
    return network


def max_positions(network: nn.Module) -> int:
    """Return the number of position embeddings that texts can use."""
    configured = getattr(network.config, "max_position_embeddings", None) or 0
    if configured < 1:
        return _UNLIMITED
    for part in network.modules():
        if not isinstance(part, nn.Embedding) or part.num_embeddings != configured:
            continue
        if part.padding_idx is not None:
            return int(configured - part.padding_idx - 1)  # positions start after padding
    return int(configured)


def _keep_layers(config: Any, layers: int) -> None:
    """Shorten a configuration, and its lists with one entry per layer, to the first layers."""
    available = config.num_hidden_layers
    if layers == available:
        return
    for key, value in config.to_dict().items():
        if isinstance(value, list) and len(value) == available:
            setattr(config, key, value[:layers])
    config.num_hidden_layers = layers


def _has_tokenizer_file(transformers: Any, name: str, tokenizer: Any) -> bool:
    """Whether a network has a tokenizer file."""
    for file in dict.fromkeys(["tokenizer.json", *tokenizer.vocab_files_names.values()]):
        try:
            if transformers.utils.cached_file(name, file) is not None:
                return True
        except OSError:  # file not found
            continue
    return False


@torch.no_grad()
def _is_causal(network: Any) -> bool:
    """Whether the first state of a text does not depend on the next tokens."""
    rows = network.get_input_embeddings().weight.shape[0]
    ids = torch.tensor([[1, 2, 3, 4], [1, 5, 6, 7]]) % rows
    states = network(input_ids=ids, attention_mask=torch.ones_like(ids), return_dict=True).last_hidden_state
    return torch.equal(states[0, 0], states[1, 0])


def check_network_config(where: str | Path, config: Any, place: str = "backbone/network") -> None:
    """Raise if a configuration leads to code or to another network, or has too many layers.

    Args:
        where: the file or network, for errors.
        config: the configuration, as JSON values.
        place: location in the file, for errors.
    """
    if place.count("/") > _DEEPEST:
        expected = "a network's configuration"
        raise InputError(where, place=place, problem="nested too deeply", expected=expected)
    for name, value in enumerate(config) if isinstance(config, list | tuple) else config.items():
        key = str(name)
        path = f"{place}/{key}"
        if key in _LEADS_ELSEWHERE and value:
            expected = (
                "no such entry: a network is built by transformers alone, and runs no code of its folder"
            )
            raise InputError(where, place=path, value=value, expected=expected)
        if "_implementation" in key and value not in _IMPLEMENTATIONS:
            expected = f"one of {', '.join(str(name) for name in _IMPLEMENTATIONS if name)}"
            raise InputError(where, place=path, value=value, expected=expected)
        if key == "model_type" and str(value).startswith("timm"):
            raise InputError(where, place=path, value=value, expected="a network for text")
        if "layer" in key and isinstance(value, int) and value > _MOST_LAYERS:
            raise InputError(where, place=path, value=value, expected=f"at most {_MOST_LAYERS}")
        if isinstance(value, dict | list | tuple):
            check_network_config(where, value, path)


def without_code(config: Any) -> Any:
    """Copy a configuration without references to the model's code."""
    if isinstance(config, dict):
        return {key: without_code(value) for key, value in config.items() if key != "auto_map"}
    if isinstance(config, list):
        return [without_code(value) for value in config]
    return config
