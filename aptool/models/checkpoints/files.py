"""Checkpoints of other libraries: configuration files, the type of checkpoint, weights, and Dense layers."""

import re
from pathlib import Path
from typing import Any, Literal, NamedTuple, get_args

from safetensors import safe_open
from torch import Tensor, nn

from aptool.config import Recipe, TextOptions
from aptool.documents import read_json
from aptool.errors import InputError, UsageError
from aptool.models.checkpoints.keys import UnsupportedError, check_keys
from aptool.models.hub import CONFIG, MODULES, ST_CONFIG, WEIGHTS
from aptool.models.pooling import ACTIVATIONS, Dense
from aptool.models.ranker import Ranker
from aptool.models.tensor_file import read_header
from aptool.text.subwords import SubwordTokenizer

Kind = Literal["aptool", "sentence-transformers", "cross-encoder", "causal-lm", "colbert", "static"]
KINDS: tuple[str, ...] = get_args(Kind)

# A network without head and ``modules.json``; sentence-transformers adds mean pooling.
NETWORK = "a network without head"


EXPECTED = "a file of the checkpoint, in JSON"

# Supported modules: the last part of the class name.
_NETWORKS = ("Transformer", "StaticEmbedding")
_MODULES = (
    *("Transformer", "Pooling", "Normalize", "Dense", "LayerNorm", "Dropout"),
    *("StaticEmbedding", "MultiVectorMask", "LogitScore"),
)
_LIBRARIES = ("sentence_transformers.", "pylate.")

# Classes of networks without head.
_NO_HEAD = re.compile(r".*(?<!LMHead)(?<!DoubleHeads)(Model|Encoder)")

# ``model_type`` in ``config_sentence_transformers.json``.
_MODEL_TYPES: dict[str, Kind] = {
    "CrossEncoder": "cross-encoder",
    "ColBERT": "colbert",
    "MultiVectorEncoder": "colbert",
}

# Entries of ``config_sentence_transformers.json`` that only PyLate writes.
_PYLATE = ("query_prefix", "document_prefix", "do_query_expansion", "attend_to_expansion_tokens")


class Module(NamedTuple):
    """A module of a checkpoint in the layout of sentence-transformers."""

    kind: str  # last part of the class name, such as ``Pooling``
    folder: Path
    config: dict[str, Any]  # empty if the file is missing


class Layout(NamedTuple):
    """The configuration files of a checkpoint."""

    folder: Path
    config: dict[str, Any]  # ``config.json``; empty if missing
    st_config: dict[str, Any]  # ``config_sentence_transformers.json``; empty if missing
    modules: list[Module] | None  # from ``modules.json``; None if missing

    @property
    def transformer(self) -> Path:
        """The folder of the network."""
        return self.modules[0].folder if self.modules else self.folder

    def modules_of(self, kind: str) -> list[Module]:
        """Return the modules of one kind, in order."""
        return [module for module in self.modules or [] if module.kind == kind]


class Checkpoint(NamedTuple):
    """A checkpoint of another library, loaded as a ranker on the CPU."""

    ranker: Ranker
    tokenizer: SubwordTokenizer
    recipe: Recipe  # components and maximum lengths of texts


def read_layout(folder: Path, *, check: bool = True) -> Layout:
    """Read the configuration files of a folder; ``check``: raise for modules that are not implemented."""
    modules = _read_modules(folder, check) if (folder / MODULES).is_file() else None
    if modules is None and (folder / ST_CONFIG).is_file():
        expected = f"{MODULES}, without which sentence-transformers does not read {ST_CONFIG}"
        raise InputError(folder / MODULES, problem="file not found", expected=expected)
    return Layout(folder, optional_object(folder / CONFIG), optional_object(folder / ST_CONFIG), modules)


def kind_of(layout: Layout, requested: str = "auto") -> Kind:
    """Return the kind of model in a folder; raise if it is not the requested kind."""
    if requested not in ("auto", *KINDS):
        raise UsageError(f"kind {requested!r}: expected one of auto, {', '.join(KINDS)}")
    candidates: list[Any] = _candidates(layout)
    has = " and ".join(candidates) or "no model"
    if candidates == [NETWORK]:
        candidates = _kinds_of_network(layout, requested)
    if requested in candidates:
        return requested  # type: ignore[return-value]
    if requested != "auto":
        raise InputError(layout.folder, problem=f"{has} here", expected=f"a model of kind {requested}")
    if len(candidates) == 1:
        kind: Kind = candidates[0]
        return kind
    if candidates:
        problem, expected = f"two models here: {has}", "one, or --kind to choose one"
        raise InputError(layout.folder, problem=problem, expected=expected)
    raise InputError(layout.folder, problem="no model here", expected="the folder of one model")


def _kinds_of_network(layout: Layout, requested: str) -> list[Kind]:
    """Return the kinds that read a network without modules; a network with a head requires a request."""
    head = architecture(layout)
    is_causal = head.endswith(("ForCausalLM", "LMHeadModel"))
    if requested != "auto":
        return ["sentence-transformers", "causal-lm"] if is_causal else ["sentence-transformers"]
    if head and not _NO_HEAD.fullmatch(head):
        reads = "causal-lm reads its logits, " if is_causal else ""
        expected = f"a network without head, or --kind: {reads}sentence-transformers pools its states"
        raise InputError(layout.folder / CONFIG, position="architectures", value=head, expected=expected)
    return ["sentence-transformers"]


def _candidates(layout: Layout) -> list[str]:
    """Return the kinds of models that a folder may hold."""
    if layout.config.get("model_type") == "aptool":
        return ["aptool"]
    model_type = layout.st_config.get("model_type")
    if layout.modules_of("LogitScore"):
        return ["causal-lm"]
    if isinstance(model_type, str) and model_type in _MODEL_TYPES:
        return [_MODEL_TYPES[model_type]]
    if "model_type" in layout.st_config and model_type != "SentenceTransformer":
        expected = f"a model of kind {', '.join(KINDS)}"
        raise InputError(
            layout.folder / ST_CONFIG, position="model_type", value=model_type, expected=expected
        )
    network = architecture(layout)
    kinds: list[str] = []
    if layout.modules is not None:
        if layout.modules_of("StaticEmbedding"):
            kinds.append("static")
        elif layout.modules_of("MultiVectorMask") or any(name in layout.st_config for name in _PYLATE):
            kinds.append("colbert")
        else:
            kinds.append("sentence-transformers")
    elif network == "HF_ColBERT":
        kinds.append("colbert")
    elif layout.config.get("model_type") == "model2vec" or network == "StaticModel":
        kinds.append("static")
    if network.endswith("ForSequenceClassification"):
        kinds.append("cross-encoder")
    if not kinds and layout.config.get("model_type"):
        kinds.append(NETWORK)
    return kinds


def architecture(layout: Layout) -> str:
    """Return the class of the network; empty if it is not known."""
    architectures = layout.config.get("architectures") or [""]
    if not isinstance(architectures, list):
        where, expected = layout.folder / CONFIG, "a list of names"
        raise InputError(where, position="architectures", value=architectures, expected=expected)
    return str(architectures[0])


def _read_modules(folder: Path, check: bool) -> list[Module]:
    """Read the modules that ``modules.json`` lists."""
    path = folder / MODULES
    entries = read_json(path, EXPECTED)
    if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries) or not entries:
        raise InputError(path, value=entries, expected="a list of modules")
    modules = []
    for number, entry in enumerate(entries):
        name, position = str(entry.get("type")), f"module {number}"
        kind = name.rpartition(".")[2]
        if check and (not name.startswith(_LIBRARIES) or kind not in _MODULES):
            expected = f"one of {', '.join(_MODULES)} of sentence-transformers; no code of a model is run"
            error = UnsupportedError if name.startswith(_LIBRARIES[0]) else InputError
            raise error(path, position=f"{position}: type", value=name, expected=expected)
        subfolder = folder / str(entry.get("path", ""))
        if not subfolder.resolve().is_relative_to(folder.resolve()):
            raise InputError(
                path, position=f"{position}: path", value=entry["path"], expected="a folder within it"
            )
        config = {} if kind in _NETWORKS else optional_object(subfolder / CONFIG)
        modules.append(Module(kind, subfolder, config))
        if check:
            check_keys(path, MODULES, entry, f"{position}: ")
            if config:
                check_keys(subfolder / CONFIG, f"{CONFIG} of {kind}", config)
    networks = [module for module in modules if module.kind in _NETWORKS]
    if check and (len(networks) != 1 or networks[0] is not modules[0]):
        problem = f"{len(networks)} networks" if len(networks) != 1 else f"{modules[0].kind} comes first"
        raise UnsupportedError(
            path, problem=problem, expected="one network, followed by modules on its states"
        )
    return modules


def optional_object(path: Path) -> dict[str, Any]:
    """Read the object in a JSON file; return an empty object if the file is missing."""
    content = read_json(path, EXPECTED) if path.is_file() else {}
    if not isinstance(content, dict):
        raise InputError(path, value=content, expected="a JSON object")
    return content


def default_prompt(layout: Layout) -> str:
    """Return the prompt of all texts; empty without one."""
    prompts, name = layout.st_config.get("prompts") or {}, layout.st_config.get("default_prompt_name")
    if name is None:
        return ""
    if not isinstance(prompts, dict) or not isinstance(prompts.get(name), str):
        path, expected = layout.folder / ST_CONFIG, "the name of a prompt"
        raise InputError(path, position="default_prompt_name", value=name, expected=expected)
    return str(prompts[name])


def positive_integer(path: Path, table: dict[str, Any], name: str, default: int) -> int:
    """Return an entry; raise unless it is a positive integer."""
    value = table.get(name)
    if value is None:
        return default
    if not isinstance(value, int) or isinstance(value, bool) or not 0 < value < 1 << 24:
        raise InputError(path, position=name, value=value, expected="a positive integer")
    return value


def require_safetensors(folder: Path) -> None:
    """Raise unless a folder has weights that can be read without running code."""
    if not any(folder.glob("*.safetensors")):
        expected = "weights in safetensors files; pickled ones are not read"
        raise InputError(folder / WEIGHTS, problem="file not found", expected=expected)


def recipe_of(layout: Layout, encoder: str, pooling: str, question_tokens: int, answer_tokens: int) -> Recipe:
    """Describe a checkpoint as a recipe."""
    text = TextOptions(max_question_tokens=question_tokens, max_answer_tokens=answer_tokens)
    return Recipe(checkpoint_name(layout.folder), {"type": encoder}, {"type": pooling}, text=text)


def checkpoint_name(folder: Path) -> str:
    """Return the name of a checkpoint: of its folder, or of the model on the hub if it is a copy."""
    path = folder.absolute()
    for part in path.parts:
        if part.startswith("models--"):
            return part.split("--")[-1]
    return path.resolve().name or "model"


def shapes(path: Path) -> dict[str, list[int]]:
    """Return the shape of each tensor of a safetensors file."""
    header = read_header(path, "weights in a safetensors file; pickled ones are not read")
    return {name: shape for name, (shape, _) in header.items()}


def read_tensor(path: Path, name: str, shape: list[int] | None = None) -> Tensor:
    """Read a tensor of a safetensors file, of a given shape; floating-point values as fp32."""
    in_file = shapes(path)
    if name not in in_file:
        raise InputError(path, position=name, problem="missing", expected="the weights of the checkpoint")
    if shape is not None and in_file[name] != shape:
        raise InputError(path, position=name, value=in_file[name], expected=f"shape {shape}, as in {CONFIG}")
    with safe_open(path, framework="pt") as file:
        tensor: Tensor = file.get_tensor(name)
    return tensor.float() if tensor.is_floating_point() else tensor


def load_weights(module: nn.Module, path: Path) -> None:
    """Load the weights of a module from a safetensors file, by name."""
    weights = module.state_dict()
    module.load_state_dict({name: read_tensor(path, name, [*weights[name].shape]) for name in weights})


def activation_of(path: Path, name: object) -> str:
    """Return the name of an activation function, given the name of torch's class."""
    activation = str(name).rpartition(".")[2].lower()
    if activation not in ACTIVATIONS or not str(name).startswith("torch."):
        expected = f"torch's class for one of {', '.join(ACTIVATIONS)}"
        raise InputError(path, position="activation_function", value=name, expected=expected)
    return activation


def check_features(module: Module, name: str, default: str) -> None:
    """Raise unless a module replaces the features of a name; ``default``: the name where it has none."""
    source = module.config.get("module_input_name") or default
    target = module.config.get("module_output_name") or source
    for key, value in (("module_input_name", source), ("module_output_name", target)):
        if value != name:
            raise UnsupportedError(module.folder / CONFIG, position=key, value=value, expected=name)


def read_dense(module: Module, inputs: int, features: str = "sentence_embedding") -> Dense:
    """Read a Dense layer with ``inputs`` input features, of embeddings or of ``token_embeddings``."""
    path, weights = module.folder / CONFIG, module.folder / WEIGHTS
    config = module.config
    check_features(module, features, features)
    if positive_integer(path, config, "in_features", 0) != inputs:
        expected = f"{inputs}, the features of its input"
        raise InputError(path, position="in_features", value=config.get("in_features"), expected=expected)
    outputs = positive_integer(path, config, "out_features", 0)
    activation = activation_of(path, config.get("activation_function", "torch.nn.modules.activation.Tanh"))
    read_tensor(weights, "linear.weight", [outputs, inputs])  # checks the size before allocation
    layer = Dense(
        inputs,
        outputs,
        bias=bool(config.get("bias", True)),
        activation=activation,
        residual=bool(config.get("use_residual", False)),
    )
    load_weights(layer, weights)
    return layer


def projection_of(layers: list[Dense]) -> nn.Module | None:
    """Chain layers to a projection; None without layers."""
    if len(layers) == 1:
        return layers[0]
    return nn.Sequential(*layers) if layers else None
