"""Pretrained networks on a simulated GPU: few shapes of attention, and the results of a CPU."""

import copy

import numpy as np
import pytest
import torch
from networks import REASON
from simulated_gpu import SimulatedGpu
from test_packed import NOT_PACKED, PACKED, SMALL, TEXTS, encoder_of
from tiny import tokens
from torch.nn import functional as F

from aptool.models.device import exact_products
from aptool.models.ragged import Ragged, padded_batches

transformers = pytest.importorskip("transformers", reason=REASON)

MOST_SHAPES = 16
LONGEST = 512
TINY = {"hidden_size": 4, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 4}


def random_texts(count, longest=LONGEST, seed=0):
    generator = np.random.default_rng(seed)
    sizes = generator.integers(1, longest + 1, count)
    return Ragged.of_sizes(torch.from_numpy(generator.integers(5, 40, sizes.sum())), sizes)


def moved(texts):
    return texts._replace(values=texts.values.to("cuda"), offsets=texts.offsets.to("cuda"))


def tiny_encoder(kind="bert"):
    return encoder_of(kind, {"pad_token_id": 0, **TINY})


def encode(encoder, texts):
    return encoder(texts).values


def fine_tune(network, texts):
    """Read minibatches of 16 questions and 32 answers."""
    network.train()
    for minibatch in np.split(np.arange(len(texts.sizes)), range(48, len(texts.sizes), 48)):
        for side in (minibatch[:16], minibatch[16:]):
            if len(side):
                encode(network, texts.select(side))


USES = {
    "encoder": (tiny_encoder, encode),
    "encoder that is not packed": (lambda: tiny_encoder("modernbert"), encode),
    "fine-tuning": (tiny_encoder, fine_tune),
}


@pytest.mark.parametrize("use", USES)
def test_attention_has_few_shapes(use, monkeypatch):
    build, read = USES[use]
    shapes = set()

    def attention(query, key, value, *more, **named):
        shapes.add((query.shape, key.shape))
        assert not torch.backends.cuda.cudnn_sdp_enabled()
        return query.clone()

    monkeypatch.setattr(F, "scaled_dot_product_attention", attention)
    texts = random_texts(1_200)
    exact_products()
    with SimulatedGpu(), torch.no_grad():
        network = build().to("cuda")
        for part in np.split(np.arange(1_200), [1, 3, 10, 50, 200]):
            read(network, moved(texts.select(part)))

    assert 6 <= len(shapes) <= MOST_SHAPES


@pytest.mark.parametrize("kind", [*PACKED, *NOT_PACKED])
def test_states_are_those_of_a_cpu(kind):
    network = encoder_of(kind, {**PACKED, **NOT_PACKED}[kind])
    texts = Ragged.of(tokens(*TEXTS))
    with torch.inference_mode():
        expected = encode(network, texts)
        with SimulatedGpu():
            actual = encode(copy.deepcopy(network).to("cuda"), moved(texts)).cpu()

    torch.testing.assert_close(actual, expected, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("positions", [40, 64])
def test_padding_stays_within_the_positions_of_a_network(positions):
    network = encoder_of("bert", SMALL | {"max_position_embeddings": positions}).train()
    for part in network.modules():
        if isinstance(part, torch.nn.Dropout):
            part.p = 0.0
    texts = random_texts(30, positions)
    expected = encode(network, texts)
    with SimulatedGpu():
        actual = encode(copy.deepcopy(network).to("cuda"), moved(texts)).cpu()

    torch.testing.assert_close(actual, expected, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("share", [False, True])
def test_batches_have_each_text_once_and_little_padding(share):
    sizes = np.sort(np.random.default_rng(0).integers(1, 2000, 5000))
    batches = padded_batches(sizes, share=share)

    assert np.array_equal(
        np.concatenate([np.arange(5000)[batch.texts] for batch in batches]), np.arange(5000)
    )
    assert all(sizes[batch.texts].max() <= batch.width for batch in batches)
    assert all(batch.size <= batch.height for batch in batches)
    assert sum(batch.height * batch.width for batch in batches) < 1.5 * sizes.sum()
    assert len(padded_batches(sizes[:1], share=share)) == 1
