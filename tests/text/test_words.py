"""Words: marks stay with their letters; bigrams as of Lucene's CJK analyzer; in BM25 and in word systems."""

import json
import math
import re
import unicodedata
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import aptool as library
from aptool.errors import AptoolError
from aptool.text.tokenizer import WordTokenizer
from aptool.text.words import bigram_words, has_words, separate_bigrams, unicode_words

LANGUAGES = Path(__file__).parents[2] / "examples" / "languages"

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
@pytest.mark.parametrize("form", ["NFC", "NFD"])
def test_combining_marks_stay_with_their_letters(text, form):
    expected = [unicodedata.normalize("NFC", word) for word in WORDS[text].split()]

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


def test_bm25_matches_words_with_combining_marks():
    """Split at its vowel signs, the question would match the second answer, of single letters."""
    pools = library.Pools({"q": ("हिन्दी भाषा", {"a": "हिन्दी लिपि", "b": "ह न द भ ष"})})

    scores = library.bm25_run(pools).to_dict()["q"]

    # हिन्दी is in one of two answers, of 2 and 5 words.
    assert scores["a"] == pytest.approx(math.log(1 + 1.5 / 1.5) / (1 + 1.2 * (0.25 + 0.75 * 2 / 3.5)))
    assert scores["b"] == 0


# Inputs and tokens of Lucene's TestCJKAnalyzer (testJa1, testJa2, testC, testMix, testMix2), and of Hangul.
LUCENE = {
    "一二三四五六七八九十": "一二 二三 三四 四五 五六 六七 七八 八九 九十",
    "一 二三四 五六七八九 十": "一 二三 三四 五六 六七 七八 八九 十",
    "abc defgh ijklmn opqrstu vwxy z": "abc defgh ijklmn opqrstu vwxy z",
    "あいうえおabcかきくけこ": "あい いう うえ えお abc かき きく くけ けこ",
    "あいうえおabんcかきくけ こ": "あい いう うえ えお ab ん c かき きく くけ こ",
    "안녕하세요 한글입니다": "안녕 녕하 하세 세요 한글 글입 입니 니다",
}


@pytest.mark.parametrize("text", LUCENE)
def test_bigrams_are_those_of_lucene(text):
    assert bigram_words(text) == LUCENE[text].split()


def test_scripts_are_joined_and_other_words_kept():
    text = "東京タワー2020、ＴＯＫＹＯ Tower・𠮷野家で々"

    assert bigram_words(text) == [
        *("東京", "京タ", "タワ", "ワー", "2020", "ｔｏｋｙｏ", "tower"),
        *("𠮷野", "野家", "家で", "で々"),
    ]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("ที่นี่ดี", "ที่นี่ นี่ดี"),  # letters keep their vowels and tones
        ("ไทย2020 ก", "ไท ทย 2020 ก"),
        ("ភាសា", "ភាសា"),
        ("ပြည်", "ပြည်"),
        ("ไทย東京", "ไท ทย 東京"),
        (unicodedata.normalize("NFD", "がぎ 한글날"), "がぎ 한글 글날"),
    ],
)
def test_bigrams_of_letters_with_marks(text, expected):
    assert bigram_words(text) == expected.split()


@given(st.text())
def test_text_without_these_scripts_does_not_change_and_bigrams_are_stable(text):
    once = separate_bigrams(text)

    assert bigram_words(once) == bigram_words(text)
    latin = text.encode("ascii", "ignore").decode()
    assert bigram_words(latin) == unicode_words(latin)


@pytest.mark.parametrize(
    ("text", "separate"),
    [
        ("where is it", True),
        ("북경은 어디에 있습니까", True),  # Korean has spaces
        ("北京 在 哪里", True),  # words separated by spaces
        ("北京在哪里有", False),
        ("東京タワーはどこですか", False),
        ("北 京 在 哪 里", False),  # characters separated by spaces
        ("Python入門はどこですか", False),
        ("เมืองหลวงของประเทศไทย", False),
        ("เมืองหลวง ของ ประเทศไทย", True),  # words separated by spaces
        ("भारत की राजधानी", True),
        ("a b ?", False),
        ("", False),
    ],
)
def test_questions_without_words_are_recognized(text, separate):
    assert has_words(text) == separate


# The relevant answer is first, except in the last question of zh (rank 4: it shares no bigram, and the other
# three do) and in the fourth of ja (rank 2: 日本で一番高い山 shares four bigrams with the question).
BY_HAND = {"zh": (1 + 1 + 1 + 1 + 1 / 4) / 5, "ja": (1 + 1 + 1 + 1 / 2 + 1) / 5}


@pytest.mark.parametrize("language", BY_HAND)
def test_figures_by_hand(aptool, tmp_path, monkeypatch, language):
    """With unicode words, a text is one word: all scores are 0, and the relevant answer has the lowest id."""
    monkeypatch.chdir(tmp_path)
    aptool("data", "import", "table", f"dev={LANGUAGES / language}.csv", "--output", "data")

    finished = aptool("score", "data/dev.pools.parquet", "--model", "bm25", "--words", "bigrams")
    default = aptool("score", "data/dev.pools.parquet", "--model", "bm25", "--output", "unicode.run")

    assert (finished.code, default.code) == (0, 0), finished.err
    measured = [library.evaluate("data/dev.qrels", run, "MAP").means["MAP"] for run in RUNS]
    assert measured == pytest.approx([BY_HAND[language], 1 / 4])
    assert json.loads(Path("data/dev.run.json").read_text())["system"]["words"] == "bigrams"
    assert "words" not in json.loads(Path("unicode.run.json").read_text())["system"]


RUNS = ["data/dev.run", "unicode.run"]


def test_words_belong_to_bm25(aptool, collection_folder, tmp_path):
    pools = collection_folder / "dev.pools.parquet"
    output = ["--output", tmp_path / "dev.run"]

    finished = aptool("score", pools, "--model", "random", "--words", "bigrams", *output)

    assert finished.code == 2
    assert finished.err[-1] == "aptool: --words: requires the model bm25"


@pytest.mark.parametrize("language", BY_HAND)
def test_check_warns_of_questions_without_words(aptool, tmp_path, language):
    aptool("data", "import", "table", f"dev={LANGUAGES / language}.csv", "--output", tmp_path / "data")

    finished = aptool("data", "check", tmp_path / "data")

    assert finished.code == 0
    (line,) = [line for line in finished.err if "separate words" in line]
    assert line.startswith("dev: warning: 5 of 5 questions have no separate words")


def test_wrong_words_are_refused():
    pools = library.Pools({"q": ("a-b c", {"x": "a b", "y": "a-b"})})

    with pytest.raises(AptoolError, match=r"^words: 'bigram': expected one of unicode, bigrams$"):
        library.bm25_run(pools, words="bigram")
