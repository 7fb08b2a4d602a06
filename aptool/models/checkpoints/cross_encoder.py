"""Cross-encoders: ``AutoModelForSequenceClassification`` with one label or two.

With one label, the score is the logit after the activation of the checkpoint, as in ``CrossEncoder.predict``
of sentence-transformers. With two labels, it is the logit of the relevant label minus the logit of the other:
the log odds. Probabilities near one would tie in fp32.
"""

import re
from pathlib import Path

from torch import nn

from aptool.errors import InputError
from aptool.models.backbone import BackboneOptions
from aptool.models.causal import LastTokenNetwork
from aptool.models.checkpoints.causal_lm import has_template, read_templated
from aptool.models.checkpoints.encoder import open_checkpoint, subword_tokenizer
from aptool.models.checkpoints.files import (
    CONFIG,
    ST_CONFIG,
    Checkpoint,
    Layout,
    recipe_of,
)
from aptool.models.checkpoints.keys import UnsupportedError, check_keys
from aptool.models.checkpoints.options import read_options
from aptool.models.checkpoints.weights import activation_of
from aptool.models.initialization import EncoderSpec
from aptool.models.ranker import Ranker
from aptool.models.transformer import CrossInput, HeadPooling, backbone_of

# Of two texts that exceed the limit by less, the longer one gets the odd token of a truncated pair.
_MARGIN = 4

# Names of a relevant label, in lower case.
RELEVANT = ("relevant", "entailment", "yes", "true", "positive", "1", "label_1")


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
