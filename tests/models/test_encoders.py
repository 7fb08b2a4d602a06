"""Encoders: one state per token, which depends only on its text."""

import math

import pytest
import torch
from tiny import ranker, tokens

from aptool.models import encoders
from aptool.models.encoders import BiLstmEncoder, CnnEncoder, EncoderSpec
from aptool.models.ragged import Ragged

SHORT, LONG, ONE = [4, 2], [7, 3, 9, 2, 5, 11, 2], [6]


def encode(encoder, *texts):
    """The states of each text, encoded in one batch."""
    ragged = Ragged.of(tokens(*texts))
    with torch.inference_mode():
        states = encoder(ragged)
    return states.values.split(states.lengths.tolist())


def counting_cnn(window):
    """A CNN whose feature j is the id of the word at position j of the window."""
    encoder = CnnEncoder(EncoderSpec(20, 1), CnnEncoder.Options(features=window, window=window))
    with torch.no_grad():
        encoder.embedding.weight.copy_(torch.arange(20.0)[:, None])
        encoder.convolution.weight.copy_(torch.eye(window))
        encoder.convolution.bias.zero_()
    return encoder


@pytest.mark.parametrize(
    ("window", "seen"),
    [
        # The inputs of the filters at each of the tokens 4 2 8; zero is outside the text.
        (1, [[4], [2], [8]]),
        # An even window has one more word on the right than on the left.
        (2, [[4, 2], [2, 8], [8, 0]]),
        (3, [[0, 4, 2], [4, 2, 8], [2, 8, 0]]),
        (4, [[0, 4, 2, 8], [4, 2, 8, 0], [2, 8, 0, 0]]),
        (5, [[0, 0, 4, 2, 8], [0, 4, 2, 8, 0], [4, 2, 8, 0, 0]]),
    ],
)
def test_windows_end_at_the_borders_of_the_text(window, seen):
    # The other texts of the batch are adjacent in memory.
    before, states, after = encode(counting_cnn(window), [19, 19], [4, 2, 8], [17, 17])

    assert states.tolist() == seen
    assert {int(word) for word in torch.cat([before, after]).flatten()} <= {0, 17, 19}


@pytest.mark.parametrize("window", [1, 2, 3, 4])
@pytest.mark.parametrize("features", [5, 8])
def test_an_orthogonal_start_keeps_inner_products_of_words(window, features):
    system = ranker("ap-cnn", dim=5, size=features, window=window, init="orthogonal")
    words = Ragged.join([torch.tensor([7, 3, 7]), torch.tensor([12])])

    states = system.encoder(words).values
    vectors = system.encoder.embedding(words.values)

    assert states.shape == (4, features)
    torch.testing.assert_close(states @ states.T, vectors @ vectors.T, atol=1e-5, rtol=1e-5)


def for_inference(encoder):
    """``inference_encoder`` as a function of token ids alone."""
    with torch.inference_mode():
        states_of = encoder.inference_encoder()
    return torch.inference_mode()(lambda tokens: tokens.with_values(states_of(tokens, tokens.row_numbers())))


@pytest.mark.parametrize("system", ["ap-cnn", "ap-bilstm"])
def test_states_do_not_depend_on_the_batch(system):
    encode_all = for_inference(ranker(system, dim=50, size=64).encoder)

    alone = [encode(encode_all, text)[0] for text in (SHORT, LONG, ONE)]
    together = encode(encode_all, SHORT, LONG, ONE)
    in_large_batch = encode(encode_all, *[[5] * 40] * 30, ONE, SHORT, *[[3, 8]] * 7, LONG)

    for text, batch in enumerate(together):
        assert torch.equal(alone[text], batch)
    assert torch.equal(alone[2], in_large_batch[30])
    assert torch.equal(alone[0], in_large_batch[31])
    assert torch.equal(alone[1], in_large_batch[-1])


@pytest.mark.parametrize(
    ("system", "more"), [*(("ap-cnn", {"window": window}) for window in (1, 2, 3, 4)), ("ap-bilstm", {})]
)
def test_states_of_inference_are_those_of_the_definition_in_the_requested_layout(system, more):
    encoder = ranker(system, dim=6, size=9, **more).encoder
    tokens = Ragged.join([torch.tensor(text) for text in (SHORT, LONG)])
    rows = torch.tensor([len(SHORT), 0, 0, len(tokens.values) - 1])

    states = encoder.inference_encoder()(tokens, rows)

    torch.testing.assert_close(states, encoder(tokens).values[rows], atol=1e-6, rtol=0)


@pytest.mark.parametrize(("largest", "expected"), [(1, None), (1, 10**9), (10**9, 3)])
def test_no_table_if_it_is_large_or_there_are_few_tokens(monkeypatch, largest, expected):
    encoder = ranker("ap-cnn", dim=6, size=9).encoder
    tokens = Ragged.join([torch.tensor(LONG)])
    monkeypatch.setattr(encoders, "MAX_TABLE_BYTES", largest)
    monkeypatch.setattr(encoders.F, "embedding_bag", lambda *arguments, **more: 1 / 0)

    states = encoder.inference_encoder(expected)(tokens, torch.arange(3))

    assert torch.equal(states, encoder(tokens).values[:3])


def sigmoid(x):
    return 1 / (1 + math.exp(-x))


def lstm(inputs, W, U, b):
    """The hidden states of an LSTM in plain Python; W (H × d), U (H × H), b (H) for each of i, f, o, C."""
    hidden = cell = [0.0] * len(b["i"])
    states = []
    for x in inputs:

        def gate(name, squash, x=x, hidden=hidden):
            return [
                squash(
                    sum(w * v for w, v in zip(row, x, strict=True))
                    + sum(map(float.__mul__, recurrent, hidden))
                    + c
                )
                for row, recurrent, c in zip(W[name], U[name], b[name], strict=True)
            ]

        i, f, o = gate("i", sigmoid), gate("f", sigmoid), gate("o", sigmoid)
        new = gate("C", math.tanh)
        cell = [i[h] * new[h] + f[h] * cell[h] for h in range(len(cell))]
        hidden = [o[h] * math.tanh(cell[h]) for h in range(len(cell))]
        states.append(hidden)
    return states


def gates(layer):
    """A torch LSTM's weights by gate; torch stacks input, forget, candidate, output and has two biases."""
    size = layer.hidden_size
    parts = {name: slice(n * size, (n + 1) * size) for n, name in enumerate(("i", "f", "C", "o"))}
    bias = (layer.bias_ih_l0.double() + layer.bias_hh_l0.double()).tolist()
    W = {name: layer.weight_ih_l0.double()[part].tolist() for name, part in parts.items()}
    U = {name: layer.weight_hh_l0.double()[part].tolist() for name, part in parts.items()}
    return W, U, {name: bias[part] for name, part in parts.items()}


def test_bilstm_equals_the_equations_in_plain_python():
    # i, f, o = σ(W x + U h + b), C~ = tanh(...), C = i C~ + f C', h = o tanh(C); once from either end.
    torch.manual_seed(5)
    encoder = BiLstmEncoder(EncoderSpec(12, 3), BiLstmEncoder.Options(hidden=2))
    vectors = encoder.embedding.weight.double().tolist()

    for text, states in zip((SHORT, LONG, ONE), encode(encoder, SHORT, LONG, ONE), strict=True):
        inputs = [vectors[word] for word in text]
        forwards = lstm(inputs, *gates(encoder.forwards))
        backwards = lstm(inputs[::-1], *gates(encoder.backwards))[::-1]
        expected = [left + right for left, right in zip(forwards, backwards, strict=True)]

        torch.testing.assert_close(
            states.double(), torch.tensor(expected, dtype=torch.float64), atol=1e-6, rtol=0
        )


def test_states_of_a_bilstm_in_bf16_are_those_in_fp32_rounded():
    encoder = ranker("ap-bilstm").encoder.eval()

    for exact, rounded in zip(
        encode(encoder, SHORT, LONG), encode(encoder.in_bf16(), SHORT, LONG), strict=True
    ):
        assert torch.equal(rounded, exact.bfloat16())


@pytest.mark.parametrize("system", ["ap-cnn", "ap-bilstm"])
def test_padding_is_the_zero_vector_and_gets_no_gradient(system):
    encoder = ranker(system).encoder.train()

    encoder(Ragged.of(tokens(SHORT, LONG, ONE))).values.sum().backward()

    gradient = encoder.embedding.weight.grad.to_dense()
    assert not encoder.embedding.weight[0].any()
    assert not gradient[0].any()
    assert {int(word) for word in gradient.abs().sum(1).nonzero()} == {*SHORT, *LONG, *ONE}


def test_batching_by_length_does_not_change_states(monkeypatch):
    # In training on a CPU, texts of similar length are batched.
    monkeypatch.setattr(encoders, "TEXTS_PER_BATCH", 2)
    encoder = ranker("ap-bilstm").encoder
    texts = Ragged.of(tokens(LONG, ONE, SHORT, [3, 9, 5, 2], LONG[::-1]))

    with torch.no_grad():
        alone = encoder.eval()(texts)
        torch.testing.assert_close(encoder.train()(texts).values, alone.values)
