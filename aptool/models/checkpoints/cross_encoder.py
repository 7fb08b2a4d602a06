"""Cross-encoders: ``AutoModelForSequenceClassification`` with one label or two.

With one label, the score is the logit after the activation of the checkpoint, as in ``CrossEncoder.predict``
of sentence-transformers. With two labels, it is the logit of label 1 (relevant) minus the logit of label 0:
the log odds. Probabilities near one would tie in fp32.
"""

from torch import nn

from aptool.errors import InputError
from aptool.models.backbone import BackboneOptions
from aptool.models.causal import LastTokenNetwork
from aptool.models.checkpoints.causal_lm import has_template, read_templated
from aptool.models.checkpoints.files import (
    CONFIG,
    ST_CONFIG,
    Checkpoint,
    Layout,
    activation_of,
    recipe_of,
    require_safetensors,
)
from aptool.models.initialization import EncoderSpec
from aptool.models.pretrained import open_network
from aptool.models.ranker import Ranker
from aptool.models.transformer import CrossInput, HeadPooling, backbone_of
from aptool.text.subwords import SubwordTokenizer


def read_cross_encoder(layout: Layout) -> Checkpoint:
    """Read a cross-encoder with its head."""
    folder = layout.transformer
    if layout.modules is not None and len(layout.modules) > 1:
        kinds = ", ".join(module.kind for module in layout.modules[1:])
        raise InputError(folder, problem=f"modules after the network: {kinds}", expected="its own head")
    if layout.st_config.get("default_prompt_name"):
        value = layout.st_config["default_prompt_name"]
        raise InputError(
            layout.folder / ST_CONFIG, position="default_prompt_name", value=value, expected="none"
        )
    require_safetensors(folder)
    opened = open_network(str(folder), head="labels")
    config = opened.network.config
    if config.num_labels not in (1, 2):
        expected = "1 or 2: relevant, or not relevant and relevant"
        raise InputError(folder / CONFIG, position="num_labels", value=config.num_labels, expected=expected)
    activation = _activation(layout, config.num_labels)
    if has_template(layout, opened):
        return read_templated(layout, opened, LastTokenNetwork(opened.network, "labels"), activation)
    if config.pad_token_id is None and isinstance(getattr(opened.network, "score", None), nn.Linear):
        # The head of a causal network reads the last token that is not padding, and batches have none.
        config.pad_token_id = opened.network.get_input_embeddings().weight.shape[0]
    tokenizer = SubwordTokenizer(opened.tokenizer.backend_tokenizer, source=folder / "tokenizer.json")
    max_tokens = opened.max_tokens
    special = tokenizer.special_tokens()
    if "token_type_ids" not in opened.tokenizer.model_input_names:
        special = special._replace(types=[0] * 5)  # the network was trained without them
    backbone = backbone_of(opened.network, tokenizer, special, max_tokens=max_tokens)
    pooling = HeadPooling(opened.network, backbone, activation)
    encoder = CrossInput(
        EncoderSpec(len(tokenizer), config.hidden_size, backbone), BackboneOptions(tune="none")
    )
    recipe = recipe_of(layout, "cross", "head", max_tokens, max_tokens)
    return Checkpoint(Ranker(encoder, pooling), tokenizer, recipe)


def _activation(layout: Layout, labels: int) -> str:
    """Return the activation of the logits: by default a sigmoid for one label and none for two."""
    saved = layout.config.get("sentence_transformers")
    name = layout.st_config.get("activation_fn")
    name = name or (saved.get("activation_fn") if isinstance(saved, dict) else None)
    name = name or layout.config.get("sbert_ce_default_activation_function")
    if name is None:
        return "sigmoid" if labels == 1 else "identity"
    return activation_of(layout.folder / CONFIG, name)
