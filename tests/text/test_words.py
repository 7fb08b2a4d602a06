"""Words: marks stay with their letters, in BM25 and in word systems."""

import re
import unicodedata

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from aptool.text.tokenizer import WordTokenizer
from aptool.text.words import unicode_words

# Texts, and their words by hand.
WORDS = {
    "हिन्दी में क़िला": "हिन्दी में क़िला",  # vowel signs, virama, nukta
    "தமிழ் மொழி, எங்கே?": "தமிழ் மொழி எங்கே",
    "ภาษาไทย ที่นี่": "ภาษาไทย ที่นี่",  # vowels and tones above the letters
    "مَنْ كَتَبَ الكِتَابَ؟": "مَنْ كَتَبَ الكِتَابَ",
    "בְּרֵאשִׁית בָּרָא": "בְּרֵאשִׁית בָּרָא",
    "می‌خواهم": "می‌خواهم",  # a zero-width non-joiner is within a word
    "İstanbul ISPARTA Iğdır": "istanbul isparta iğdır",  # I is i in every language
    "ΟΔΟΣ Ὀδός": "οδος ὀδός",
    "Straße STRASSE": "straße strasse",  # lower case is no case folding
    "CAFÉ Ångström": "café ångström",
    "km² 1½ ﬁn": "km² 1½ ﬁn",  # NFC, not NFKC
    "I ❤️ it": "i it",  # a mark without a letter is no word
    "snake_case a‿b don't x-y": "snake_case a‿b don t x y",
}


@pytest.mark.parametrize("text", WORDS)
def test_combining_marks_stay_with_their_letters(text):
    expected = [unicodedata.normalize("NFC", word) for word in WORDS[text].split()]

    for form in ("NFC", "NFD"):
        assert unicode_words(unicodedata.normalize(form, text)) == expected


@given(st.text(st.characters(codec="utf-8"), max_size=20))
def test_canonically_equivalent_texts_have_equal_words(text):
    assert unicode_words(unicodedata.normalize("NFD", text)) == unicode_words(text)


@given(st.text(st.characters(codec="ascii")))
def test_words_of_english_are_runs_of_letters_digits_and_underscores(text):
    assert unicode_words(text) == re.findall(r"[a-z0-9_]+", text.lower())


SCRIPTS = "aZéßİIıΣςé़िक்தมิ่กำบَشּש\u200c_‿東かが한1२ .-’"
# A word begins with a letter or digit; a token of the library may begin with marks.
BEGINNING = re.compile(r"^[^\w]+")


@given(st.text(st.sampled_from(SCRIPTS), max_size=15))
def test_words_of_bm25_are_those_of_trained_systems(text):
    tokenizer = WordTokenizer.learn([text])
    tokens = [tokenizer.words[number] for number in tokenizer.encode([text]).ids]
    of_library = [BEGINNING.sub("", word) for word in tokens if word != "[UNK]"]

    assert unicode_words(text) == [word for word in of_library if word]
    assert len(tokenizer.split(text) or [""]) == len(tokens)


def test_trained_systems_know_the_other_spelling_of_a_word():
    """Both spellings of é, and both cases of İ and Σ, are in the vocabulary once."""
    texts = ["café İSTANBUL ΟΔΟΣ", unicodedata.normalize("NFD", "CAFÉ istanbul οδος")]
    tokenizer = WordTokenizer.learn(texts)

    assert sorted(tokenizer.words[2:]) == ["café", "istanbul", "οδος"]
    first, second = np.split(tokenizer.encode(texts).ids, 2)
    assert first.tolist() == second.tolist()


def test_case_is_kept_where_a_recipe_keeps_it():
    tokenizer = WordTokenizer.learn([unicodedata.normalize("NFD", "É é")], lowercase=False)

    assert sorted(tokenizer.words[2:]) == ["É", "é"]
