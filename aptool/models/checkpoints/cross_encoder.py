"""Cross-encoders: networks with one label or two, and causal language models.

With one label, the score is the logit after the activation of the checkpoint, as in ``CrossEncoder.predict``
of sentence-transformers. With two labels, it is the logit of the relevant label minus the logit of the other:
the log odds. Probabilities near one would tie in fp32.

A language model reads a pair in a chat template. The score is the logit of a token such as "yes" at the last
position, minus the logit of a token such as "no" if the checkpoint has one. A folder of sentence-transformers
names the tokens in its module ``LogitScore``; for any other language model the user names them.
"""

import re
from pathlib import Path
from typing import Any

import torch
from torch import nn

from aptool.errors import InputError, UsageError
from aptool.models.backbone import BackboneOptions
from aptool.models.causal import CausalPooling, LastTokenNetwork
from aptool.models.checkpoints.files import (
    Checkpoint,
    Layout,
    activation_of,
    default_prompt,
    positive_integer,
    recipe_of,
)
from aptool.models.checkpoints.keys import UnsupportedError, check_keys
from aptool.models.checkpoints.network import NetworkOptions, open_checkpoint, read_options, subword_tokenizer
from aptool.models.checkpoints.template import PairTemplate, TemplateTokenizer
from aptool.models.hub import CONFIG, ST_CONFIG
from aptool.models.initialization import EncoderSpec
from aptool.models.model import ScoreTokens
from aptool.models.pretrained import OpenedNetwork
from aptool.models.ranker import Ranker
from aptool.models.transformer import CrossInput, HeadPooling, backbone_of

# Of two texts that exceed the limit by less, the longer one gets the odd token of a truncated pair.
_MARGIN = 4

# Names of a relevant label, in lower case.
RELEVANT = ("relevant", "entailment", "yes", "true", "positive", "1", "label_1")

_TEMPLATE = "chat_template.jinja"

# Options of tokenization that do not change a text.
_IGNORED = ("padding", "truncation", "restore_suffix", "return_tensors")

# By which sentence-transformers detects contents that are lists of parts.
_STRUCTURED = ("content[0]", ".type", "'type'", '"type"', "item.type", "message.content[")


def read_cross_encoder(layout: Layout) -> Checkpoint:
    """Read a cross-encoder with its head."""
    folder = layout.transformer
    if layout.modules is not None and len(layout.modules) > 1:
        kinds = ", ".join(module.kind for module in layout.modules[1:])
        raise UnsupportedError(folder, problem=f"modules after the network: {kinds}", expected="its own head")
    check_keys(layout.folder / ST_CONFIG, f"{ST_CONFIG} of cross-encoder", layout.st_config)
    options = read_options(layout, "cross-encoder")
    if not options.special:
        expected = "true: nothing would separate question and answer"
        raise InputError(options.path, position="add_special_tokens", value=False, expected=expected)
    opened = open_checkpoint(layout, options, head="labels")
    config = opened.network.config
    if config.num_labels not in (1, 2):
        expected = "1 or 2: relevant, or not relevant and relevant"
        raise InputError(folder / CONFIG, position="num_labels", value=config.num_labels, expected=expected)
    relevant = _relevant_label(folder / CONFIG, config.id2label) if config.num_labels == 2 else 1
    activation = _activation(layout, config.num_labels)
    if has_template(layout, opened, options):
        network = LastTokenNetwork(opened.network, "labels")
        return read_templated(layout, opened, options, network, activation, relevant)
    if config.pad_token_id is None and isinstance(getattr(opened.network, "score", None), nn.Linear):
        # The head of a causal network reads the last token that is not padding, and batches have none.
        config.pad_token_id = opened.network.get_input_embeddings().weight.shape[0]
    tokenizer = subword_tokenizer(layout, opened, options, margin=_MARGIN)
    max_tokens = min(options.max_length or opened.max_tokens, opened.positions)
    special = tokenizer.special_tokens()
    least = len(special.before + special.between + special.after) + 2
    if max_tokens < least:
        expected = f"at least {least}, special tokens included"
        raise InputError(options.path, problem=f"pairs of {max_tokens} tokens", expected=expected)
    if "token_type_ids" not in opened.tokenizer.model_input_names:
        special = special._replace(types=[0] * 5)  # the network was trained without them
    strategy = options.texts.get("truncation", True)
    backbone = backbone_of(
        opened.network,
        tokenizer,
        special,
        max_tokens=max_tokens,
        truncation="longest_first" if strategy is True else strategy,
        truncates_left=tokenizer.presentation.truncates_left,
        forms=tokenizer.saved_forms(),
    )
    pooling = HeadPooling(opened.network, backbone, activation, relevant)
    encoder = CrossInput(
        EncoderSpec(len(tokenizer), config.hidden_size, backbone), BackboneOptions(tune="none")
    )
    recipe = recipe_of(layout, "cross", "head", max_tokens, max_tokens)
    return Checkpoint(Ranker(encoder, pooling), tokenizer, recipe)


def _relevant_label(path: Path, labels: dict[int, str]) -> int:
    """Return the number of the relevant label of two, by their names."""
    names = [re.sub(r"[\W_]+", "_", str(labels[number]).lower()) for number in (0, 1)]
    relevant = [
        number
        for number, (name, other) in enumerate(zip(names, reversed(names), strict=True))
        if (name in RELEVANT and other not in RELEVANT)
        or other in {f"{prefix}{name}" for prefix in ("not_", "non_", "ir", "in", "un")}
    ]
    if len(relevant) != 1:
        expected = f"one of {', '.join(RELEVANT)} as the name of the relevant label"
        raise InputError(path, position="id2label", value=list(labels.values()), expected=expected)
    return relevant[0]


def _activation(layout: Layout, labels: int) -> str:
    """Return the activation of the logits: by default a sigmoid for one label and none for two."""
    saved = layout.config.get("sentence_transformers")
    name = layout.st_config.get("activation_fn")
    name = name or (saved.get("activation_fn") if isinstance(saved, dict) else None)
    name = name or layout.config.get("sbert_ce_default_activation_function")
    if name is None:
        return "sigmoid" if labels == 1 else "identity"
    return activation_of(layout.folder / CONFIG, name)


def read_causal_lm(layout: Layout, tokens: ScoreTokens | None) -> Checkpoint:
    """Read a causal language model; ``tokens`` are required unless the folder has a module LogitScore."""
    folder = layout.transformer
    saved = layout.modules_of("LogitScore")
    if saved and tokens is not None:
        expected = "no --true-token: the folder names its tokens"
        raise InputError(saved[0].folder / CONFIG, problem="module LogitScore", expected=expected)
    if not saved and tokens is None:
        raise UsageError(
            f"{layout.folder}: a language model without module LogitScore; expected --true-token"
        )
    kinds = [module.kind for module in layout.modules or []]
    if kinds not in ([], ["Transformer", "LogitScore"]):
        problem = f"modules {', '.join(kinds)}"
        raise UnsupportedError(layout.folder, problem=problem, expected="Transformer and LogitScore")
    options = read_options(layout, "causal-lm")
    check_keys(layout.folder / ST_CONFIG, f"{ST_CONFIG} of causal-lm", layout.st_config)
    opened = open_checkpoint(layout, options, head="logits")
    if tokens is not None:
        ids = [_token_id(opened, folder, token) for token in tokens if token is not None]
        if len(set(ids)) < len(ids):
            raise UsageError(
                f"--false-token {tokens.false!r}: the same as --true-token; expected another token"
            )
    else:
        ids = _saved_ids(saved[0].folder / CONFIG, saved[0].config, opened)
    _keep_logits(opened.network, ids)
    return read_templated(layout, opened, options, LastTokenNetwork(opened.network, "logits"))


def read_templated(
    layout: Layout,
    opened: OpenedNetwork,
    options: NetworkOptions,
    network: LastTokenNetwork,
    activation: str = "identity",
    relevant: int = 0,
) -> Checkpoint:
    """Read a causal network whose pairs have a chat template."""
    folder = layout.transformer
    variables, max_tokens = _read_options(options, opened)
    template = _read_template(layout, opened, options, variables)
    tokenizer = TemplateTokenizer(opened.tokenizer.backend_tokenizer, template, folder / "tokenizer.json")
    least = sum(tokenizer.least.values())
    if max_tokens < least + 2:
        expected = f"at most {max_tokens}, the maximum length of the model"
        raise InputError(template.where, problem=f"a template of {least} tokens", expected=expected)
    limits = {role: max_tokens - least + tokenizer.least[role] for role in ("question", "answer")}
    pooling = CausalPooling(
        network,
        max_tokens=max_tokens,
        suffix_length=tokenizer.suffix_length,
        question_first=tokenizer.question_first,
        activation=activation,
        relevant=relevant,
    )
    size = opened.network.config.hidden_size
    encoder = CrossInput(EncoderSpec(len(tokenizer), size, {}), BackboneOptions(tune="none"))
    recipe = recipe_of(layout, "cross", "causal", limits["question"], limits["answer"])
    return Checkpoint(Ranker(encoder, pooling), tokenizer, recipe)


def has_template(layout: Layout, opened: OpenedNetwork, options: NetworkOptions) -> bool:
    """Whether sentence-transformers reads texts of a checkpoint in a chat template."""
    if layout.modules is not None:
        return "message" in (options.entries.get("modality_config") or {})
    return bool(opened.tokenizer.chat_template)


def _read_template(
    layout: Layout, opened: OpenedNetwork, options: NetworkOptions, variables: dict[str, Any]
) -> PairTemplate:
    """Read the chat template of a folder."""
    source, path = opened.tokenizer.chat_template, layout.transformer / _TEMPLATE
    if isinstance(source, dict):
        source = source.get("default")
    if not source:
        expected = "a chat template that renders the messages of the roles query and document"
        raise InputError(path, problem="file not found", expected=expected)
    modalities = options.entries.get("modality_config")
    message = modalities.get("message") if isinstance(modalities, dict) else None
    saved_format = message.get("format") if isinstance(message, dict) else None
    structured = any(text in source for text in _STRUCTURED)
    if saved_format in ("flat", "structured"):
        structured = saved_format == "structured"
    special = {name: str(token) for name, token in opened.tokenizer.special_tokens_map.items()}
    return PairTemplate(source, {**special, **variables}, structured, default_prompt(layout), str(path))


def _read_options(options: NetworkOptions, opened: OpenedNetwork) -> tuple[dict[str, Any], int]:
    """Read the variables of the template, and the maximum length of a pair."""
    path, saved = options.path, options.entries.get("processing_kwargs") or {}
    if opened.tokenizer.truncation_side == "left":
        expected = "right: truncation would remove the instructions of the chat template"
        raise UnsupportedError(path.parent, position="truncation_side", value="left", expected=expected)
    lengths: dict[str, int] = {}
    variables: dict[str, Any] = {}
    for section, table in saved.items():
        if table.get("max_length") is not None:
            lengths[section] = positive_integer(path, table, "max_length", 0)
        for name, value in table.items():
            if name in (*_IGNORED, "max_length"):
                continue
            if section != "chat_template":
                position = f"processing_kwargs/{section}/{name}"
                expected = "only max_length, and variables of the chat template"
                raise UnsupportedError(path, position=position, value=value, expected=expected)
            variables[name] = value
    order = ("chat_template", "text", "common")
    length = next((lengths[section] for section in order if section in lengths), opened.max_tokens)
    return variables, min(length, opened.positions)


def _saved_ids(path: Path, config: dict[str, Any], opened: OpenedNetwork) -> list[int]:
    """Return the token ids of a module LogitScore."""
    rows = opened.network.get_output_embeddings().weight.shape[0]
    ids = []
    for name in ("true_token_id", "false_token_id"):
        value = config.get(name)
        if value is None and name == "false_token_id":
            continue
        if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < rows:
            expected = f"a token id below {rows}, the vocabulary of the network"
            raise InputError(path, position=name, value=value, expected=expected)
        ids.append(value)
    return ids


def _token_id(opened: OpenedNetwork, folder: Path, token: str) -> int:
    """Return the id of a token, given as text."""
    ids = opened.tokenizer.backend_tokenizer.encode(token, add_special_tokens=False).ids
    index = opened.tokenizer.get_vocab().get(token)
    if index is None and len(ids) == 1:
        index = ids[0]
    if index is None:
        expected = "a text that is one token"
        raise InputError(
            folder / "tokenizer.json", problem=f"{token!r} is {len(ids)} tokens", expected=expected
        )
    rows = opened.network.get_output_embeddings().weight.shape[0]
    if index >= rows:
        expected = f"a token id below {rows}, the vocabulary of the network"
        raise InputError(folder / "tokenizer.json", position=token, value=index, expected=expected)
    return int(index)


def _keep_logits(network: Any, ids: list[int]) -> None:
    """Let a language model compute the logits of some tokens only."""
    before = network.get_output_embeddings()
    head = nn.Linear(before.weight.shape[1], len(ids), bias=getattr(before, "bias", None) is not None)
    with torch.no_grad():
        head.weight.copy_(before.weight[ids])
        if head.bias is not None:
            head.bias.copy_(before.bias[ids])
    network.set_output_embeddings(head)
