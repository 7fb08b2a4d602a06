"""The configuration of a pretrained network, checked before the library that builds networks reads it.

A configuration can name code to download and run: a module of its own (``auto_map``), an attention kernel of
the hub, another network to load. Model folders may come from anywhere, so none of these is accepted.
"""

from pathlib import Path
from typing import Any

from aptool.errors import InputError

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

    Raises:
        InputError: an entry could lead to code that is not of transformers itself, or to another network, or
            the number of layers is absurd.
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
