"""Heat maps: weights by hand and from the model, and the spans of words."""

from itertools import pairwise
from unicodedata import normalize

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tiny import SYSTEMS, recipe

from aptool.models.build import build_ranker
from aptool.models.explain import TextWeights, explain_pairs, window_of
from aptool.models.model import LoadedModel
from aptool.models.ragged import Ragged
from aptool.text.tokenizer import WordTokenizer

WORDS = ["one", "two", "red", "green", "blue", ",", "?"]

# States of the words (window 1 and an identity for a convolution: a state is its word's vector), and U:
#
#   one = (0, 2), two = (1, 1)          red = (0, 0), green = (2, -1), blue = (-1, 0)
#   U = 1/2  1
#       1/4  0
#
#   Qᵀ U A =  0   1   -1/2     its tanh, G =  0  .761594  -.462117
#             0  1/2  -3/4                    0  .462117  -.635149
#
#   maxima over the answer:   1, 1/2        g_q = .761594, .462117      exp: 2.141688, 1.587430
#   maxima over the question: 0, 1, -1/2    g_a = 0, .761594, -.462117  exp: 1, 2.141688, .629949
#   σ_q = 2.141688/3.729118, 1.587430/3.729118;  σ_a = each of the last three by their sum, 3.771637
VECTORS = {"one": (0.0, 2.0), "two": (1.0, 1.0), "red": (0.0, 0.0), "green": (2.0, -1.0), "blue": (-1.0, 0.0)}
U = [[0.5, 1.0], [0.25, 0.0]]
SIGMA_Q = [0.574315, 0.425685]
SIGMA_A = [0.265137, 0.567840, 0.167023]
# The weighted sums are r_q = (.425685, 1.574315), r_a = (.968658, -.567840): inner product -.481614, lengths
# 1.630851 and 1.122825.
SCORE = -0.481614 / (1.630851 * 1.122825)


def model(system: str, *more: str, seed: int = 1) -> LoadedModel:
    torch.manual_seed(seed)
    of = recipe(system, *more)
    ranker = build_ranker(of, len(WORDS) + 2, of.vectors.dim).eval()
    return LoadedModel(ranker, WordTokenizer.from_words(WORDS), of, {}, "")


@pytest.fixture
def by_hand():
    """The system of the example, with its pooling or another pooling."""

    def make(system: str, pooling: str = "", *more: str) -> LoadedModel:
        options = ["encoder.features=2", "encoder.window=1", "vectors.dim=2", *more]
        loaded = model(system, *options, *([f"pooling.type={pooling}"] if pooling else []))
        weights = loaded.ranker.state_dict()
        for word, vector in VECTORS.items():
            weights["encoder.embedding.weight"][WORDS.index(word) + 2] = torch.tensor(vector)
        weights["encoder.convolution.weight"].copy_(torch.eye(2))
        weights["encoder.convolution.bias"].zero_()
        if "pooling.U" in weights:
            weights["pooling.U"].copy_(torch.tensor(U))
        return loaded

    return make


def test_attention_of_a_pair_by_hand(by_hand):
    (explanation,) = explain_pairs(by_hand("ap-cnn"), [("One two", "red green blue")])

    assert explanation.question.weights == pytest.approx(SIGMA_Q, abs=1e-6)
    assert explanation.answer.weights == pytest.approx(SIGMA_A, abs=1e-6)
    assert explanation.score == pytest.approx(SCORE, abs=1e-5)


def test_matched_tokens_by_hand(by_hand):
    """One = (0, 1), two = (1, 1)/√2; red = 0, green = (2, -1)/√5, blue = (-1, 0).

    The cosines of one are 0, -.447214 and 0, those of two are 0, .316228 and -.707107.
    """
    texts = [("One two", "red green blue")]
    explanations = {
        kind: explain_pairs(by_hand("qa-cnn", kind), texts)[0] for kind in ("maxsim", "mean-maxsim")
    }

    for explanation in explanations.values():
        assert explanation.kind == "matches"
        assert explanation.answer.weights.sum() == pytest.approx(1)
    assert explanations["maxsim"].score == pytest.approx((0 + 0.316228) / 2, abs=1e-6)
    assert explanations["maxsim"].question.weights == pytest.approx([1 / 2, 1 / 2])
    assert explanations["maxsim"].answer.weights == pytest.approx([1 / 2, 1 / 2, 0])
    # The means of the states are (1, 3) / 2 and (1, -1) / 3, whose cosine is -1 / √5.
    assert explanations["mean-maxsim"].score == pytest.approx((-0.447214 + 0.158114) / 2, abs=1e-6)
    assert explanations["mean-maxsim"].answer.weights == pytest.approx([1 / 2, 1 / 2, 0])


def test_max_pooling_has_shares_of_the_features(by_hand):
    # Question: feature 1 goes to two (1 > 0), feature 2 to one (2 > 1). Answer: feature 1 to green; for
    # feature 2 red and blue tie at 0, half of it each.
    (explanation,) = explain_pairs(by_hand("qa-cnn"), [("one two", "red green blue")])

    assert explanation.question.weights.tolist() == [0.5, 0.5]
    assert explanation.answer.weights.tolist() == [0.25, 0.5, 0.25]
    assert explanation.kind == "max_pooling"


PAIRS = [
    ("one", "red"),
    ("two one ?", "red green , blue red green"),
    ("one two , red", "blue"),
    ("?", "red , green , blue , one , two , red , green ?"),
]


@pytest.mark.parametrize("system", SYSTEMS)
def test_weights_of_a_text_sum_to_one(system):
    for explanation in explain_pairs(model(system), PAIRS):
        for side in (explanation.question, explanation.answer):
            assert len(side.weights) == len(side.words)
            assert side.weights.min() >= 0
            assert side.weights.sum() == pytest.approx(1, abs=1e-6)


@pytest.mark.parametrize(
    ("window", "first", "middle", "last"),
    [
        (1, "one", "red", "blue"),
        (2, "one two", "red, green", "blue"),
        (3, "one two", "two red, green", "green blue"),
        (4, "one two red", "two red, green blue", "green blue"),
    ],
)
def test_windows_are_mapped_back_to_the_text(window, first, middle, last):
    # An even window has one word more on the right. Windows that span the comma contain it.
    text = "one two red, green blue"
    words = ["one", "two", "red", "green", "blue"]
    spans = tuple((text.index(word), text.index(word) + len(word)) for word in words)
    field = window_of(model("ap-cnn", f"encoder.window={window}").ranker.encoder)
    answer = TextWeights(text, spans, torch.full((5,), 0.2).double().numpy(), frozenset(), field)

    assert [answer.window_text(word) for word in (0, 2, 4)] == [first, middle, last]


@pytest.mark.parametrize("window", [1, 2, 3, 4, 5])
def test_a_receptive_field_has_exactly_the_words_that_its_state_depends_on(window):
    made = model("ap-cnn", f"encoder.window={window}")
    text = "one two red green blue"
    (explanation,) = explain_pairs(made, [("one", text)])
    ids = torch.tensor([2, 3, 4, 5, 6])
    states = made.ranker.encoder(Ragged.join([ids])).values
    for word in range(5):
        other = ids.clone()
        other[word] = 7
        changed = (made.ranker.encoder(Ragged.join([other])).values != states).any(1)

        fields = [explanation.answer.window_text(state).split() for state in range(5)]
        assert changed.tolist() == [text.split()[word] in field for field in fields]


def test_unknown_and_truncated_words():
    limited = model("ap-cnn", "text.max_answer_tokens=3")
    (explanation,) = explain_pairs(limited, [("one 😀 two", "Red עברית green blue, blue")])

    assert [explanation.question.words[index] for index in explanation.question.unknown] == ["😀"]
    assert [explanation.answer.words[index] for index in explanation.answer.unknown] == ["עברית"]
    assert explanation.answer.words == ["Red", "עברית", "green", "blue", ",", "blue"]
    assert (len(explanation.answer.weights), explanation.answer.truncated) == (3, 3)
    assert explanation.answer.weights.sum() == pytest.approx(1, abs=1e-6)
    (empty,) = explain_pairs(model("ap-cnn"), [("one", "  \t")])
    assert (empty.answer.weights.tolist(), empty.answer.unknown, empty.answer.truncated) == ([1.0], {0}, 0)


@given(st.one_of(st.text(), st.text("e\u0301\u0323=\u0338 I\u0307\u212b\u0915\u093c\u0958x-")))
def test_spans_are_the_positions_of_the_words(text):
    tokenizer = WordTokenizer.from_words(WORDS)
    words, spans, written = tokenizer.split(text), tokenizer.spans(text), tokenizer.written(text)

    assert written == normalize("NFC", text)
    assert [written[begin:end] for begin, end in spans] == words
    assert all(end <= begin for (_, end), (begin, _) in pairwise(spans))
    assert len(words) in (len(tokenizer.encode([text]).ids), 0)


def side(*weights: float) -> TextWeights:
    text = "a " * len(weights)
    spans = tuple((2 * i, 2 * i + 1) for i in range(len(weights)))
    return TextWeights(text, spans, torch.tensor(weights).double().numpy(), frozenset(), (0, 0))


def test_colour_ranges_from_the_smallest_weight_to_the_largest():
    assert side(0.1, 0.6, 0.3).intensities == pytest.approx([0, 1, 0.4], abs=1e-6)


def test_nearly_equal_weights_are_nearly_colourless():
    # Uniform weights are 0.25; the range of 0.01 is 0.16 of a quarter of 0.25.
    assert side(0.25, 0.255, 0.25, 0.245).intensities.max() == pytest.approx(0.16, abs=1e-6)
    assert side(0.5, 0.5).intensities.tolist() == [0, 0]
    assert side(0.2, 0.3, 0.2, 0.3).strongest(3) == [1, 3, 0]  # ties in text order
