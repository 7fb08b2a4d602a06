"""Files of a checkpoint: its folder, or its name on the hub; JSON and small weights, read with limits."""

from pathlib import Path
from typing import Any, Literal, NamedTuple, get_args

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor, nn

from aptool.documents import read_json
from aptool.errors import AptoolError, InputError, UsageError
from aptool.formats.location import Location, PathOrUrl, location
from aptool.formats.urls import is_object_url
from aptool.models import hub
from aptool.models.pretrained import check_network_config

# Files of a checkpoint that are fetched from the hub: no code and no pickles.
_WANTED = ("*.json", "*.safetensors", "*.txt", "*.model", "artifact.metadata")

EXPECTED = "a file of the checkpoint, in JSON"

CONFIG = "config.json"
WEIGHTS = "model.safetensors"


def find_folder(name: PathOrUrl) -> Location:
    """The folder of a model: as given, or where the hub's files of that name are kept on this machine."""
    if is_object_url(name):
        return location(name)
    url = _hub_url(name)
    if url is not None:
        return hub.local_folder(url, _WANTED)
    text = str(name)
    if Path(text).is_dir():
        return Path(text)
    if Path(text).exists():
        raise InputError(text, problem="a file", expected="the folder of a model")
    raise AptoolError(
        f"{text}: folder not found; expected a model "
        f"(`aptool train COLLECTION --output {text}` trains one), or a name on the Hugging Face hub"
    )


def pinned_name(name: PathOrUrl) -> str:
    """Return a model's name on every node: its folder, or its URL on the hub at this machine's commit."""
    folder, url = find_folder(name), _hub_url(name)
    return str(folder) if url is None else hub.pinned(url, Path(str(folder)))


def _hub_url(name: PathOrUrl) -> str | None:
    text = str(name)
    if hub.is_url(text):
        return text
    return f"hf://{text}" if is_hub_name(text) and not Path(text).is_dir() else None


def is_hub_name(name: str) -> bool:
    """Whether a name can be one of the hub, ``OWNER/NAME``, and is no path in a folder that exists.

    ``models`` is no owner, but the folder that ``aptool train`` writes to.
    """
    owner, slash, rest = name.partition("/")
    is_pair = bool(slash and rest and "/" not in rest)
    return is_pair and owner not in ("", ".", "..", "~", "models") and not Path(owner).exists()


def read_object(path: Path) -> dict[str, Any]:
    """The object in a JSON file."""
    found = read_json(path, EXPECTED)
    if not isinstance(found, dict):
        raise InputError(path, value=found, expected="a JSON object")
    return found


def optional_object(path: Path) -> dict[str, Any]:
    """The object in a JSON file; an empty one if there is no such file."""
    return read_object(path) if path.is_file() else {}


def shapes(path: Path) -> dict[str, list[int]]:
    """The shape of each tensor in a safetensors file, from its header."""
    if not path.is_file():
        wanted = "weights in a safetensors file; pickled ones are not read"
        raise InputError(path, problem="file not found", expected=wanted)
    try:
        with safe_open(path, framework="pt") as file:
            return {name: file.get_slice(name).get_shape() for name in file.keys()}  # noqa: SIM118
    except (SafetensorError, OSError) as error:
        raise InputError(path, problem=str(error), expected="a safetensors file") from error


def read_tensor(path: Path, name: str) -> Tensor:
    """A tensor of a safetensors file."""
    if name not in shapes(path):
        raise InputError(path, place=name, problem="missing", expected="the weights of the checkpoint")
    with safe_open(path, framework="pt") as file:
        tensor: Tensor = file.get_tensor(name)
    if tensor.is_floating_point():
        tensor = tensor.float()
        if not torch.isfinite(tensor).all():
            raise InputError(path, place=name, problem="NaN or infinite", expected="finite weights")
    return tensor


def fill(module: nn.Module, path: Path) -> None:
    """Loads all weights of a module from a safetensors file, by their names."""
    found = shapes(path)
    for name, weight in module.state_dict().items():
        if name not in found:
            raise InputError(path, place=name, problem="missing", expected="the weights of the checkpoint")
        if found[name] != list(weight.shape):
            expected = f"shape {list(weight.shape)}, as its {CONFIG} says"
            raise InputError(path, place=name, value=found[name], expected=expected)
    module.load_state_dict({name: read_tensor(path, name) for name in module.state_dict()})


def checked_shape(path: Path, name: str, expected: list[int]) -> None:
    """Compares the shape of a tensor with what a configuration says, before a module is built for it."""
    found = shapes(path).get(name)
    if found != expected:
        wanted = f"shape {expected}, as its {CONFIG} says"
        raise InputError(path, place=name, value=found, expected=wanted)


Kind = Literal["aptool", "sentence-transformers", "cross-encoder", "colbert", "static"]
KINDS: tuple[str, ...] = get_args(Kind)

# A network without a head and without modules: sentence-transformers takes the mean of its states.
NETWORK = "a network without head"

MODULES = "modules.json"
ABOUT = "config_sentence_transformers.json"

# The modules that are read, by the last part of their names; others are code that comes with a model.
_KNOWN = (
    *("Transformer", "Pooling", "Normalize", "Dense", "LayerNorm", "Dropout"),
    *("StaticEmbedding", "MultiVectorMask"),
)
_LIBRARIES = ("sentence_transformers.", "pylate.")

# ``model_type`` in ``config_sentence_transformers.json``.
_MODEL_TYPES: dict[str, Kind] = {
    "CrossEncoder": "cross-encoder",
    "ColBERT": "colbert",
    "MultiVectorEncoder": "colbert",
}

# Entries of that file that only PyLate writes.
_PYLATE = ("query_prefix", "document_prefix", "do_query_expansion", "attend_to_expansion_tokens")


class Module(NamedTuple):
    """One of the modules of a folder.

    Attributes:
        kind: the last part of its class's name, such as ``Pooling``.
        folder: the folder of its files.
        config: its configuration; empty where it has none.
    """

    kind: str
    folder: Path
    config: dict[str, Any]


class Layout(NamedTuple):
    """What a folder says of itself.

    Attributes:
        folder: the folder.
        config: its ``config.json``; empty where it has none.
        about: its ``config_sentence_transformers.json``; likewise.
        modules: the modules that ``modules.json`` lists; None where there is no such file.
    """

    folder: Path
    config: dict[str, Any]
    about: dict[str, Any]
    modules: list[Module] | None

    @property
    def transformer(self) -> Path:
        """The folder of the network."""
        return self.modules[0].folder if self.modules else self.folder

    def named(self, kind: str) -> list[Module]:
        """The modules of a kind, in order."""
        return [module for module in self.modules or [] if module.kind == kind]


def read_layout(folder: Path) -> Layout:
    """Reads what a folder says of itself."""
    modules = _read_modules(folder) if (folder / MODULES).is_file() else None
    return Layout(folder, optional_object(folder / CONFIG), optional_object(folder / ABOUT), modules)


def kind_of(layout: Layout, asked: str = "auto") -> Kind:
    """Which kind of model a folder holds.

    Args:
        layout: the folder.
        asked: the kind that the user says it is; ``auto`` finds out.
    """
    if asked not in ("auto", *KINDS):
        raise UsageError(f"kind {asked!r}: expected one of auto, {', '.join(KINDS)}")
    candidates = _candidates(layout)
    if asked != "auto" and not (asked == "sentence-transformers" and candidates == [NETWORK]):
        if asked not in candidates:
            has = " and ".join(candidates) or "no model"
            raise InputError(layout.folder, problem=f"{has} here", expected=f"a model of kind {asked}")
        candidates = [asked]
    if len(candidates) == 1:
        found: Any = candidates[0]
        return "sentence-transformers" if found == NETWORK else found
    if candidates:
        problem, wanted = f"two models here: {' and '.join(candidates)}", "one, or --kind to say which"
        raise InputError(layout.folder, problem=problem, expected=wanted)
    inside = sorted(path.name for path in layout.folder.iterdir() if _is_model(path))
    problem = f"{len(inside)} models here: {', '.join(inside)}" if inside else "no model here"
    raise InputError(layout.folder, problem=problem, expected="the folder of one model")


def _is_model(folder: Path) -> bool:
    return any((folder / name).is_file() for name in (CONFIG, MODULES))


def _candidates(layout: Layout) -> list[str]:
    """The kinds of models that a folder holds."""
    if layout.config.get("model_type") == "aptool":
        return ["aptool"]  # written for other libraries too, but it is one model
    named = layout.about.get("model_type")
    if isinstance(named, str) and named in _MODEL_TYPES:
        return [_MODEL_TYPES[named]]
    if named not in (None, "SentenceTransformer"):
        wanted = f"a model of kind {', '.join(KINDS)}"
        raise InputError(layout.folder / ABOUT, place="model_type", value=named, expected=wanted)
    architectures = layout.config.get("architectures") or [""]
    if not isinstance(architectures, list):
        where, expected = layout.folder / CONFIG, "a list of names"
        raise InputError(where, place="architectures", value=architectures, expected=expected)
    architecture = str(architectures[0])
    found: list[str] = []
    if layout.modules is not None:
        if layout.named("StaticEmbedding"):
            found.append("static")
        elif layout.named("MultiVectorMask") or any(name in layout.about for name in _PYLATE):
            found.append("colbert")
        else:
            found.append("sentence-transformers")
    elif architecture == "HF_ColBERT":
        found.append("colbert")
    elif layout.config.get("model_type") == "model2vec" or architecture == "StaticModel":
        found.append("static")
    if architecture.endswith("ForSequenceClassification"):
        found.append("cross-encoder")
    if not found and layout.config.get("model_type"):
        found.append(NETWORK)
    return found


def _read_modules(folder: Path) -> list[Module]:
    """The modules that ``modules.json`` lists."""
    path = folder / MODULES
    entries = read_json(path, EXPECTED)
    if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries) or not entries:
        raise InputError(path, value=entries, expected="a list of modules")
    modules = []
    for number, entry in enumerate(entries):
        name, place = str(entry.get("type")), f"module {number}"
        kind = name.rpartition(".")[2]
        if not name.startswith(_LIBRARIES) or kind not in _KNOWN:
            wanted = f"one of {', '.join(_KNOWN)} of sentence-transformers; no code of a model is run"
            raise InputError(path, place=f"{place}: type", value=name, expected=wanted)
        own = folder / str(entry.get("path", ""))
        if not own.resolve().is_relative_to(folder.resolve()):
            raise InputError(path, place=f"{place}: path", value=entry["path"], expected="a folder within it")
        config = {} if kind in ("Transformer", "StaticEmbedding") else optional_object(own / CONFIG)
        modules.append(Module(kind, own, config))
    networks = [module for module in modules if module.kind in ("Transformer", "StaticEmbedding")]
    if len(networks) != 1 or networks[0] is not modules[0]:
        problem = f"{len(networks)} networks" if len(networks) != 1 else f"{modules[0].kind} comes first"
        raise InputError(path, problem=problem, expected="one network, and then what is done with its states")
    return modules


def transformer_options(layout: Layout) -> dict[str, Any]:
    """The options of the network's module: its length limit and, of ColBERT, how questions are filled up."""
    for path in sorted(layout.transformer.glob("sentence_*_config.json")):
        found = optional_object(path)
        check_network_config(path, {"model_args": found.get("model_args") or {}}, "model_args")
        return found
    return {}


def positive_integer(path: Path, table: dict[str, Any], name: str, default: int) -> int:
    """An entry that is a length or a size; ``default`` where there is none."""
    value = table.get(name)
    if value is None:
        return default
    if not isinstance(value, int) or isinstance(value, bool) or not 0 < value < 1 << 24:
        raise InputError(path, place=name, value=value, expected="a positive integer")
    return value
