"""Similarities of two vectors, with numbers computed by hand."""

import math

import pytest
import torch
from tiny import recipe
from torch import tensor

from aptool.errors import InputError
from aptool.models.build import check_recipe
from aptool.models.pooling import MaxPooling, MeanPooling
from aptool.models.ragged import Ragged
from aptool.models.similarity import SIMILARITIES, distances

# x = (1, 2), y = (4, -2): x · y = 0, ‖x‖ = √5, ‖y‖ = √20, ‖x − y‖ = √(9 + 16) = 5.
X, Y = tensor([1.0, 2]), tensor([4.0, -2])


def made(name, size=2, **options):
    kind = SIMILARITIES[name]
    return kind(size, kind.Options(**options))


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

    every = similarity.every_pair(questions, answers)

    expected = [[similarity(q, a).item() for a in answers] for q in questions]
    torch.testing.assert_close(every, tensor(expected), atol=2e-6, rtol=0)


def test_distances_of_close_vectors_do_not_cancel():
    x = 100 + torch.zeros(1, 1000)
    y = x + 1e-3  # √1000 · 1e-3 apart; in fp32, ‖x‖² is a million with steps of 1/16

    assert distances(x, y).item() == pytest.approx((y - x).norm().item(), rel=1e-4)


def test_equal_vectors_have_a_finite_gradient():
    similarity = made("gesd", 3)
    for compare in (similarity, similarity.every_pair):
        x = torch.ones(2, 3, requires_grad=True)
        compare(x, torch.ones(2, 3)).sum().backward()
        assert torch.isfinite(x.grad).all()


@pytest.mark.parametrize("name", ["gesd", "bilinear"])
def test_gradients_equal_numerical_differences(name):
    torch.manual_seed(1)
    similarity = made(name, 3).double()
    x, y = (torch.randn(2, 3, dtype=torch.float64, requires_grad=True) for _ in range(2))

    assert torch.autograd.gradcheck(similarity, (x, y))
    assert torch.autograd.gradcheck(similarity.every_pair, (x, y))


def test_invalid_similarities_are_refused():
    with pytest.raises(InputError, match=r"similarity\.type: 'gesdd': expected one of cosine, gesd"):
        check_recipe(recipe("qa-cnn", "similarity.type=gesdd"))
    with pytest.raises(InputError, match=r"similarity\.gama"):
        check_recipe(recipe("qa-cnn", "similarity.type=gesd", "similarity.gama=2"))


def test_pooling_uses_its_similarity():
    # With γ = 0 half of 1 / (1 + ‖x − y‖). Means (2, 0) and (2, 3): ‖x − y‖ = 3.
    # Maxima tanh'd are compared after the tanh.
    questions, answers = Ragged.join([tensor([[1.0, 0], [3, 0]])]), Ragged.join([tensor([[2.0, 3]])])
    mean, largest = MeanPooling(2, MeanPooling.Options()), MaxPooling(2, MaxPooling.Options())
    mean.similarity = largest.similarity = made("gesd", gamma=0.0)

    assert mean.score_pairs(questions, answers).item() == pytest.approx(1 / 8)
    apart = math.hypot(math.tanh(3) - math.tanh(2), math.tanh(3))
    assert largest.score_pairs(questions, answers).item() == pytest.approx(1 / 2 / (1 + apart))
    assert largest.score_matrix(questions, answers).item() == pytest.approx(1 / 2 / (1 + apart))
