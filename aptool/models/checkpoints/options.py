"""sentence_bert_config.json: the options of the network of a checkpoint and of its texts."""

from pathlib import Path
from typing import Any, NamedTuple

from aptool.errors import InputError
from aptool.models.checkpoints.files import (
    MODULES,
    Layout,
    optional_object,
    positive_integer,
)
from aptool.models.checkpoints.keys import UnsupportedError, check_keys
from aptool.models.pretrained import check_network_config

OPTIONS = "sentence_bert_config.json"

# Names of the file, the first that is not empty counts; older versions named it after the network.
_FILES = (
    OPTIONS,
    *(
        f"sentence_{network}_config.json"
        for network in ("roberta", "distilbert", "camembert", "albert", "xlm-roberta", "xlnet")
    ),
)

# Earlier names of arguments, which precede the later ones.
_ARGUMENTS = (
    ("model_args", "model_kwargs"),
    ("tokenizer_args", "processor_kwargs"),
    ("config_args", "config_kwargs"),
)
_SECTIONS = ("common", "text", "audio", "image", "video", "chat_template")


class NetworkOptions(NamedTuple):
    """The options of a network and of its texts."""

    path: Path  # the file, for errors
    entries: dict[str, Any]  # all entries
    config_args: dict[str, Any]
    tokenizer_args: dict[str, Any]
    texts: dict[str, Any]  # arguments of the tokenizer's call
    layer: int | None  # index of the hidden states to pool; None: the last states

    @property
    def special(self) -> bool:
        """Whether the network reads special tokens."""
        return bool(self.texts.get("add_special_tokens", True))

    @property
    def max_length(self) -> int | None:
        """The maximum length of all texts, in tokens; None if it is not set here."""
        return self.texts.get("max_length")


def read_options(layout: Layout, kind: str) -> NetworkOptions:
    """Read the options of a checkpoint's network; raise for options that are not implemented."""
    paths = [layout.transformer / name for name in _FILES]
    path = next((path for path in paths if optional_object(path)), paths[0])
    entries = optional_object(path)
    if entries and layout.modules is None:
        expected = f"{MODULES}, without which sentence-transformers does not read {path.name}"
        raise InputError(layout.folder / MODULES, problem="file not found", expected=expected)
    check_keys(path, f"{OPTIONS} of {kind}", entries)
    arguments = []
    for names in _ARGUMENTS:
        name = next((name for name in names if name in entries), names[0])
        table = entries.get(name) or {}
        if not isinstance(table, dict):
            raise InputError(path, position=name, value=table, expected="arguments by name")
        arguments.append(dict(table))
        if names[0] != "config_args":
            check_keys(path, ", ".join(names), table, f"{name}/")
    model_args, tokenizer_args, config_args = arguments
    check_network_config(path, {"model_args": model_args}, "model_args")
    for table in (tokenizer_args, config_args):
        table.pop("trust_remote_code", None)
    if entries.get("max_seq_length") is not None:
        longest = positive_integer(path, entries, "max_seq_length", 0)
        tokenizer_args.setdefault("model_max_length", longest)
    layer = _read_layer(path, entries, kind)
    return NetworkOptions(path, entries, config_args, tokenizer_args, _text_arguments(path, entries), layer)


def _text_arguments(path: Path, entries: dict[str, Any]) -> dict[str, Any]:
    """Return the arguments of the tokenizer's call for a text."""
    sections = entries.get("processing_kwargs") or {}
    if not isinstance(sections, dict) or not all(isinstance(table, dict) for table in sections.values()):
        raise InputError(path, position="processing_kwargs", value=sections, expected="options per modality")
    texts: dict[str, Any] = {}
    for name in sections:
        if name not in _SECTIONS:
            expected = f"one of {', '.join(_SECTIONS)}"
            raise InputError(path, position="processing_kwargs", value=name, expected=expected)
    for name in ("text", "common"):  # the second precedes the first
        table, position = sections.get(name, {}), f"processing_kwargs/{name}/"
        check_keys(path, "processing_kwargs, text and common", table, position)
        if table.get("max_length") is not None:
            positive_integer(path, table, "max_length", 0)
        texts |= table
    return texts


def _read_layer(path: Path, entries: dict[str, Any], kind: str) -> int | None:
    """Check the output of the network that is read; return the index of hidden states, if it is one."""
    modalities = entries.get("modality_config")
    if modalities is None or kind == "causal-lm":
        return None
    if not isinstance(modalities, dict) or "module_output_name" not in entries:
        expected = "outputs by modality, and module_output_name"
        raise InputError(path, position="modality_config", value=modalities, expected=expected)
    output = "logits" if kind == "cross-encoder" else "last_hidden_state"
    for name, entry in modalities.items():
        if name == "message" and kind == "cross-encoder":
            continue  # the pair has a chat template
        position = f"modality_config/{name}"
        if name != "text":
            expected = "only text: aptool renders no chat template for a sentence encoder"
            raise UnsupportedError(path, position=position, value=entry, expected=expected)
        table: dict[str, Any] = entry if isinstance(entry, dict) else {}
        source = table.get("method_output_name")
        names = source if isinstance(source, list) else [source]
        if table.get("method") == "forward" and names == [output]:
            continue
        layer = names[1] if len(names) == 2 and names[0] == "hidden_states" else None
        if table.get("method") != "forward" or output == "logits" or type(layer) is not int:
            expected = f"{output} of forward, or [hidden_states, INDEX]"
            raise UnsupportedError(path, position=position, value=entry, expected=expected)
        return layer
    return None
