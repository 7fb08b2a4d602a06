"""The word-level tokenizer."""

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from aptool.errors import InputError
from aptool.text.tokenizer import PAD, UNK, WordTokenizer

TEXTS = ["The cat sat.", "the cat, the DOG", "a cat"]


def ids(tokenizer, text, limit=None):
    return tokenizer.encode([text], limit).ids.tolist()


def test_frequent_words_have_low_ids():
    tokenizer = WordTokenizer.learn(TEXTS)

    # "the" and "cat" occur three times, the other words once; PAD and UNK come first.
    assert (PAD, UNK) == (0, 1)
    assert tokenizer.words[:2] == ["[PAD]", "[UNK]"]
    assert set(tokenizer.words[2:4]) == {"the", "cat"}
    assert set(tokenizer.words[4:]) == {"sat", ".", ",", "dog", "a"}
    assert len(tokenizer) == 9


def test_texts_split_at_blanks_and_punctuation():
    tokenizer = WordTokenizer.from_words(["it", "'", "s", "3", ".", "14"])

    assert [tokenizer.words[i] for i in ids(tokenizer, "It's  3.14\n")] == ["it", "'", "s", "3", ".", "14"]
    assert tokenizer.split("It's  3.14\n") == ["It", "'", "s", "3", ".", "14"]


def test_lowercasing_is_optional():
    tokenizer = WordTokenizer.learn(TEXTS, lowercase=False)

    assert {"The", "the", "DOG"} <= set(tokenizer.words)
    assert ids(tokenizer, "dog DOG") == [UNK, tokenizer.words.index("DOG")]


def test_rare_words_are_unknown_and_words_can_be_added():
    tokenizer = WordTokenizer.learn(TEXTS, min_count=2, also=["zebra", "cat", "zebra"])

    assert set(tokenizer.words[2:4]) == {"the", "cat"}
    assert tokenizer.words[4:] == ["zebra"]
    assert ids(tokenizer, "the zebra sat") == [tokenizer.words.index("the"), 4, UNK]


@pytest.mark.parametrize("text", ["", "   ", "\n\t", "\u00a0"])
def test_a_text_without_a_word_is_one_unknown_word(text):
    assert ids(WordTokenizer.learn(TEXTS), text) == [UNK]


def test_no_word_has_the_id_of_the_padding():
    tokenizer = WordTokenizer.learn([*TEXTS, "[PAD] [pad] PAD [UNK]"])

    assert PAD not in ids(tokenizer, "[PAD] [pad] PAD pad [ PAD ] [UNK]")


def test_long_texts_are_truncated_and_counted():
    tokenizer = WordTokenizer.from_words(["a", "b"])

    tokens = tokenizer.encode(["a b a b", "", "b b b", "a b a"], limit=3)

    assert [tokens.ids[i:j].tolist() for i, j in zip(tokens.offsets, tokens.offsets[1:], strict=False)] == [
        [2, 3, 2],
        [UNK],
        [3, 3, 3],
        [2, 3, 2],
    ]
    assert tokens.truncated == 1
    assert tokenizer.encode(["a b a b"]).truncated == 0


def test_arrow_arrays_are_encoded_as_lists():
    tokenizer = WordTokenizer.learn(TEXTS)

    for kind in (pa.string(), pa.large_string()):
        tokens = tokenizer.encode(pa.array(TEXTS, kind))
        assert tokens.ids.tolist() == tokenizer.encode(TEXTS).ids.tolist()
    assert len(tokenizer.encode(pa.array([], pa.string()))) == 0


@given(st.lists(st.text(), max_size=8), st.integers(1, 5))
def test_any_text_has_one_to_limit_valid_ids(texts, limit):
    tokenizer = WordTokenizer.learn(TEXTS)

    tokens = tokenizer.encode(texts, limit)

    assert len(tokens) == len(texts)
    assert all(1 <= length <= limit for length in tokens.lengths)
    assert all(UNK <= word < len(tokenizer) for word in tokens.ids)
    # A text is encoded independently of the other texts.
    assert tokens.ids.tolist() == [word for text in texts for word in ids(tokenizer, text, limit)]


def test_a_saved_tokenizer_is_the_same(tmp_path):
    tokenizer = WordTokenizer.learn(TEXTS)
    tokenizer.save(tmp_path / "tokenizer.json")

    loaded = WordTokenizer.load(tmp_path / "tokenizer.json")

    assert loaded.words == tokenizer.words
    for text in (*TEXTS, "", "the Unicorn, sat"):
        assert ids(loaded, text) == ids(tokenizer, text)


@pytest.mark.parametrize("content", ["{", "{}", ""])
def test_a_file_that_is_no_tokenizer_is_refused(tmp_path, content):
    path = tmp_path / "tokenizer.json"
    path.write_text(content)

    with pytest.raises(InputError) as error:
        WordTokenizer.load(path)

    assert str(error.value).startswith(f"{path}: ")
    assert str(error.value).endswith("expected a tokenizer.json")


def test_a_tokenizer_with_other_special_ids_is_refused(tmp_path):
    path = tmp_path / "tokenizer.json"
    WordTokenizer.from_words(["a"]).save(path)
    path.write_text(path.read_text().replace('"[PAD]":0', '"[PAD]":2').replace('"a":2', '"a":0'))

    with pytest.raises(InputError, match=r"expected \[PAD\] with id 0 and \[UNK\] with id 1"):
        WordTokenizer.load(path)


@pytest.mark.parametrize(
    ("changed", "problem"),
    [(7, "ids up to 7, 4 of them different"), (0, "ids up to 4, 4 of them different")],
    ids=["gap", "twice"],
)
def test_a_tokenizer_with_a_gap_or_an_id_twice_is_refused(tmp_path, changed, problem):
    path = tmp_path / "tokenizer.json"
    WordTokenizer.from_words(["a", "b", "c"][: 2 + (not changed)]).save(path)
    path.write_text(path.read_text().replace('"b":3', f'"b":{changed}'))

    with pytest.raises(InputError, match=rf"tokenizer\.json: {problem}; expected each id from 0 to"):
        WordTokenizer.load(path)
