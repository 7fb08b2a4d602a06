"""Poolings: attention weights and vectors, with numbers computed by hand."""

import math

import pytest
import torch
from torch import tensor

from aptool.models.attention import AttentivePooling
from aptool.models.pooling import MaxPooling, MeanPooling, segment_max
from aptool.models.ragged import Ragged

# Two question states against three answer states, c = 2:
#
#   Q = (0, 2), (1, 1)          U = 1/2  1           rows of Qᵀ U: (1/2, 0), (3/4, 1)
#   A = (0, 0), (2, -1), (-1, 0)    1/4  0
#
#   Qᵀ U A =  0   1   -1/2      maxima over the answer:   1,  1/2
#             0  1/2  -3/4      maxima over the question: 0,  1,  -1/2
#
#   g_q = tanh 1, tanh 1/2           = .761594, .462117              exp: 2.141688, 1.587430
#   g_a = tanh 0, tanh 1, -tanh 1/2  = 0, .761594, -.462117          exp: 1, 2.141688, .629949
#   σ_q = .574315, .425685           σ_a = .265137, .567840, .167023
#   r_q = .425685, 2 × .574315 + .425685 = 1.574315
#   r_a = 2 × .567840 - .167023 = .968658, -.567840
Q = tensor([[0.0, 2], [1, 1]])
A = tensor([[0.0, 0], [2, -1], [-1, 0]])
U = tensor([[0.5, 1], [0.25, 0]])
WEIGHTS_Q = [0.574315, 0.425685]
WEIGHTS_A = [0.265137, 0.567840, 0.167023]
R_Q = [0.425685, 1.574315]
R_A = [0.968658, -0.567840]


@pytest.fixture
def attentive():
    pooling = AttentivePooling(2, AttentivePooling.Options())
    pooling.load_state_dict({"U": U})
    return pooling


def test_vectors_of_two_by_three_states_are_weighted_sums_without_tanh(attentive):
    r_q, r_a, weights_q, weights_a = attentive(Ragged.join([Q]), Ragged.join([A]))

    assert weights_q.tolist()[0] == pytest.approx(WEIGHTS_Q, abs=1e-6)
    assert weights_a.tolist()[0] == pytest.approx(WEIGHTS_A, abs=1e-6)
    assert r_q.tolist()[0] == pytest.approx(R_Q, abs=2e-6)
    assert r_a.tolist()[0] == pytest.approx(R_A, abs=2e-6)


def test_attention_weights_are_zero_on_padding(attentive):
    # The pair from above in a batch with longer texts, so that both of its texts are padded.
    longer = torch.full((5, 2), 9.0)
    questions, answers = Ragged.join([longer, Q, longer[:1]]), Ragged.join([longer[:1], A, longer])

    weights_q, weights_a = attentive.attention(questions, answers)

    assert weights_q[1].tolist() == pytest.approx([*WEIGHTS_Q, 0, 0, 0], abs=1e-6)
    assert weights_a[1].tolist() == pytest.approx([*WEIGHTS_A, 0, 0], abs=1e-6)
    torch.testing.assert_close(weights_q.sum(1), torch.ones(3))
    torch.testing.assert_close(weights_a.sum(1), torch.ones(3))
    # A text of one state gives it all the weight.
    assert weights_q[2].tolist() == [1, 0, 0, 0, 0]
    assert weights_a[0].tolist() == [1, 0, 0, 0, 0]


def test_max_pooling_is_tanh_of_the_maximum_per_feature():
    pooling = MaxPooling(2, MaxPooling.Options())
    # All features of the second text are negative: its maxima would be 0 if padding counted.
    texts = Ragged.join([tensor([[0.0, 2], [1, -1], [-3, 1]]), tensor([[-0.5, -2], [-1, -0.25]])])

    r_q, r_a = pooling(texts, texts)

    expected = [[math.tanh(1), math.tanh(2)], [-math.tanh(0.5), -math.tanh(0.25)]]
    assert r_q.tolist() == [pytest.approx(row, abs=1e-6) for row in expected]
    assert torch.equal(r_q, r_a)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_maxima_of_wide_texts_are_those_of_each_text(dtype):
    torch.manual_seed(0)
    texts = [torch.randn(size, 9000).to(dtype) for size in (2, 2, 5)]
    texts.append(-torch.rand(2, 9000).to(dtype))  # all negative or zero

    maxima = segment_max(torch.cat(texts), Ragged.join(texts))

    assert torch.equal(maxima, torch.stack([text.max(0).values for text in texts]))


def test_identity_init_aligns_by_inner_products():
    torch.manual_seed(0)
    pooling = AttentivePooling(3, AttentivePooling.Options(init="identity", scale=2.0))
    uniform = AttentivePooling(100, AttentivePooling.Options(scale=0.5))

    assert pooling.U.tolist() == [[2, 0, 0], [0, 2, 0], [0, 0, 2]]
    # Uniform in ±1/√100, halved; 10,000 draws come close to both ends.
    assert 0.0499 < uniform.U.max().item() <= 0.05
    assert -0.05 <= uniform.U.min().item() < -0.0499


def test_sharpness_scales_the_logits(attentive):
    # The example above with g times 3: σ_q from exp(2.284782), exp(1.386351), σ_a from 1, exp(2.284782),
    # exp(-1.386351).
    attentive.sharpness = 3.0

    weights_q, weights_a = attentive.attention(Ragged.join([Q]), Ragged.join([A]))

    first, second = 9.823544, 4.000228
    assert weights_q[0].tolist() == pytest.approx([first / 13.823772, second / 13.823772], abs=1e-5)
    total = 1 + 9.823544 + 0.249986
    expected = [1 / total, 9.823544 / total, 0.249986 / total]
    assert weights_a[0].tolist() == pytest.approx(expected, abs=1e-5)


def test_mean_pooling():
    texts = Ragged.join([tensor([[0.0, 2], [1, -1], [-4, 5]]), tensor([[-0.5, -2]])])

    mean = MeanPooling(2, MeanPooling.Options()).represent(texts)

    assert mean.tolist() == [[-1, 2], [-0.5, -2]]
