"""What a folder holds: which library's model, and the modules that it lists."""

from pathlib import Path
from typing import Any, Literal, NamedTuple, get_args

from aptool.documents import read_json
from aptool.errors import InputError, UsageError
from aptool.models.checkpoints.files import CONFIG, EXPECTED, optional_object
from aptool.models.network_config import check_network_config

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
    """Reads what a folder says of itself.

    Raises:
        InputError: a file is damaged, or a module is none of the two libraries' own.
    """
    modules = _read_modules(folder) if (folder / MODULES).is_file() else None
    return Layout(folder, optional_object(folder / CONFIG), optional_object(folder / ABOUT), modules)


def kind_of(layout: Layout, asked: str = "auto") -> Kind:
    """Which kind of model a folder holds.

    Args:
        layout: the folder.
        asked: the kind that the user says it is; ``auto`` finds out.

    Raises:
        UsageError: there is no such kind.
        InputError: the folder holds no model, several, or one of another kind.
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
    """An entry that is a length or a size; ``default`` where there is none.

    Raises:
        InputError: it is something else.
    """
    value = table.get(name)
    if value is None:
        return default
    if not isinstance(value, int) or isinstance(value, bool) or not 0 < value < 1 << 24:
        raise InputError(path, place=name, value=value, expected="a positive integer")
    return value
