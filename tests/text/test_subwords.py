"""Subword tokens: special tokens around a text, truncation, and the word that each token belongs to."""

import pytest
from networks import IDS, piece_tokenizer
from tokenizers import processors

from aptool.text.tokenizer import SubwordTokenizer

CLS, SEP, UNK = IDS["[CLS]"], IDS["[SEP]"], IDS["[UNK]"]


@pytest.fixture
def pieces():
    return SubwordTokenizer(piece_tokenizer())


def ids(*words):
    return [IDS[word] for word in words]


def test_a_text_is_between_its_special_tokens(pieces):
    tokens = pieces.encode(["Where is the river?", "", "zebra"])

    assert tokens.ids[: tokens.offsets[1]].tolist() == [
        CLS,
        *ids("where", "is", "the", "riv", "##er", "?"),
        SEP,
    ]
    assert tokens.ids[tokens.offsets[1] :].tolist() == [CLS, SEP, CLS, UNK, SEP]
    assert (pieces.unknown, pieces.prefix_length, pieces.suffix_length, len(pieces)) == (UNK, 1, 1, len(IDS))


def test_truncation_keeps_the_special_token_at_the_end(pieces):
    tokens = pieces.encode(["the river is the garden", "the garden"], limit=5)

    assert tokens.ids.tolist() == [CLS, *ids("the", "riv", "##er"), SEP, CLS, *ids("the", "garden"), SEP]
    assert tokens.truncated == 1


def test_subword_tokens_belong_to_words(pieces):
    # [CLS] where is riv ##er ? [SEP]
    assert pieces.word_indices("where is River?").tolist() == [-1, 0, 1, 2, 2, 3, -1]
    assert pieces.split("where is River?") == ["where", "is", "River", "?"]
    assert pieces.word_indices("").tolist() == [-1, -1]


def test_a_tokenizer_without_special_tokens():
    bare = piece_tokenizer()
    bare.post_processor = processors.TemplateProcessing(single="$A", pair="$A $B:1", special_tokens=[])

    pieces = SubwordTokenizer(bare)

    assert (pieces.prefix_length, pieces.suffix_length) == (0, 0)
    # A text without tokens becomes one unknown token.
    assert pieces.encode(["", "the garden"]).ids.tolist() == [UNK, *ids("the", "garden")]
