"""Texts in one row have the states that ``transformers`` computes for single texts."""

import copy

import pytest
import torch
from networks import REASON, corpus
from tiny import tokens

from aptool.models.encoders import EncoderSpec
from aptool.models.ragged import Ragged
from aptool.models.transformer import TransformerEncoder, TransformerOptions

transformers = pytest.importorskip("transformers", reason=REASON)

SMALL = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 32}
POSITIONS = {"pad_token_id": 1, "max_position_embeddings": 66}
PACKED = {
    "albert": SMALL | {"embedding_size": 8},
    "bert": SMALL,
    "camembert": SMALL | POSITIONS,
    "distilbert": {"dim": 16, "n_layers": 2, "n_heads": 2, "hidden_dim": 32},
    "electra": SMALL | {"embedding_size": 8},
    "roberta": SMALL | POSITIONS,
    "xlm-roberta": SMALL | POSITIONS,
}
# Relative positions, attention to a window, and causal attention.
NOT_PACKED = {
    "mpnet": SMALL | POSITIONS,
    "modernbert": SMALL | {"local_attention": 4, "pad_token_id": 0},
    "gpt2": {"n_embd": 16, "n_layer": 2, "n_head": 2, "pad_token_id": 0},
}
# One text has the padding token of RoBERTa's family (1) inside, which takes no position.
TEXTS = [*corpus(30), [7] * 64, [5], [9, 1, 1, 8, 6], [6, 7]]


def encoder_of(kind, options):
    torch.manual_seed(0)
    network = {"model_type": kind, "vocab_size": 40, **options}
    return TransformerEncoder(EncoderSpec(40, 16, network), TransformerOptions()).eval()


@pytest.mark.parametrize("kind", [*PACKED, *NOT_PACKED])
def test_states_equal_those_of_single_texts(kind):
    encoder = encoder_of(kind, {**PACKED, **NOT_PACKED}[kind])
    config = copy.deepcopy(encoder.network.config)
    reference = transformers.AutoModel.from_config(config, attn_implementation="eager").eval()
    reference.load_state_dict(encoder.network.state_dict(), strict=False)
    ids = Ragged.of(tokens(*TEXTS))

    with torch.inference_mode():
        actual = encoder(ids).values
        expected = [reference(input_ids=torch.tensor([text])).last_hidden_state[0] for text in TEXTS]

    assert encoder.is_packed == (kind in PACKED)
    torch.testing.assert_close(actual, torch.cat(expected), atol=1e-5, rtol=1e-5)


def test_a_decoder_is_not_packed():
    assert not encoder_of("bert", SMALL | {"is_decoder": True}).is_packed
