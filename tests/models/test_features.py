"""Pair features and heads, with values computed by hand."""

import math

import numpy as np
import pytest
import torch
from tiny import recipe
from torch import tensor

from aptool.errors import InputError
from aptool.models.build import check_recipe
from aptool.models.features import COLUMNS, HEADS, PairFeatures, WordBags
from aptool.text.tokenizer import WordTokenizer, concatenated
from aptool.training.losses import logistic

# Ten training texts. "the" is in all texts, so it is a function word; "bridge" is twice in one text.
TEXTS = ["the river", "the bridge bridge .", *["the ."] * 8]
IDF_THE, IDF_ONE, IDF_NONE = math.log(1 + 0.5 / 10.5), math.log(1 + 9.5 / 1.5), math.log(1 + 10.5 / 0.5)
MEAN_LENGTH = (2 + 3 + 8) / 10


@pytest.fixture
def tokenizer():
    tokenizer = WordTokenizer.from_words(["the", "river", "bridge", ".", "?"])
    tokenizer.identify_words = True
    return tokenizer


def columns_of(tokenizer, question, *answers):
    """The columns of the pairs of a question and each answer, by name."""
    features = PairFeatures(len(tokenizer), tuple(COLUMNS))
    features.learn(tokenizer, TEXTS)
    bags = (WordBags.of(tokenizer.encode([question])), WordBags.of(tokenizer.encode(list(answers))))
    columns = features(*bags, np.zeros(len(answers), dtype=np.int64), np.arange(len(answers)))
    return dict(zip(COLUMNS, columns.T.tolist(), strict=True))


def test_shares_and_counts_by_hand(tokenizer):
    # The distinct words of the question: the, river, zebra (twice, and without an id), not the "?".
    actual = columns_of(tokenizer, "the river Zebra zebra?", "The zebra. The zebra?", "unicorn ?", "?")

    every, content = IDF_THE + IDF_ONE + IDF_NONE, IDF_ONE + IDF_NONE
    assert actual["overlap"] == pytest.approx([2 / 3, 0, 0])
    assert actual["idf_overlap"] == pytest.approx([(IDF_THE + IDF_NONE) / every, 0, 0])
    assert actual["content_overlap"] == pytest.approx([1 / 2, 0, 0])
    assert actual["idf_content_overlap"] == pytest.approx([IDF_NONE / content, 0, 0])
    assert actual["overlap_count"] == pytest.approx([math.log(2), 0, 0])
    assert actual["idf_overlap_count"] == pytest.approx([math.log(1 + IDF_NONE), 0, 0])
    assert actual["question_length"] == pytest.approx([math.log(5)] * 3)
    assert actual["answer_length"] == pytest.approx([math.log(5), math.log(2), 0])
    assert columns_of(tokenizer, "river", "the river")["overlap"] == [1]


def test_bm25_by_hand(tokenizer):
    # "river" occurs twice among the three words of the answer; "bridge" does not.
    norm = 1.2 * (0.25 + 0.75 * 3 / MEAN_LENGTH)

    actual = columns_of(tokenizer, "river bridge", "river the river")["bm25"]

    assert actual == pytest.approx([math.log(1 + IDF_ONE * 2 / (2 + norm))])


def test_a_question_without_a_word_has_no_overlap(tokenizer):
    actual = columns_of(tokenizer, "?", "the river")

    assert {name: value for name, [value] in actual.items() if value} == {
        "answer_length": pytest.approx(math.log(3))
    }


def test_selected_tokens_keep_their_words(tokenizer):
    tokens = tokenizer.encode(["the zebra ?", "", "zebra", "unicorn the"])

    the, zebra, mark, nothing, again, unicorn, _ = tokens.words.tolist()
    assert (the, mark, nothing) == (2, 0, 0)
    assert zebra == again > len(tokenizer) < unicorn != zebra
    assert tokens.take(np.array([3, 0])).words.tolist() == [unicorn, the, the, zebra, mark]
    assert concatenated([tokens, tokens]).words.tolist() == tokens.words.tolist() * 2
    assert tokenizer.encode(["the zebra ?"], 2).words.tolist() == [the, zebra]
    assert WordTokenizer.from_words(["the"]).encode(["the"]).words is None


def test_a_linear_head_starts_as_the_mean_of_the_pooling():
    head = HEADS["linear"](2, 3, HEADS["linear"].Options())

    assert head(tensor([[0.5, 0.7, 9.0, 9.0, 9.0]])).item() == pytest.approx(0.6)


def test_a_hidden_head_by_hand():
    # tanh(1 · 2 − 1 · 1) and tanh(0), weighed 3 and 5, plus 1.
    head = HEADS["hidden"](1, 1, HEADS["hidden"].Options(size=2))
    weights = {"hidden.weight": tensor([[1.0, -1], [0, 0]]), "hidden.bias": torch.zeros(2)}
    head.load_state_dict({**weights, "output.weight": tensor([[3.0, 5]]), "output.bias": tensor([1.0])})

    assert head(tensor([[2.0, 1]])).item() == pytest.approx(3 * math.tanh(1) + 1)


def test_the_logistic_loss_by_hand():
    # Positive 0: ln 2. Negative ln 3 (probability 3/4): ln 4. Missing negatives are not in the mean.
    scores = tensor([[0.0, math.log(3), -torch.inf], [0.0, math.log(3), 0.0]])

    expected = [math.log(2) + math.log(4), math.log(2) + (math.log(4) + math.log(2)) / 2]
    assert logistic(scores).tolist() == pytest.approx(expected)


def test_the_logistic_loss_has_a_gradient_without_a_negative():
    scores = tensor([[1.0, 0.5]], requires_grad=True)

    logistic(scores.masked_fill(tensor([[False, True]]), -torch.inf)).sum().backward()

    assert scores.grad[0].tolist() == [pytest.approx(-1 / (1 + math.e)), 0]


@pytest.mark.parametrize(
    ("more", "phrase"),
    [
        (("pooling.type=abcnn",), "head.type: 'none': expected one of linear, hidden"),
        (("features.columns=overlap",), "head.type: 'none': expected one of linear, hidden"),
        (("features.columns=overlup", "head.type=linear"), "features.columns: 'overlup': expected some of"),
        (("head.type=hiden",), "head.type: 'hiden': expected one of none, linear, hidden"),
    ],
)
def test_impossible_combination_is_refused(more, phrase):
    with pytest.raises(InputError) as error:
        check_recipe(recipe("qa-cnn", *more))
    assert phrase in str(error.value)
