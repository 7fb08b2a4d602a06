"""The bytes per answer in the table of an experiment: those that `aptool encode` writes."""

import pyarrow as pa
import pytest
import torch
from tiny import OVER_STATES

from aptool.config import load_recipe
from aptool.experiments.trial import bytes_per_answer
from aptool.models.build import build_ranker
from aptool.models.model import LoadedModel
from aptool.models.pooling import MeanPooling
from aptool.scoring.answer_store import AnswerStore
from aptool.scoring.encode import AnswerEncoder
from aptool.text.tokenizer import WordTokenizer

# Texts of 3, 1 and 18 words: 22 tokens, or 64 rows with padding to multiples of 16.
TEXTS = ["a river bank", "silver", " ".join(["bridge"] * 18)]
NUMBERS = 6 * 4  # bytes of a row of six features
ROWS = {"mean": 3, "max": 3, "first": 3, "mean-maxsim": 25}


def loaded(*options):
    tokenizer = WordTokenizer.from_words(["a", "river", "bank", "silver", "bridge"])
    recipe = load_recipe("qa-cnn", ["encoder.features=6", *options])
    torch.manual_seed(1)
    ranker = build_ranker(recipe, len(tokenizer), 5).eval()
    return LoadedModel(ranker, tokenizer, recipe, {}, "0" * 16)


@pytest.mark.parametrize("pooling", OVER_STATES)
def test_bytes_per_answer_are_those_of_the_store(pooling, tmp_path):
    model = loaded(f"pooling.type={pooling}")
    store = AnswerStore(tmp_path, "fp32", model.fingerprint)

    stored = AnswerEncoder(model, store, "cpu", None).encode(pa.array(TEXTS))
    size = bytes_per_answer(model, model.tokenizer.encode(TEXTS, 200))

    assert size == stored.size / len(TEXTS) == ROWS.get(pooling, 22) * NUMBERS / len(TEXTS)


def test_a_text_is_encoded_once_before_it_is_written(tmp_path):
    model = loaded("pooling.type=mean")
    encoder = AnswerEncoder(model, AnswerStore(tmp_path, "fp32", model.fingerprint), "cpu", None)

    first = encoder.encode(pa.array(TEXTS))
    again = encoder.encode(pa.array([*TEXTS, "a bridge"]))

    assert (first.texts, first.encoded) == (3, 3)
    assert (again.texts, again.encoded) == (4, 1)


def test_a_projection_takes_fewer_bytes():
    model = loaded("pooling.type=maxsim", "pooling.dim=2")

    assert bytes_per_answer(model, model.tokenizer.encode(TEXTS, 200)) == 22 * 2 * 4 / 3


def test_a_pooling_with_wider_vectors_takes_their_bytes(tmp_path):
    class WidePooling(MeanPooling):
        """r = the mean of the states, twice."""

        def represent(self, states):
            return super().represent(states).repeat(1, 2)

    model = loaded("pooling.type=mean")
    model.ranker.pooling = WidePooling(6, WidePooling.Options())
    store = AnswerStore(tmp_path, "fp32", model.fingerprint)

    stored = AnswerEncoder(model, store, "cpu", None).encode(pa.array(TEXTS))
    size = bytes_per_answer(model, model.tokenizer.encode(TEXTS, 200))

    assert size == stored.size / len(TEXTS) == 2 * NUMBERS
