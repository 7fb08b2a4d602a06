"""The network of a checkpoint as an encoder, its tokenizer, and its options in sentence_bert_config.json."""

from pathlib import Path
from typing import Any, NamedTuple

from tokenizers import normalizers

from aptool.errors import InputError
from aptool.models.backbone import Backbone, BackboneOptions
from aptool.models.checkpoints.files import Layout, optional_object, positive_integer, require_safetensors
from aptool.models.checkpoints.keys import UnsupportedError, check_keys, check_network_keys
from aptool.models.hub import CONFIG, MODULES
from aptool.models.initialization import EncoderSpec
from aptool.models.pretrained import Head, OpenedNetwork, check_network_config, open_network
from aptool.models.transformer import TransformerEncoder
from aptool.text.subwords import Presentation, SubwordTokenizer, TextForm
from aptool.text.tokenizer import Role

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

# Encoder-decoders of which sentence-transformers uses the encoder; it pools the decoder of the others.
_ENCODERS = ("t5", "mt5", "umt5", "longt5", "switch_transformers")

# Texts that show whether the tokenizers of transformers and of aptool agree.
_PROBES = ("a", "Aa É, (1)", " [MASK] </s>  b")


class NetworkOptions(NamedTuple):
    """The options of a network and of its texts."""

    path: Path  # the file, for errors
    entries: dict[str, Any]  # all entries
    config_args: dict[str, Any]
    tokenizer_args: dict[str, Any]
    texts: dict[str, Any]  # arguments of the tokenizer's call
    limit_name: str  # the entry of ``path`` that ``max_length`` is from; empty without one
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
    texts, limit_name = _text_arguments(path, entries)
    return NetworkOptions(path, entries, config_args, tokenizer_args, texts, limit_name, layer)


def _text_arguments(path: Path, entries: dict[str, Any]) -> tuple[dict[str, Any], str]:
    """Return the arguments of the tokenizer's call for a text, and the entry that ``max_length`` is from."""
    sections = entries.get("processing_kwargs") or {}
    if not isinstance(sections, dict) or not all(isinstance(table, dict) for table in sections.values()):
        raise InputError(path, position="processing_kwargs", value=sections, expected="options per modality")
    texts: dict[str, Any] = {}
    limit_name = ""
    for name in sections:
        if name not in _SECTIONS:
            expected = f"one of {', '.join(_SECTIONS)}"
            raise InputError(path, position="processing_kwargs", value=name, expected=expected)
    for name in ("text", "common"):  # the second precedes the first
        table, position = sections.get(name, {}), f"processing_kwargs/{name}/"
        check_keys(path, "processing_kwargs, text and common", table, position)
        if table.get("max_length") is not None:
            positive_integer(path, table, "max_length", 0)
            limit_name = f"{position}max_length"
        texts |= table
    return texts, limit_name


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


class OpenedEncoder(NamedTuple):
    """The network of a checkpoint, as an encoder."""

    encoder: TransformerEncoder
    hf_tokenizer: Any  # of ``transformers``
    tokenizer: SubwordTokenizer  # the same tokenizer
    max_tokens: int  # maximum length of a text, as configured
    positions: int  # maximum length of a text that the network can read
    options: NetworkOptions

    def tokenizer_with(self, forms: dict[Role, TextForm]) -> SubwordTokenizer:
        """Return the tokenizer for texts with a form by role."""
        presentation = Presentation(forms, self.options.special, self.tokenizer.presentation.truncates_left)
        backend = self.hf_tokenizer.backend_tokenizer
        return SubwordTokenizer(backend, presentation, source=self.tokenizer.source)

    def limit(self, name: str) -> int:
        """Return the maximum length of the texts of a role, which the option ``name`` can set."""
        path, entries, special = self.options.path, self.options.entries, self.tokenizer
        limit = self.options.max_length or positive_integer(path, entries, name, self.max_tokens)
        least = special.prefix_length + special.suffix_length + 1
        if limit < least:
            expected = f"at least {least}, special tokens included"
            raise InputError(path, problem=f"texts of {limit} tokens", expected=expected)
        return min(limit, self.positions)


def open_encoder(layout: Layout, kind: str) -> OpenedEncoder:
    """Load the network of a checkpoint, without head."""
    options = read_options(layout, kind)
    opened = open_checkpoint(layout, options)
    config = opened.network.config
    if getattr(config, "is_encoder_decoder", False) and config.model_type not in _ENCODERS:
        expected = f"an encoder, or one of {', '.join(_ENCODERS)}: sentence-transformers pools the decoder"
        raise UnsupportedError(
            layout.transformer / CONFIG, position="model_type", value=config.model_type, expected=expected
        )
    strategy = options.texts.get("truncation", True)
    if strategy == "only_second":
        expected = "longest_first: a text alone has no second text"
        raise InputError(options.path, position="truncation", value=strategy, expected=expected)
    backbone = Backbone(opened.network, BackboneOptions(tune="none"))
    backbone.layer = options.layer
    layers = getattr(config, "num_hidden_layers", None)
    if options.layer is not None and not (layers and -layers - 1 <= options.layer <= layers):
        expected = f"an index of the {layers} layers and the embeddings"
        raise InputError(options.path, position="hidden_states", value=options.layer, expected=expected)
    tokenizer = subword_tokenizer(layout, opened, options)
    spec = EncoderSpec(len(tokenizer), backbone.size, {})
    encoder = TransformerEncoder(spec, BackboneOptions(tune="none"), backbone)
    return OpenedEncoder(encoder, opened.tokenizer, tokenizer, opened.max_tokens, opened.positions, options)


def open_checkpoint(layout: Layout, options: NetworkOptions, head: Head = "none") -> OpenedNetwork:
    """Load the network of a checkpoint with a head, as its options say."""
    folder = layout.transformer
    require_safetensors(folder)
    opened = open_network(
        str(folder),
        head=head,
        config_args=options.config_args,
        tokenizer_args=options.tokenizer_args,
    )
    check_network_keys(folder / CONFIG, optional_object(folder / CONFIG), opened.network.config)
    return opened


def subword_tokenizer(
    layout: Layout, opened: OpenedNetwork, options: NetworkOptions, margin: int = 1
) -> SubwordTokenizer:
    """Return the tokenizer of a network, as the options of its texts say."""
    source, backend = layout.transformer / "tokenizer.json", opened.tokenizer.backend_tokenizer
    if options.entries.get("do_lower_case"):
        add_lowercase(backend)
    left = opened.tokenizer.truncation_side == "left"
    presentation = Presentation(special=options.special, truncates_left=left, margin=margin)
    tokenizer = SubwordTokenizer(backend, presentation, source=source)
    for probe in _PROBES:
        encoding = opened.tokenizer(probe, add_special_tokens=options.special, verbose=False)
        if encoding["input_ids"] and encoding["input_ids"] != tokenizer.encode([probe]).ids.tolist():
            expected = "a tokenizer that only its tokenizer.json determines"
            raise UnsupportedError(
                layout.transformer / "tokenizer_config.json", value=probe, expected=expected
            )
    return tokenizer


def add_lowercase(backend: Any) -> None:
    """Lower the case of texts before other normalization, as sentence-transformers does."""
    normalizer: Any = backend.normalizer
    is_sequence = isinstance(normalizer, normalizers.Sequence)
    steps: list[Any] = [*normalizer] if is_sequence else [normalizer]
    if not any(isinstance(step, normalizers.Lowercase) for step in steps):
        steps = [step for step in steps if step is not None]
        backend.normalizer = normalizers.Sequence([normalizers.Lowercase(), *steps])
