"""Loading a pretrained network and its tokenizer, from a folder or from the Hugging Face hub.

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

# Entries of a network's configuration that say nothing of its structure.
_NOT_STRUCTURE = {"_name_or_path", "architectures", "dtype", "torch_dtype", "transformers_version"}

# Weights that a network may have beyond those in its files.
SPARE_WEIGHTS = 1 << 24

# Positions of a network that has no limit.
_UNLIMITED = 1 << 30


class Pretrained(NamedTuple):
    """A pretrained network as it was loaded.

    Attributes:
        tokenizer: its tokenizer.
        config: its configuration: everything that decides its structure.
        weights: its state dict, fp32.
        size: c, features per state.
        max_tokens: longest text that it accepts, in tokens.
        causal: whether the state of a token depends only on the tokens up to it.
    """

    tokenizer: SubwordTokenizer
    config: dict[str, Any]
    weights: dict[str, Tensor]
    size: int
    max_tokens: int
    causal: bool


def network_library() -> Any:
    """The ``transformers`` package, for networks to train and score with."""
    return require("transformers", purpose="a pretrained encoder", extra="transformers")


def check_named(where: str, name: str) -> None:
    """Checks, before any work, that a network can be loaded."""
    if not name:
        raise InputError(where, place="encoder.name", value=name, expected=EXPECTED)
    if (name[0] in "/.~" or name.count("/") > 1) and not Path(name).is_dir():
        raise InputError(where, place=f"encoder.name: {name}", problem="folder not found", expected=EXPECTED)
    check_installed("transformers", purpose=f"encoder.name {name!r}", extra="transformers")


def read_pretrained(name: str, layers: int = 0) -> Pretrained:
    """Loads a network and its tokenizer from a folder or the hub; code that comes with one is never run.

    Args:
        name: folder, or name on the hub.
        layers: number of layers to keep, counted from the first; 0 keeps all.
    """
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


class OpenedNetwork(NamedTuple):
    """A network of ``transformers`` with its weights.

    Attributes:
        network: the network, fp32, in evaluation mode.
        tokenizer: its tokenizer, of ``transformers``.
        max_tokens: longest text that it accepts, in tokens.
        causal: whether the state of a token depends only on the tokens up to it.
    """

    network: Any
    tokenizer: Any
    max_tokens: int
    causal: bool


def open_network(name: str, *, tokenizer: str = "", layers: int = 0, head: bool = False) -> OpenedNetwork:
    """Loads a network of ``transformers``, with all its weights or not at all.

    Args:
        name: folder, or name on the hub.
        tokenizer: folder of the tokenizer, if it is another.
        layers: number of layers to keep, counted from the first; 0 keeps all.
        head: keep the head that classifies texts; without it, only what computes states is kept.
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
        words = transformers.AutoTokenizer.from_pretrained(tokenizer or name, use_fast=True, **SAFELY)
        has_tokenizer_file = _has_tokenizer_file(transformers, tokenizer or name, words)
        if getattr(words, "backend_tokenizer", None) is not None:
            check_encodes(words.backend_tokenizer)
        whole, loading = loader.from_pretrained(name, config=config, output_loading_info=True, **SAFELY)
        network = (whole if head else bare_encoder(whole)).eval()
        used = {id(weight) for weight in network.state_dict(keep_vars=True).values()}
        causal = False if head else _is_causal(network)
    except InputError:
        raise
    except Exception as error:  # whatever a network, a hub and several file formats can raise
        raise InputError(name, problem=first_line(error), expected=EXPECTED) from error
    weights = whole.state_dict(keep_vars=True)
    missing = [key for key in sorted(loading["missing_keys"]) if id(weights.get(key)) in used]
    if missing:
        # The library would initialize them at random.
        raise InputError(name, problem=f"no weights {missing[0]}", expected="all weights of the network")
    if layers > available:
        raise InputError(name, place="encoder.layers", value=layers, expected=f"at most {available}")
    if not has_tokenizer_file:
        # The library would construct one without a vocabulary.
        raise InputError(name, problem="no tokenizer.json", expected="a network with its tokenizer")
    if getattr(words, "backend_tokenizer", None) is None:
        raise InputError(name, value=type(words).__name__, expected="a network with a tokenizer.json")
    network = network.float()
    rows = network.get_input_embeddings().weight.shape[0]
    if len(words) > rows:
        raise InputError(
            name,
            problem=f"{len(words)} tokens in the vocabulary",
            expected=f"at most {rows}, as the network has embeddings",
        )
    _check_ids(name, words.backend_tokenizer, rows, getattr(network.config, "type_vocab_size", 0))
    return OpenedNetwork(network, words, _longest_text(name, words, network, head), causal)


def _check_ids(name: str, tokenizer: Any, rows: int, kinds: int) -> None:
    """Checks that a network has an embedding of every id and token type that its tokenizer gives.

    Args:
        name: of the network.
        tokenizer: of ``tokenizers``.
        rows: embeddings of tokens that the network has.
        kinds: those of token types; a network with less than two is given none.
    """
    around = [tokenizer.encode("a"), tokenizer.encode("a", "a")]
    special = [token for encoding in around for token in encoding.ids]
    if (largest := max([*tokenizer.get_vocab().values(), *special])) >= rows:
        expected = f"ids below {rows}, as the network has embeddings"
        raise InputError(name, place="tokenizer.json", problem=f"token id {largest}", expected=expected)
    largest = max((kind for encoding in around for kind in encoding.type_ids), default=0)
    if 1 < kinds <= largest:
        expected = f"types below {kinds}, as the network has embeddings"
        raise InputError(name, place="tokenizer.json", problem=f"token type {largest}", expected=expected)


def _longest_text(name: str, words: Any, network: nn.Module, pair: bool) -> int:
    """The longest text that a network takes, in tokens: by its positions, and by its tokenizer."""
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
    """Compares the size of a network with that of its files of weights, before it takes any memory."""
    files = list(Path(name).glob("*.safetensors")) if Path(name).is_dir() else []
    if not files:
        return
    with torch.device("meta"):
        described = sum(weight.numel() for weight in loader.from_config(config, **SAFELY).parameters())
    # Weights have a byte or more each; a pooler or a head that is not loaded may come on top.
    largest = sum(file.stat().st_size for file in files) + SPARE_WEIGHTS
    if described > largest:
        wanted = f"a network of at most {largest:,}, as its files have bytes"
        raise InputError(name, place="config.json", problem=f"{described:,} weights", expected=wanted)


def bare_encoder(network: Any) -> Any:
    """The part of a network that computes states: no decoder, no pooler, no cache."""
    if isinstance(getattr(network, "decoder", None), nn.Module) and hasattr(network, "encoder"):
        network = network.get_encoder()
    if isinstance(getattr(network, "pooler", None), nn.Module):
        network.pooler = None
    network.config.use_cache = False
    return network


def max_positions(network: nn.Module) -> int:
    """Longest text that a network has position embeddings for, in tokens, padding included."""
    configured = getattr(network.config, "max_position_embeddings", None) or 0
    if configured < 1:
        return _UNLIMITED
    for part in network.modules():
        if not isinstance(part, nn.Embedding) or part.num_embeddings != configured:
            continue
        if part.padding_idx is not None:
            return int(configured - part.padding_idx - 1)  # positions start after that of padding
    return int(configured)


def _keep_layers(config: Any, layers: int) -> None:
    """Shortens a configuration to the first layers, and so every list in it with an entry per layer."""
    available = config.num_hidden_layers
    if layers == available:
        return
    for key, value in config.to_dict().items():
        if isinstance(value, list) and len(value) == available:
            setattr(config, key, value[:layers])
    config.num_hidden_layers = layers


def _has_tokenizer_file(transformers: Any, name: str, tokenizer: Any) -> bool:
    """Whether a network comes with a file of its tokenizer."""
    for file in dict.fromkeys(["tokenizer.json", *tokenizer.vocab_files_names.values()]):
        try:
            if transformers.utils.cached_file(name, file) is not None:
                return True
        except OSError:  # that the file does not exist
            continue
    return False


@torch.no_grad()
def _is_causal(network: Any) -> bool:
    """Whether the first state of a text is the same whatever follows the first token."""
    rows = network.get_input_embeddings().weight.shape[0]
    ids = torch.tensor([[1, 2, 3, 4], [1, 5, 6, 7]]) % rows
    states = network(input_ids=ids, attention_mask=torch.ones_like(ids), return_dict=True).last_hidden_state
    return torch.equal(states[0, 0], states[1, 0])


# Entries by which a configuration leads to code, or to another network.
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

# The implementations within transformers and torch; any other name is looked up on the hub.
_IMPLEMENTATIONS = (None, "eager", "sdpa", "flex_attention", "batched_mm", "grouped_mm")

_MOST_LAYERS = 4096
_DEEPEST = 20


def check_network_config(where: str | Path, config: Any, place: str = "backbone/network") -> None:
    """Checks that a configuration, and any that it contains, describes a network and nothing to run or load.

    Args:
        where: the file or network that it is from, for errors.
        config: the configuration, as JSON values.
        place: where in the file it is, for errors.
    """
    if place.count("/") > _DEEPEST:
        raise InputError(
            where, place=place, problem="nested too deeply", expected="a network's configuration"
        )
    if isinstance(config, list | tuple):
        for number, value in enumerate(config):
            if isinstance(value, dict | list | tuple):
                check_network_config(where, value, f"{place}/{number}")
        return
    for name, value in config.items():
        key = str(name)
        here = f"{place}/{key}"
        if key in _LEADS_ELSEWHERE and value:
            wanted = "no such entry: a network is built by transformers alone, and runs no code of its folder"
            raise InputError(where, place=here, value=value, expected=wanted)
        if "_implementation" in key and value not in _IMPLEMENTATIONS:
            wanted = f"one of {', '.join(str(name) for name in _IMPLEMENTATIONS if name)}"
            raise InputError(where, place=here, value=value, expected=wanted)
        if key == "model_type" and str(value).startswith("timm"):
            raise InputError(where, place=here, value=value, expected="a network for text")
        if "layer" in key and isinstance(value, int) and value > _MOST_LAYERS:
            raise InputError(where, place=here, value=value, expected=f"at most {_MOST_LAYERS}")
        if isinstance(value, dict | list | tuple):
            check_network_config(where, value, here)


def without_code(config: Any) -> Any:
    """A copy of a configuration without the names of code that comes with the network."""
    if isinstance(config, dict):
        return {key: without_code(value) for key, value in config.items() if key != "auto_map"}
    if isinstance(config, list):
        return [without_code(value) for value in config]
    return config
