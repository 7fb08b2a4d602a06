"""Files of a checkpoint: its folder or hub name, its layout, its JSON files and weights."""

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

Kind = Literal["aptool", "sentence-transformers", "cross-encoder", "colbert", "static"]
KINDS: tuple[str, ...] = get_args(Kind)

# A network without a head and without modules: sentence-transformers pools the mean of its states.
NETWORK = "a network without head"

CONFIG = "config.json"
WEIGHTS = "model.safetensors"
MODULES = "modules.json"
ABOUT = "config_sentence_transformers.json"

EXPECTED = "a file of the checkpoint, in JSON"

# Files to fetch from the hub: no code and no pickles.
_FETCHED = ("*.json", "*.safetensors", "*.txt", "*.model", "artifact.metadata")

# Classes of modules, by the last part of their names.
_MODULES = (
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


def find_folder(name: PathOrUrl) -> Location:
    """Return a model's folder, or the local copy of a model on the hub."""
    if is_object_url(name):
        return location(name)
    url = _hub_url(name)
    if url is not None:
        return hub.local_folder(url, _FETCHED)
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
    """Return a model's name for every node: its folder, or its URL on the hub at this machine's commit."""
    folder, url = find_folder(name), _hub_url(name)
    return str(folder) if url is None else hub.pinned(url, Path(str(folder)))


def _hub_url(name: PathOrUrl) -> str | None:
    text = str(name)
    if hub.is_url(text):
        return text
    return f"hf://{text}" if is_hub_name(text) and not Path(text).is_dir() else None


def is_hub_name(name: str) -> bool:
    """Whether a name can be ``OWNER/NAME`` on the hub, and is not a path in an existing folder.

    ``models`` is not an owner: it is the folder that ``aptool train`` writes to.
    """
    owner, _, model = name.partition("/")
    is_pair = bool(model and "/" not in model)
    return is_pair and owner not in ("", ".", "..", "~", "models") and not Path(owner).exists()


def read_object(path: Path) -> dict[str, Any]:
    """Read the object in a JSON file."""
    content = read_json(path, EXPECTED)
    if not isinstance(content, dict):
        raise InputError(path, value=content, expected="a JSON object")
    return content


def optional_object(path: Path) -> dict[str, Any]:
    """Read the object in a JSON file; empty without the file."""
    return read_object(path) if path.is_file() else {}


def shapes(path: Path) -> dict[str, list[int]]:
    """Read the shape of each tensor from the header of a safetensors file."""
    if not path.is_file():
        expected = "weights in a safetensors file; pickled ones are not read"
        raise InputError(path, problem="file not found", expected=expected)
    try:
        with safe_open(path, framework="pt") as file:
            return {name: file.get_slice(name).get_shape() for name in file.keys()}  # noqa: SIM118
    except (SafetensorError, OSError) as error:
        raise InputError(path, problem=str(error), expected="a safetensors file") from error


def read_tensor(path: Path, name: str) -> Tensor:
    """Read a tensor of a safetensors file; floating-point values as fp32."""
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
    """Load all weights of a module from a safetensors file, by name."""
    for name, weight in module.state_dict().items():
        check_shape(path, name, list(weight.shape))
    module.load_state_dict({name: read_tensor(path, name) for name in module.state_dict()})


def check_shape(path: Path, name: str, shape: list[int]) -> None:
    """Raise unless a tensor has the configured shape."""
    in_file = shapes(path)
    if name not in in_file:
        raise InputError(path, place=name, problem="missing", expected="the weights of the checkpoint")
    if in_file[name] != shape:
        raise InputError(
            path, place=name, value=in_file[name], expected=f"shape {shape}, as its {CONFIG} says"
        )


class Module(NamedTuple):
    """A module that a folder lists."""

    kind: str  # last part of the class name, such as ``Pooling``
    folder: Path
    config: dict[str, Any]  # empty without a file


class Layout(NamedTuple):
    """The description that a folder has of its model; files that it lacks are empty."""

    folder: Path
    config: dict[str, Any]  # ``config.json``
    about: dict[str, Any]  # ``config_sentence_transformers.json``
    modules: list[Module] | None  # from ``modules.json``; None without the file

    @property
    def transformer(self) -> Path:
        """The folder of the network."""
        return self.modules[0].folder if self.modules else self.folder

    def named(self, kind: str) -> list[Module]:
        """Return the modules of a kind, in order."""
        return [module for module in self.modules or [] if module.kind == kind]


def read_layout(folder: Path) -> Layout:
    """Read the layout of a folder."""
    modules = _read_modules(folder) if (folder / MODULES).is_file() else None
    return Layout(folder, optional_object(folder / CONFIG), optional_object(folder / ABOUT), modules)


def kind_of(layout: Layout, requested: str = "auto") -> Kind:
    """Return the kind of model in a folder; ``auto`` detects it."""
    if requested not in ("auto", *KINDS):
        raise UsageError(f"kind {requested!r}: expected one of auto, {', '.join(KINDS)}")
    candidates = _candidates(layout)
    if requested != "auto" and not (requested == "sentence-transformers" and candidates == [NETWORK]):
        if requested not in candidates:
            has = " and ".join(candidates) or "no model"
            raise InputError(layout.folder, problem=f"{has} here", expected=f"a model of kind {requested}")
        candidates = [requested]
    if len(candidates) == 1:
        kind: Any = candidates[0]
        return "sentence-transformers" if kind == NETWORK else kind
    if candidates:
        problem, expected = f"two models here: {' and '.join(candidates)}", "one, or --kind to say which"
        raise InputError(layout.folder, problem=problem, expected=expected)
    inside = sorted(path.name for path in layout.folder.iterdir() if _is_model(path))
    problem = f"{len(inside)} models here: {', '.join(inside)}" if inside else "no model here"
    raise InputError(layout.folder, problem=problem, expected="the folder of one model")


def _is_model(folder: Path) -> bool:
    return any((folder / name).is_file() for name in (CONFIG, MODULES))


def _candidates(layout: Layout) -> list[str]:
    """Return the kinds of models that a folder may hold."""
    if layout.config.get("model_type") == "aptool":
        return ["aptool"]
    model_type = layout.about.get("model_type")
    if isinstance(model_type, str) and model_type in _MODEL_TYPES:
        return [_MODEL_TYPES[model_type]]
    if model_type not in (None, "SentenceTransformer"):
        expected = f"a model of kind {', '.join(KINDS)}"
        raise InputError(layout.folder / ABOUT, place="model_type", value=model_type, expected=expected)
    architectures = layout.config.get("architectures") or [""]
    if not isinstance(architectures, list):
        where, expected = layout.folder / CONFIG, "a list of names"
        raise InputError(where, place="architectures", value=architectures, expected=expected)
    architecture = str(architectures[0])
    kinds: list[str] = []
    if layout.modules is not None:
        if layout.named("StaticEmbedding"):
            kinds.append("static")
        elif layout.named("MultiVectorMask") or any(name in layout.about for name in _PYLATE):
            kinds.append("colbert")
        else:
            kinds.append("sentence-transformers")
    elif architecture == "HF_ColBERT":
        kinds.append("colbert")
    elif layout.config.get("model_type") == "model2vec" or architecture == "StaticModel":
        kinds.append("static")
    if architecture.endswith("ForSequenceClassification"):
        kinds.append("cross-encoder")
    if not kinds and layout.config.get("model_type"):
        kinds.append(NETWORK)
    return kinds


def _read_modules(folder: Path) -> list[Module]:
    """Read the modules that ``modules.json`` lists."""
    path = folder / MODULES
    entries = read_json(path, EXPECTED)
    if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries) or not entries:
        raise InputError(path, value=entries, expected="a list of modules")
    modules = []
    for number, entry in enumerate(entries):
        name, place = str(entry.get("type")), f"module {number}"
        kind = name.rpartition(".")[2]
        if not name.startswith(_LIBRARIES) or kind not in _MODULES:
            expected = f"one of {', '.join(_MODULES)} of sentence-transformers; no code of a model is run"
            raise InputError(path, place=f"{place}: type", value=name, expected=expected)
        subfolder = folder / str(entry.get("path", ""))
        if not subfolder.resolve().is_relative_to(folder.resolve()):
            raise InputError(path, place=f"{place}: path", value=entry["path"], expected="a folder within it")
        config = {} if kind in ("Transformer", "StaticEmbedding") else optional_object(subfolder / CONFIG)
        modules.append(Module(kind, subfolder, config))
    networks = [module for module in modules if module.kind in ("Transformer", "StaticEmbedding")]
    if len(networks) != 1 or networks[0] is not modules[0]:
        problem = f"{len(networks)} networks" if len(networks) != 1 else f"{modules[0].kind} comes first"
        raise InputError(path, problem=problem, expected="one network, and then what is done with its states")
    return modules


def transformer_options(layout: Layout) -> dict[str, Any]:
    """Read the options of the network's module, such as ``max_seq_length``."""
    for path in sorted(layout.transformer.glob("sentence_*_config.json")):
        options = optional_object(path)
        check_network_config(path, {"model_args": options.get("model_args") or {}}, "model_args")
        return options
    return {}


def positive_integer(path: Path, table: dict[str, Any], name: str, default: int) -> int:
    """Return an entry that is a length or a size."""
    value = table.get(name)
    if value is None:
        return default
    if not isinstance(value, int) or isinstance(value, bool) or not 0 < value < 1 << 24:
        raise InputError(path, place=name, value=value, expected="a positive integer")
    return value
