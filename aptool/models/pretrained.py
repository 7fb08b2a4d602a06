"""Pretrained networks and their tokenizers, from a folder or the Hugging Face hub. No code of a model runs.

The ``transformers`` package is an optional extra and is imported only when a network is loaded.
"""

import json
from pathlib import Path
from typing import Any, NamedTuple

from torch import nn

from aptool.documents import read_json
from aptool.environment import check_installed, require
from aptool.errors import AptoolError, InputError, first_line, one_line, shortened
from aptool.models.hub import CONFIG, MODULES
from aptool.text.tokenizer import RARE, SubwordTokenizer

EXPECTED = "the folder of a pretrained network, or its name on the Hugging Face hub"

# Otherwise transformers asks the user whether to run code that comes with a network.
_SAFELY = {"trust_remote_code": False}

# Entries of a configuration that do not affect the structure of the network.
_NOT_STRUCTURE = {
    *("_name_or_path", "architectures", "auto_map", "dtype", "torch_dtype", "transformers_version"),
}

# The modules of a sentence encoder that a network is trained from.
_TRAINED = (["Transformer", "Pooling"], ["Transformer", "Pooling", "Normalize"])

# Maximum length of a network without a limit, in tokens.
_UNLIMITED = 1 << 30

# Configuration of an adapter of peft, such as LoRA.
_ADAPTER = "adapter_config.json"


class OpenedNetwork(NamedTuple):
    """A network of ``transformers`` with its weights."""

    name: str  # folder, or name on the hub
    network: Any  # fp32, in evaluation mode
    tokenizer: SubwordTokenizer
    max_tokens: int  # maximum length of a text


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


def open_network(name: str) -> OpenedNetwork:
    """Load a network without head, given its folder or its name on the hub.

    Raises:
        InputError: a weight is missing, or the folder has a sentence encoder with other modules than a
            network, mean pooling and normalization.
    """
    transformers = network_library()
    if "://" in name:
        raise InputError(name, problem="a URL", expected=EXPECTED)
    if Path(name, _ADAPTER).is_file():
        # transformers ignores an adapter where peft is not installed.
        expected = "merged weights: save the model after merge_and_unload() of peft"
        raise InputError(Path(name, _ADAPTER), problem="an adapter", expected=expected)
    try:
        options: dict[str, Any] = {"subfolder": _subfolder(transformers, name), **_SAFELY}
        config = transformers.AutoConfig.from_pretrained(name, **options)
        tokenizer = transformers.AutoTokenizer.from_pretrained(name, use_fast=True, **options)
        model, loading = transformers.AutoModel.from_pretrained(
            name, config=config, output_loading_info=True, use_safetensors=True, **options
        )
        network = bare_encoder(model).eval()
        weights = model.state_dict(keep_vars=True)
        used_weights = {id(weight) for weight in network.state_dict(keep_vars=True).values()}
        missing = [key for key in sorted(loading["missing_keys"]) if id(weights.get(key)) in used_weights]
        if missing:
            # The library would initialize missing weights at random.
            raise InputError(name, problem=f"no weights {missing[0]}", expected="all weights of the network")
        files = dict.fromkeys(["tokenizer.json", *tokenizer.vocab_files_names.values()])
        if not any(_cached(transformers, name, file, options["subfolder"]) for file in files):
            # The library would construct a tokenizer without a vocabulary.
            raise InputError(name, problem="no tokenizer.json", expected="a network with its tokenizer")
        backend = getattr(tokenizer, "backend_tokenizer", None)
        if backend is None:
            raise InputError(name, value=type(tokenizer).__name__, expected="a network with a tokenizer.json")
        network = network.float()
        _check_ids(name, backend, network)
        limit = int(min(tokenizer.model_max_length, max_positions(network)))
        return OpenedNetwork(name, network, SubwordTokenizer(backend), limit)
    except InputError:
        raise
    except Exception as error:  # networks, the hub and file formats can raise anything
        # The lines after the first have the value of a wrong field.
        problem = str(error) if "Validation error" in str(error) else first_line(error)
        raise InputError(name, problem=problem, expected=EXPECTED) from error


def _subfolder(transformers: Any, name: str) -> str:
    """Return the folder of the network in that of a sentence encoder; raise for one with other modules."""
    modules: Any = _read_cached(transformers, name, MODULES)
    if modules is None:
        return ""
    kinds = [str(module["type"]).rpartition(".")[2] for module in modules]
    pooling: Any = {}
    if "Pooling" in kinds:
        path = modules[kinds.index("Pooling")]["path"]
        pooling = _read_cached(transformers, name, f"{path}/{CONFIG}") or {}
    modes = pooling.get("pooling_mode") or [
        key.removeprefix("pooling_mode_").removesuffix("_tokens")
        for key, value in pooling.items()
        if key.startswith("pooling_mode_") and value
    ]
    if kinds not in _TRAINED or modes not in ("mean", ["mean"], []):
        problem = f"modules {', '.join(kinds)}" + (f" with pooling {modes}" if modes else "")
        raise InputError(name, problem=problem, expected="a network with mean pooling, and normalization")
    return str(modules[0]["path"])


def _read_cached(transformers: Any, name: str, file: str) -> Any:
    """Read a JSON file of a folder or of the hub; None if it is missing."""
    path = _cached(transformers, name, file)
    return None if path is None else read_json(path)


def _cached(transformers: Any, name: str, file: str, subfolder: str = "") -> str | None:
    """Return the path of a file of a folder or of the hub; None if it is missing."""
    try:
        path: str = transformers.utils.cached_file(name, file, subfolder=subfolder)
    except OSError:  # file not found
        return None
    return path


def _check_ids(name: str, tokenizer: Any, network: Any) -> None:
    """Raise unless a network has an embedding per token id."""
    rows = network.get_input_embeddings().weight.shape[0]
    largest = max([*tokenizer.get_vocab().values(), *tokenizer.encode(RARE).ids])
    if largest >= rows:
        expected = f"ids below {rows}, as the network has embeddings"
        raise InputError(name, position="tokenizer.json", problem=f"token id {largest}", expected=expected)


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
    config = json.loads(network.config.to_json_string(use_diff=False))
    return {key: value for key, value in config.items() if key not in _NOT_STRUCTURE}


def new_network(config: dict[str, Any]) -> Any:
    """Build a network from the result of ``structure_of``, with new weights."""
    transformers = network_library()
    try:
        network_config = transformers.AutoConfig.for_model(**config)
        return bare_encoder(transformers.AutoModel.from_config(network_config, **_SAFELY))
    except Exception as error:  # a damaged configuration can raise anything
        raise AptoolError(
            f"model_type {shortened(config.get('model_type'))}: transformers cannot build this network: "
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
