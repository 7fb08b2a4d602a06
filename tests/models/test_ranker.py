"""Rankers: scores of systems of the paper, computed by hand, and invariances."""

import math

import pytest
import torch
from tiny import SYSTEMS, ranker, tokens

from aptool.config import load_recipe
from aptool.errors import InputError
from aptool.models.attention import AttentivePooling
from aptool.models.build import Ranker, build_ranker, check_recipe
from aptool.models.encoders import CnnEncoder, EncoderSpec
from aptool.models.pooling import MaxPooling
from aptool.models.ragged import Ragged

# Words 1, 2, 3 have the one-dimensional vectors 1, 2, -1. The question reads 1 2, the answer 2 3 1.
VECTORS = torch.tensor([[0.0], [1], [2], [-1]])
QUESTION, ANSWER = [1, 2], [2, 3, 1]
tanh = math.tanh


def score(system, question, answer, *other_pairs):
    """s(question, answer), in a batch with other pairs."""
    pairs = [(question, answer), *other_pairs]
    with torch.inference_mode():
        scores = system(
            Ragged.of(tokens(*(pair[0] for pair in pairs))), Ragged.of(tokens(*(pair[1] for pair in pairs)))
        )
    return float(scores[0])


def cosine(u, v):
    return sum(map(float.__mul__, u, v)) / math.hypot(*u) / math.hypot(*v)


def cnn(weight, bias, window):
    encoder = CnnEncoder(EncoderSpec(4, 1), CnnEncoder.Options(features=2, window=window))
    encoder.load_state_dict(
        {
            "embedding.weight": VECTORS,
            "convolution.weight": torch.tensor(weight),
            "convolution.bias": torch.tensor(bias),
        }
    )
    return encoder


def max_pooling():
    return MaxPooling(2, MaxPooling.Options())


def attentive_pooling(U):
    pooling = AttentivePooling(2, AttentivePooling.Options())
    pooling.load_state_dict({"U": torch.tensor(U)})
    return pooling


def test_qa_cnn_by_hand():
    # Window 2: the token x and the next one y. Filters x - y - 7/2 and -x - y + 5/2.
    #   question (1,2) (2,0):         -9/2, -1/2   -3/2, 1/2                  maxima -3/2, 1/2
    #   answer   (2,-1) (-1,1) (1,0): -1/2, 3/2    -11/2, 5/2   -5/2, 3/2     maxima -1/2, 5/2
    system = Ranker(cnn([[1.0, -1], [-1, -1]], [-3.5, 2.5], window=2), max_pooling())

    expected = cosine([-tanh(1.5), tanh(0.5)], [-tanh(0.5), tanh(2.5)])

    assert score(system, QUESTION, ANSWER) == pytest.approx(expected, abs=1e-6)


def test_ap_cnn_by_hand():
    # Window 3: left x, token y, right z. Filters x and y + z - 1.
    #   question (0,1,2) (1,2,0):           (0, 2)  (1, 1)
    #   answer   (0,2,-1) (2,-1,1) (-1,1,0): (0, 0)  (2, -1)  (-1, 0)
    # These are the states of the example that tests/models/test_pooling.py computes: r_q = (.425685,
    # 1.574315) and r_a = (.968658, -.567840), lengths 1.630851 and 1.122828, inner product -.481616, cosine
    # -.263011.
    system = Ranker(
        cnn([[1.0, 0, 0], [0, 1, 1]], [0.0, -1], window=3), attentive_pooling([[0.5, 1], [0.25, 0]])
    )

    assert score(system, QUESTION, ANSWER) == pytest.approx(-0.263011, abs=1e-6)


@pytest.mark.parametrize("system", SYSTEMS)
def test_scores_do_not_depend_on_the_batch(system):
    system = ranker(system, dim=8, size=12)
    question, answer = [3, 9, 4], [5, 3, 3, 17, 9]
    long = [2, 7, 11] * 20

    alone = score(system, question, answer)

    # The question, the answer or both are padded, or shorter texts are.
    for other_pairs in ([(long, [4])], [([4], long)], [(long, long), ([8], [8])], [(question, answer)] * 5):
        assert score(system, question, answer, *other_pairs) == pytest.approx(alone, abs=1e-6)


@pytest.mark.parametrize("system", SYSTEMS)
def test_a_text_matches_itself_best(system):
    # A text and its copy have the same states, and a symmetric U gives both the same attention weights.
    system = ranker(system, dim=8, size=12)
    if isinstance(system.pooling, AttentivePooling):
        system.pooling.load_state_dict({"U": torch.eye(len(system.pooling.U))})

    assert score(system, [3, 9, 4], [3, 9, 4]) == pytest.approx(1, abs=1e-6)


def test_score_of_a_zero_vector_is_zero_and_not_nan():
    # Filters 0 and bias 0 give states, and with them vectors, of zero.
    system = Ranker(cnn([[0.0], [0]], [0.0, 0], window=1), max_pooling())

    assert score(system, QUESTION, ANSWER) == 0


def test_dropout_acts_in_training_only():
    system = ranker("ap-cnn", dim=8, size=12)
    system.dropout = 0.5
    question, answer = Ragged.of(tokens([3, 9, 4])), Ragged.of(tokens([5, 3]))

    torch.manual_seed(0)
    trained = {system.train()(question, answer).item() for _ in range(5)}
    evaluated = {system.eval()(question, answer).item() for _ in range(5)}

    assert len(trained) == 5
    assert len(evaluated) == 1


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("encoder.type=gru", "encoder.type: 'gru': expected one of cnn, bilstm"),
        ("pooling.type=median", "pooling.type: 'median': expected one of max, attentive"),
        ("similarity.type=gesdd", "similarity.type: 'gesdd': expected one of cosine, gesd"),
        ("encoder.widow=3", "encoder.widow: unknown option; expected 'window' perhaps"),
        ("encoder.window=three", "encoder.window: 'three': expected an integer"),
        ("encoder.window=0", "encoder.window: 0: expected 1 or more"),
        ("encoder.features=0", "encoder.features: 0: expected 1 or more"),
        ("pooling.init=zero", "pooling.init: 'zero': expected one of uniform, identity"),
        ("pooling.type=maxsim pooling.dim=401", "pooling.dim: 401: expected at most 400, the features of a"),
    ],
)
def test_impossible_systems_are_refused(override, message):
    recipe = load_recipe("ap-cnn", override.split())

    for refuse in (check_recipe, lambda recipe: build_ranker(recipe, 10, 4)):
        with pytest.raises(InputError) as error:
            refuse(recipe)
        assert str(error.value).startswith(f"ap-cnn: {message}")
    with pytest.raises(InputError, match=r"encoder\.hidden: 32769: expected 1 or more and below 32769"):
        check_recipe(load_recipe("ap-bilstm", ["encoder.hidden=32769"]))
