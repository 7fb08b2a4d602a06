"""Similarities of two vectors, with numbers computed by hand."""

import math
from functools import partial

import pytest
import torch
from torch import tensor

from aptool.models.pooling import SIMILARITIES, distances

# x = (1, 2), y = (4, -2): x · y = 0, ‖x‖ = √5, ‖y‖ = √20, ‖x − y‖ = √(9 + 16) = 5.
X, Y = tensor([1.0, 2]), tensor([4.0, -2])


def made(name, size=2, **options):
    kind = SIMILARITIES[name]
    return kind(size, kind.Options(**options))


def every_pair(similarity, questions, answers):
    prepared = similarity.prepare_questions(questions), similarity.prepare_answers(answers)
    return similarity.matrix(*prepared)


@pytest.mark.parametrize(
    ("name", "options", "expected"),
    [
        ("cosine", {}, 0.0),
        ("dot", {}, 0.0),
        ("bilinear", {}, 0.0),  # M is the identity at first
        # 1/6 · 1 / (1 + e^-1), and with γ = 2, c = .5 the same sigmoid of 1.
        ("gesd", {}, 1 / 6 / (1 + math.exp(-1))),
        ("gesd", {"gamma": 2.0, "offset": 0.5}, 1 / 6 / (1 + math.exp(-1))),
        ("gesd", {"gamma": 2.0, "offset": 0.0}, 1 / 12),
    ],
)
def test_values_by_hand(name, options, expected):
    assert made(name, **options)(X, Y).item() == pytest.approx(expected, abs=1e-7)


def test_other_values_by_hand():
    # x · z = 1 · 2 + 2 · 1 = 4, ‖x‖ = ‖z‖ = √5, ‖x − z‖ = √2.
    z = tensor([2.0, 1])

    assert made("dot")(X, z).item() == 4
    assert made("cosine")(X, z).item() == pytest.approx(4 / 5)
    assert made("gesd")(X, z).item() == pytest.approx(1 / (1 + math.sqrt(2)) / (1 + math.exp(-5)))
    assert made("cosine")(X, tensor([0.0, 0])).item() == 0


def test_bilinear_is_x_transposed_m_y():
    # (1, 2) M = (1 · 1 + 2 · 0, 1 · 3 + 2 · -1) = (1, 1); (1, 1) · (4, -2) = 2; the other way round
    # (4, -2) M = (4, 14), (4, 14) · (1, 2) = 32.
    bilinear = made("bilinear")
    bilinear.load_state_dict({"M": tensor([[1.0, 3], [0, -1]])})

    assert bilinear(X, Y).item() == 2
    assert bilinear(Y, X).item() == 32


@pytest.mark.parametrize("name", SIMILARITIES)
def test_every_pair_equals_single_pairs(name):
    torch.manual_seed(0)
    similarity = made(name, 7)
    questions, answers = torch.randn(3, 7), torch.randn(4, 7)
    answers[1] = questions[2]  # no distance

    every = every_pair(similarity, questions, answers)

    expected = [[similarity(q, a).item() for a in answers] for q in questions]
    torch.testing.assert_close(every, tensor(expected), atol=2e-6, rtol=0)


def test_distances_of_close_vectors_do_not_cancel():
    x = 100 + torch.zeros(1, 1000)
    y = x + 1e-3  # √1000 · 1e-3 apart; in fp32, ‖x‖² is a million with steps of 1/16

    assert distances(x, y).item() == pytest.approx((y - x).norm().item(), rel=1e-4)


def test_equal_vectors_have_a_finite_gradient():
    similarity = made("gesd", 3)
    for compare in (similarity, partial(every_pair, similarity)):
        x = torch.ones(2, 3, requires_grad=True)
        compare(x, torch.ones(2, 3)).sum().backward()
        assert torch.isfinite(x.grad).all()


@pytest.mark.parametrize("name", ["gesd", "bilinear"])
def test_gradients_equal_numerical_differences(name):
    torch.manual_seed(1)
    similarity = made(name, 3).double()
    x, y = (torch.randn(2, 3, dtype=torch.float64, requires_grad=True) for _ in range(2))

    assert torch.autograd.gradcheck(similarity, (x, y))
    assert torch.autograd.gradcheck(partial(every_pair, similarity), (x, y))
