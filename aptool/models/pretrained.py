"""Pretrained networks and their tokenizers, from a folder or the Hugging Face hub. No code of a model runs.

The ``transformers`` package is an optional extra and is imported only when a network is loaded.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, NamedTuple

import torch
from torch import nn

from aptool.errors import AptoolError, InputError, first_line, one_line, shortened
from aptool.formats.location import is_remote
from aptool.text.tokenizer import SAFELY
from aptool.text.tokenizer_file import check_encodes, read_tokenizer
from aptool.version import check_installed, require

EXPECTED = "the folder of a pretrained network, or its name on the Hugging Face hub"

# Entries of a configuration that do not affect the structure of the network.
_NOT_STRUCTURE = {"_name_or_path", "architectures", "dtype", "torch_dtype", "transformers_version"}

# Maximum length of a network without a limit, in tokens.
_UNLIMITED = 1 << 30

# Entries of a configuration that refer to code or to another network.
_REFERENCES = (
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

# Implementations in transformers and torch; transformers downloads any other name from the hub.
_IMPLEMENTATIONS = (None, "eager", "sdpa", "flex_attention", "batched_mm", "grouped_mm")

# The head of a network: none, of a classifier, or of a language model.
Head = Literal["none", "labels", "logits"]
_LOADERS = {
    "none": "AutoModel",
    "labels": "AutoModelForSequenceClassification",
    "logits": "AutoModelForCausalLM",
}

# Configuration of an adapter of peft, such as LoRA.
ADAPTER = "adapter_config.json"

_MAX_LAYERS = 4096
_MAX_DEPTH = 20


class OpenedNetwork(NamedTuple):
    """A network of ``transformers`` with its weights."""

    network: Any  # fp32, in evaluation mode
    tokenizer: Any  # of ``transformers``, with a ``backend_tokenizer``
    max_tokens: int  # maximum length of a text, as configured
    positions: int  # maximum length of a text that the network can read
    causal: bool  # the state of a token does not depend on later tokens


def network_library() -> Any:
    """Import the ``transformers`` package."""
    return require("transformers", purpose="a pretrained encoder", extra="transformers")


def check_name(where: str, name: str) -> None:
    """Raise unless a name is given, its folder exists and ``transformers`` is installed."""
    if not name:
        raise InputError(where, position="encoder.name", value=name, expected=EXPECTED)
    if (name[0] in "/.~" or name.count("/") > 1) and not Path(name).is_dir():
        raise InputError(
            where, position=f"encoder.name: {name}", problem="folder not found", expected=EXPECTED
        )
    check_installed("transformers", purpose=f"encoder.name {name!r}", extra="transformers")


def open_network(
    name: str,
    *,
    head: Head = "none",
    config_args: Mapping[str, Any] | None = None,
    tokenizer_args: Mapping[str, Any] | None = None,
) -> OpenedNetwork:
    """Load a network of ``transformers`` with a head; raise if a weight is missing.

    Args:
        name: its folder, or its name on the hub.
        head: the head of the network.
        config_args: entries that replace those of its configuration.
        tokenizer_args: arguments of its tokenizer.
    """
    transformers = network_library()
    loader = getattr(transformers, _LOADERS[head])
    if is_remote(name):
        raise InputError(name, problem="a URL", expected=EXPECTED)
    if Path(name, ADAPTER).is_file():
        # transformers ignores an adapter where peft is not installed.
        expected = "merged weights: save the model after merge_and_unload() of peft"
        raise InputError(Path(name, ADAPTER), problem="an adapter", expected=expected)
    where = name
    try:
        entries, _ = transformers.PretrainedConfig.get_config_dict(name)
        check_network_config(name, without_code(entries), "config.json")
        where = f"{name}/config.json"
        config = transformers.AutoConfig.from_pretrained(name, **SAFELY)
        if config_args:
            _check_config_args(name, config_args, config)
            config = transformers.AutoConfig.from_pretrained(name, **config_args, **SAFELY)
        if Path(name, "tokenizer.json").is_file():
            read_tokenizer(Path(name, "tokenizer.json"))
        where = f"{name}/tokenizer_config.json"
        more = {"use_fast": True, **(tokenizer_args or {}), **SAFELY}
        tokenizer = transformers.AutoTokenizer.from_pretrained(name, **more)
        has_tokenizer_file = _has_tokenizer_file(transformers, name, tokenizer)
        if getattr(tokenizer, "backend_tokenizer", None) is not None:
            check_encodes(tokenizer.backend_tokenizer)
        where = f"{name}/model.safetensors"
        model, loading = loader.from_pretrained(name, config=config, output_loading_info=True, **SAFELY)
        network = (bare_encoder(model) if head == "none" else model).eval()
        used_weights = {id(weight) for weight in network.state_dict(keep_vars=True).values()}
        causal = _is_causal(network) if head == "none" else head == "logits"
    except InputError:
        raise
    except Exception as error:  # networks, the hub and file formats can raise anything
        # The lines after the first have the value of a wrong field.
        problem = str(error) if "Validation error" in str(error) else first_line(error)
        raise InputError(where, problem=problem, expected=EXPECTED) from error
    weights = model.state_dict(keep_vars=True)
    missing = [key for key in sorted(loading["missing_keys"]) if id(weights.get(key)) in used_weights]
    if missing:
        # The library would initialize missing weights at random.
        raise InputError(name, problem=f"no weights {missing[0]}", expected="all weights of the network")
    if not has_tokenizer_file:
        # The library would construct a tokenizer without a vocabulary.
        raise InputError(name, problem="no tokenizer.json", expected="a network with its tokenizer")
    if getattr(tokenizer, "backend_tokenizer", None) is None:
        raise InputError(name, value=type(tokenizer).__name__, expected="a network with a tokenizer.json")
    network = network.float()
    check_ids(name, tokenizer.backend_tokenizer, network)
    is_set = "model_max_length" in (tokenizer_args or {})
    limits = _limits(name, tokenizer, network, pair=head == "labels", is_set=is_set)
    return OpenedNetwork(network, tokenizer, *limits, causal)


def check_ids(name: str, tokenizer: Any, network: Any) -> None:
    """Raise unless a network has an embedding per token id, and per token type if it has several types."""
    rows = network.get_input_embeddings().weight.shape[0]
    types = getattr(network.config, "type_vocab_size", 0)
    encodings = [tokenizer.encode("a"), tokenizer.encode("a", "a")]
    special = [token for encoding in encodings for token in encoding.ids]
    largest = max([*tokenizer.get_vocab().values(), *special])
    if largest >= rows:
        expected = f"ids below {rows}, as the network has embeddings"
        raise InputError(name, position="tokenizer.json", problem=f"token id {largest}", expected=expected)
    largest = max((kind for encoding in encodings for kind in encoding.type_ids), default=0)
    if 1 < types <= largest:
        expected = f"types below {types}, as the network has embeddings"
        raise InputError(name, position="tokenizer.json", problem=f"token type {largest}", expected=expected)


def _limits(name: str, hf_tokenizer: Any, network: nn.Module, *, pair: bool, is_set: bool) -> tuple[int, int]:
    """Return the maximum length of a text, as configured, and as the positions of the network allow.

    A length in the options of a checkpoint (``is_set``) may exceed the one in the network's configuration.
    """
    least = hf_tokenizer.num_special_tokens_to_add(pair) + (2 if pair else 1)
    declared, positions = hf_tokenizer.model_max_length, max_positions(network)
    if not isinstance(declared, int | float) or isinstance(declared, bool) or not declared >= least:
        position = "max_seq_length" if is_set else "tokenizer_config.json: model_max_length"
        expected = f"a number of tokens from {least}, special tokens included"
        raise InputError(name, position=position, value=declared, expected=expected)
    if positions < least:
        expected = f"at least {least}, special tokens included"
        raise InputError(name, problem=f"texts of up to {positions} tokens", expected=expected)
    config: Any = network.config
    # Rotary and relative positions have no table that ends.
    is_relative = bool(getattr(config, "rope_parameters", None)) or not getattr(
        config, "position_biased_input", True
    )
    longest = _UNLIMITED if is_relative else positions
    return int(min(declared, longest if is_set else positions)), longest


def _check_config_args(name: str, config_args: Mapping[str, Any], config: Any) -> None:
    """Raise unless the configuration of a network has all entries that are replaced, and they are safe."""
    check_network_config(name, without_code(config_args), "config_args")
    names = {*config.to_dict(), *type(config).attribute_map}
    for key, value in config_args.items():
        if key not in names:
            expected = f"an entry of the configuration of {config.model_type}"
            raise InputError(name, position=f"config_args/{key}", value=value, expected=expected)


def bare_encoder(network: Any) -> Any:
    """Return the encoder of a network, without decoder, pooler and cache."""
    if isinstance(getattr(network, "decoder", None), nn.Module) and hasattr(network, "encoder"):
        network = network.get_encoder()
    if isinstance(getattr(network, "pooler", None), nn.Module):
        network.pooler = None
    network.config.use_cache = False
    return network


def structure_of(network: Any) -> dict[str, Any]:
    """Return the configuration of a network, without entries that do not affect its structure."""
    config = without_code(json.loads(network.config.to_json_string(use_diff=False)))
    return {key: value for key, value in config.items() if key not in _NOT_STRUCTURE}


def new_network(config: dict[str, Any], name: str = "", head: Head = "none") -> Any:
    """Build a network from the result of ``structure_of``, with new weights; ``name`` is for errors."""
    transformers = network_library()
    kind = config.get("model_type")
    check_network_config(name or str(kind), config)
    try:
        network_config = transformers.AutoConfig.for_model(**config)
        network = getattr(transformers, _LOADERS[head]).from_config(network_config, trust_remote_code=False)
        return bare_encoder(network) if head == "none" else network
    except Exception as error:  # a damaged configuration can raise anything
        raise AptoolError(
            f"model_type {shortened(kind)}: transformers cannot build this network: "
            f"{one_line(first_line(error))}"
        ) from error


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
    """Whether the first state of a text is independent of the next tokens."""
    rows = network.get_input_embeddings().weight.shape[0]
    ids = torch.tensor([[1, 2, 3, 4], [1, 5, 6, 7]]) % rows
    states = network(input_ids=ids, attention_mask=torch.ones_like(ids), return_dict=True).last_hidden_state
    return torch.equal(states[0, 0], states[1, 0])


def check_network_config(where: str | Path, config: Any, position: str = "backbone/network") -> None:
    """Raise if a configuration refers to code or to another network, or has too many layers."""
    if position.count("/") > _MAX_DEPTH:
        expected = "a network's configuration"
        raise InputError(where, position=position, problem="nested too deeply", expected=expected)
    for name, value in enumerate(config) if isinstance(config, list | tuple) else config.items():
        key = str(name)
        path = f"{position}/{key}"
        if key in _REFERENCES and value:
            expected = "no such entry: code and other networks are not loaded"
            raise InputError(where, position=path, value=value, expected=expected)
        if "_implementation" in key and value not in _IMPLEMENTATIONS:
            expected = f"one of {', '.join(str(name) for name in _IMPLEMENTATIONS if name)}"
            raise InputError(where, position=path, value=value, expected=expected)
        if key == "model_type" and str(value).startswith("timm"):
            raise InputError(where, position=path, value=value, expected="a network for text")
        if "layer" in key and isinstance(value, int) and value > _MAX_LAYERS:
            raise InputError(where, position=path, value=value, expected=f"at most {_MAX_LAYERS}")
        if isinstance(value, dict | list | tuple):
            check_network_config(where, value, path)


def without_code(config: Any) -> Any:
    """Copy a configuration without references to the model's code."""
    if isinstance(config, dict):
        return {key: without_code(value) for key, value in config.items() if key != "auto_map"}
    if isinstance(config, list):
        return [without_code(value) for value in config]
    return config
