"""The bytes per encoded answer in the table of an experiment."""

import pytest
import torch
from tiny import OVER_STATES

from aptool.config import load_recipe
from aptool.models.build import build_ranker
from aptool.scoring.ranker_scorer import RankerScorer
from aptool.text.tokenizer import WordTokenizer

# Texts of 3, 1 and 18 words: 22 tokens.
TEXTS = ["a river bank", "silver", " ".join(["bridge"] * 18)]
TOKENIZER = WordTokenizer.from_words(["a", "river", "bank", "silver", "bridge"])
NUMBERS = 6 * 4  # bytes of a row of six features
ROWS = {"mean": 3, "max": 3, "mean-maxsim": 25}


def ranker_with(*options):
    torch.manual_seed(1)
    return build_ranker(load_recipe("qa-cnn", ["encoder.features=6", *options]), len(TOKENIZER), 5).eval()


def bytes_per_answer(ranker):
    return RankerScorer(ranker).bytes_per_answer(TOKENIZER.encode(TEXTS, 200))


@pytest.mark.parametrize("pooling", OVER_STATES)
def test_an_answer_takes_a_row_per_token_or_per_text(pooling):
    ranker = ranker_with(f"pooling.type={pooling}")

    assert bytes_per_answer(ranker) == ROWS.get(pooling, 22) * NUMBERS / len(TEXTS)


def test_a_projection_takes_fewer_bytes():
    assert bytes_per_answer(ranker_with("pooling.type=maxsim", "pooling.dim=2")) == 22 * 2 * 4 / 3
