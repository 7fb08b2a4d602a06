"""The network of a checkpoint as an encoder, with its tokenizer and its options."""

from typing import Any, NamedTuple

from tokenizers import normalizers

from aptool.errors import InputError
from aptool.models.backbone import Backbone, BackboneOptions
from aptool.models.checkpoints.files import (
    CONFIG,
    Layout,
    optional_object,
    positive_integer,
    require_safetensors,
)
from aptool.models.checkpoints.keys import UnsupportedError, check_network_keys
from aptool.models.checkpoints.options import NetworkOptions, read_options
from aptool.models.initialization import EncoderSpec
from aptool.models.pretrained import Head, OpenedNetwork, open_network
from aptool.models.transformer import TransformerEncoder
from aptool.text.subwords import Presentation, SubwordTokenizer, TextForm
from aptool.text.tokenizer import Role

# Encoder-decoders of which sentence-transformers uses the encoder; it pools the decoder of the others.
_ENCODERS = ("t5", "mt5", "umt5", "longt5", "switch_transformers")

# Texts that show whether the tokenizers of transformers and of aptool agree.
_PROBES = ("a", "Aa É, (1)", " [MASK] </s>  b")


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
        str(folder), head=head, config_args=options.config_args, tokenizer_args=options.tokenizer_args
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
