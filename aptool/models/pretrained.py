"""What comes from outside: a pretrained network and its tokenizer, from a folder or the Hugging Face hub.

The ``transformers`` package is an extra, and is imported when a network is asked for.
"""

import json
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from aptool.errors import InputError, first_line
from aptool.text.optional import SAFELY, check_installed, require
from aptool.text.subwords import SubwordTokenizer

WANTED = "the folder of a pretrained network, or its name on the Hugging Face hub"

# Where a network came from, and in what its weights were kept.
_NOT_STRUCTURE = {"_name_or_path", "architectures", "dtype", "torch_dtype", "transformers_version"}

# Positions of a network that has no end of them.
_ENDLESS = 1 << 30


class Pretrained(NamedTuple):
    """A network as it was found."""

    tokenizer: SubwordTokenizer
    config: dict[str, Any]  # all that its structure follows from
    weights: dict[str, Tensor]
    size: int  # c, features of a state
    longest: int  # tokens of the longest text that it takes
    causal: bool  # reads from left to right: a state knows nothing of the tokens behind its own


def network_library() -> Any:
    """``transformers``, for networks to train and score with.

    Raises:
        AptoolError: it is not installed.
    """
    return require("transformers", purpose="a pretrained encoder", extra="transformers")


def check_named(where: str, name: str) -> None:
    """Finds out before any work whether a network can be had.

    Raises:
        AptoolError: ``transformers`` is not installed.
        InputError: no network is named, or a folder that is not there.
    """
    if not name:
        raise InputError(where, place="encoder.name", value=name, expected=WANTED)
    if (name[0] in "/.~" or name.count("/") > 1) and not Path(name).is_dir():
        raise InputError(where, place="encoder.name", value=name, expected=f"{WANTED}: no such folder")
    check_installed("transformers", purpose=f"encoder.name {name!r}", extra="transformers")


def read_pretrained(name: str, layers: int = 0) -> Pretrained:
    """Loads a network and its tokenizer from a folder or the hub; no code that comes with one is run.

    Args:
        name: of the folder, or on the hub.
        layers: those to keep, from the first on; 0 keeps all.

    Raises:
        AptoolError: ``transformers`` is not installed.
        InputError: there is no such network, or it is not one that gives states to the tokens of a text.
    """
    transformers = network_library()
    try:
        config = transformers.AutoConfig.from_pretrained(name, **SAFELY)
        had = config.num_hidden_layers
        _cut(config, min(layers, had) if layers else had)
        tokenizer = transformers.AutoTokenizer.from_pretrained(name, use_fast=True, **SAFELY)
        split = _tokenizer_file(transformers, name, tokenizer)
        whole, found = transformers.AutoModel.from_pretrained(
            name, config=config, output_loading_info=True, **SAFELY
        )
        network = bare(whole).eval()
        own = {id(weight) for weight in network.state_dict(keep_vars=True).values()}
        causal = _causal(network)
    except Exception as error:  # whatever a network, a hub and several file formats can raise
        raise InputError(name, problem=first_line(error), expected=WANTED) from error
    every = whole.state_dict(keep_vars=True)
    lacking = [one for one in sorted(found["missing_keys"]) if id(every.get(one)) in own]
    if lacking:
        # The library would begin them at random.
        raise InputError(name, problem=f"no {lacking[0]}", expected="all weights of the network")
    if layers > had:
        raise InputError(name, place="encoder.layers", value=layers, expected=f"at most {had}")
    if not split:
        # The library would make up one that knows no word.
        raise InputError(name, problem="no tokenizer.json", expected="a network with its tokenizer")
    if getattr(tokenizer, "backend_tokenizer", None) is None:
        raise InputError(name, value=type(tokenizer).__name__, expected="a network with a tokenizer.json")
    network = network.float()
    pieces = SubwordTokenizer(tokenizer.backend_tokenizer)
    rows = network.get_input_embeddings().weight.shape[0]
    if len(pieces) > rows:
        raise InputError(
            name, problem=f"{len(pieces)} tokens", expected=f"no more than its {rows} embeddings"
        )
    described = json.loads(network.config.to_json_string(use_diff=False))
    kept = {key: value for key, value in described.items() if key not in _NOT_STRUCTURE}
    weights = {key: value.detach().clone() for key, value in network.state_dict().items()}
    longest = min(tokenizer.model_max_length, positions(network))
    return Pretrained(pieces, kept, weights, network.config.hidden_size, longest, causal)


def bare(network: Any) -> Any:
    """The part of a network that reads: no decoder, nothing on top of the states."""
    if isinstance(getattr(network, "decoder", None), nn.Module) and hasattr(network, "encoder"):
        network = network.get_encoder()
    if isinstance(getattr(network, "pooler", None), nn.Module):
        network.pooler = None
    network.config.use_cache = False
    return network


def positions(network: nn.Module) -> int:
    """Tokens of the longest text that a network has positions for, padding among them."""
    said = getattr(network.config, "max_position_embeddings", None) or 0
    if said < 1:
        return _ENDLESS
    for part in network.modules():
        if isinstance(part, nn.Embedding) and part.num_embeddings == said and part.padding_idx is not None:
            return int(said - part.padding_idx - 1)  # positions count from behind that of padding
    return int(said)


def _cut(config: Any, layers: int) -> None:
    """Has a network made with its first layers alone; what a config says of each layer goes with them."""
    had = config.num_hidden_layers
    if layers == had:
        return
    for key, value in config.to_dict().items():
        if isinstance(value, list) and len(value) == had:
            setattr(config, key, value[:layers])
    config.num_hidden_layers = layers


def _tokenizer_file(transformers: Any, name: str, tokenizer: Any) -> bool:
    """Whether the tokenizer that was found for a network is one that came with it."""
    files = dict.fromkeys(["tokenizer.json", *tokenizer.vocab_files_names.values()])
    there = (
        transformers.utils.cached_file(name, file, _raise_exceptions_for_missing_entries=False)
        for file in files
    )
    return any(path is not None for path in there)


@torch.no_grad()
def _causal(network: Any) -> bool:
    """Whether the first state of a text is the same whatever comes behind the first token."""
    rows = network.get_input_embeddings().weight.shape[0]
    ids = torch.tensor([[1, 2, 3, 4], [1, 5, 6, 7]]) % rows
    states = network(input_ids=ids, attention_mask=torch.ones_like(ids), return_dict=True).last_hidden_state
    return torch.equal(states[0, 0], states[1, 0])
