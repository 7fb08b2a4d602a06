"""Poolings of other papers, with numbers computed by hand."""

import math

import pytest
import torch
from torch import tensor

from aptool.models.papers import (
    AbcnnPooling,
    AlignmentPooling,
    JointPooling,
    OneWayPooling,
    attend,
    windows,
)
from aptool.models.ragged import Ragged

# Distances from (0, 0): 0, 5, 13; from (3, 4): 5, 8, √(64 + 64).
Q = tensor([[0.0, 0], [3, 4]])
A = tensor([[0.0, 0], [3, -4], [-5, 12]])
G = [[1, 1 / 6, 1 / 14], [1 / 6, 1 / 9, 1 / (1 + math.sqrt(128))]]


def ragged(*texts):
    return Ragged.join(list(texts))


def all_true(states):
    return torch.ones(1, len(states), dtype=torch.bool)


def test_abcnn_attention_of_two_by_three_states():
    actual = attend(Q[None], all_true(Q), A[None], all_true(A))

    torch.testing.assert_close(actual[0], tensor(G))


def test_abcnn_attention_is_zero_on_padding():
    mask = tensor([[True, False]])

    actual = attend(Q[None], mask, A[None], all_true(A))

    assert actual[0, 1].tolist() == [0, 0, 0]
    assert actual[0, 0].tolist() == pytest.approx(G[0])


def test_windows_of_states():
    assert windows(tensor([[[1.0], [2], [3]]]), 2)[0, :, :, 0].tolist() == [[1, 2], [2, 3]]


def test_bcnn_by_hand():
    # One feature, window 2, filter (1, 1): the question 1, 2 convolves to tanh(0 + 1), tanh 3, tanh(2 + 0),
    # and windows of two average to (tanh 1 + tanh 3) / 2 and (tanh 3 + tanh 2) / 2.
    pooling = AbcnnPooling(1, AbcnnPooling.Options(features=1, window=2, attention="none"))
    pooling.convolutions[0].load_state_dict({"weight": tensor([[1.0, 1]]), "bias": tensor([0.0])})
    states = tensor([[1.0], [2]])[None]

    actual, _ = pooling._block(0, states, all_true(states[0]), states, all_true(states[0]))

    first, second, third = math.tanh(1), math.tanh(3), math.tanh(2)
    assert actual[0, :, 0].tolist() == pytest.approx([(first + second) / 2, (second + third) / 2])
    assert pooling.score_pairs(ragged(states[0]), ragged(-states[0])).tolist() == [[-1, -1]]


def test_attention_on_the_output_weights_the_sums_of_windows():
    # The identity as convolution (tanh aside) and window 1: a state times the sum of its row of G.
    pooling = AbcnnPooling(2, AbcnnPooling.Options(features=2, window=1, attention="output"))
    pooling.convolutions[0].load_state_dict({"weight": torch.eye(2), "bias": torch.zeros(2)})

    actual, _ = pooling._block(0, Q[None], all_true(Q), A[None], all_true(A))

    weights = attend(Q.tanh()[None], all_true(Q), A.tanh()[None], all_true(A)).sum(2)[0]
    torch.testing.assert_close(actual[0], Q.tanh() * weights[:, None])


def test_attention_on_the_input_is_a_second_channel():
    pooling = AbcnnPooling(2, AbcnnPooling.Options(features=1, window=1, attention="input"))
    pooling.attended[0].load_state_dict({"weight": torch.eye(2)})
    # The filter reads the first feature of the second channel alone: G A of the first question state is
    # 1/6 · 3 + 1/14 · -5 = 1/7.
    pooling.convolutions[0].load_state_dict({"weight": tensor([[0.0, 0, 1, 0]]), "bias": tensor([0.0])})

    actual, _ = pooling._block(0, Q[None], all_true(Q), A[None], all_true(A))

    assert actual[0, 0].item() == pytest.approx(math.tanh(1 / 7))


def test_abcnn_gradients_equal_numerical_differences():
    torch.manual_seed(0)
    pooling = AbcnnPooling(2, AbcnnPooling.Options(features=2, window=2)).double()
    questions, answers = (torch.randn(n, 2, dtype=torch.float64, requires_grad=True) for n in (2, 3))

    assert torch.autograd.gradcheck(
        lambda q, a: pooling.score_pairs(ragged(q), ragged(a)), (questions, answers)
    )


def test_one_way_attention_by_hand():
    # c = 1, all weights 1: o_q = max(1, 2) = 2; m = tanh(h + 2); s ∝ exp(m); the maximum of 2 h_t s_t.
    pooling = OneWayPooling(1, OneWayPooling.Options())
    pooling.load_state_dict({name: torch.ones_like(weight) for name, weight in pooling.state_dict().items()})
    question, answer = tensor([[1.0], [2]]), tensor([[-1.0], [-3]])

    r_q, r_a = pooling(ragged(question), ragged(answer))

    first, second = math.exp(math.tanh(1)), math.exp(math.tanh(-1))
    share = first / (first + second)
    assert r_q.item() == 2
    assert r_a.item() == pytest.approx(max(-2 * share, -6 * (1 - share)))


def test_alignment_by_hand():
    # Unit vectors: q1 = (1, 0) is in the answer; q2 = (0, 1) is best matched by (.6, .8) with .8.
    questions, answers = ragged(tensor([[2.0, 0], [0, 5]])), ragged(tensor([[1.0, 0], [3, 4], [-1, 0]]))

    actual = AlignmentPooling(2, AlignmentPooling.Options()).score_pairs(questions, answers)

    # Question: similarities 1, .8. Answer: 1, .8, and (-1, 0) at best 0 with (0, 1).
    question = [0.9, 0.9, 0.2 / 2, 0.2]
    answer = [0.6, 0.6, (0.2 + 1) / 3, 1]
    assert actual[0].tolist() == pytest.approx([*question, *answer], abs=1e-6)


def test_alignment_weights_words_by_importance():
    pooling = AlignmentPooling(2, AlignmentPooling.Options())
    pooling.load_state_dict({"v": tensor([0.0, 100])})  # all importance to the second word of the question
    questions, answers = ragged(tensor([[2.0, 0], [0, 5]])), ragged(tensor([[1.0, 0], [3, 4]]))

    assert pooling.score_pairs(questions, answers)[0, 1].item() == pytest.approx(0.8)


def test_the_joint_lstm_reads_question_then_answer():
    torch.manual_seed(0)
    pooling = JointPooling(3, JointPooling.Options(hidden=4)).eval()
    torch.nn.init.normal_(pooling.between)
    texts = [torch.randn(n, 3) for n in (2, 5, 1, 4)]

    scores = pooling.score_pairs(ragged(*texts[:2]), ragged(*texts[2:]))

    for number in range(2):
        joined = torch.cat([texts[number], pooling.between[None], texts[number + 2]])
        expected = pooling.output(pooling.lstm(joined[None])[0].mean(1))
        assert scores[number].item() == pytest.approx(expected.item(), abs=1e-6)
