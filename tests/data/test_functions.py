"""The built-in collection: its questions, answers and pools, and the separation of its splits."""

import hashlib
import itertools
import json
import os
import random
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aptool.data import functions, near_copies
from aptool.data.functions import (
    SourceFile,
    answer_words,
    find_sources,
    import_functions,
    question_of,
    read_functions,
    split_of,
    unfit_question,
)
from aptool.errors import UsageError
from aptool.text.bm25 import BM25

SPLITS = ("train", "dev", "test")


@pytest.mark.parametrize(
    ("docstring", "question"),
    [
        ("Return the index\n    of the first hit. Then stop.", "Return the index of the first hit"),
        ("Split e.g. at commas, i.e. between fields.", "Split e.g. at commas, i.e. between fields"),
        ("Read :class:`~pkg.mod.DataFrame` rows from ``io_buffer``.", "Read Data Frame rows from io buffer"),
        ("See :ref:`the guide <guide-label>` *now*.", "See the guide now"),
        (
            "add(x, y, *, out=None) -> Tensor\n\nAdds two tensors: elementwise",
            "Adds two tensors: elementwise",
        ),
        ("Close the file\n:param f: the file", "Close the file"),
        ("Close the file\nArgs:\n    f: the file", "Close the file"),
        ("Parse an HTTPHeader into its parts:\n\n    name: value", "Parse an HTTP Header into its parts"),
        ("Is it ready? Ask again", "Is it ready"),
        ("Use version 2.0 or later", "Use version 2.0 or later"),
        ("", ""),
    ],
)
def test_the_question_is_the_first_sentence_as_plain_text(docstring, question):
    assert question_of(docstring) == question


@pytest.mark.parametrize(
    ("question", "reason"),
    [
        ("Return the square root", None),
        ("Runs it", "too_short"),
        ("word " * 61, "too_long"),
        ("Gibt die größte Zahl zurück", "not_plain_text"),
        (r"Return \frac{a}{b} in full", "not_plain_text"),
        ("x = [[1, 2], [3, 4]] @ y ** 2", "not_plain_text"),
        ("See the documentation of the parent", "pointing_elsewhere"),
        ("In place version of abs", "pointing_elsewhere"),
    ],
)
def test_unsuitable_questions_have_a_reason(question, reason):
    assert unfit_question(question) == (reason and f"questions_{reason}_dropped")


def test_answers_are_words_of_identifiers_without_the_name_of_the_function():
    source = "(self, maxHTTPRetries=3):  # try again\n    return _get_page(self.get_page, 'no_such Page')"
    expected = "self max http retries 3 try again return self no such page"
    assert " ".join(answer_words(source, "get_page")) == expected


SOURCE = '''
import os

@decorator("secret words here")
def outer(alpha, beta=2):
    """Count every alpha in the beta list.

    More about it.
    """
    def inner(gamma):
        """Inner docstrings are text of another function."""
        return gamma + outer(alpha)
    return [inner(gammaRay) for gammaRay in beta if alpha]

class Thing:
    """A class docstring is no question."""

    if os.name:
        async def fetch(self, url):
            """Fetch the document at the address."""
            return await self.client.get(url, timeout=self.timeout or 10)

    def fetch(self, url):
        """Fetch a thing synchronously by its address."""
        return self.client.get(url, timeout=self.timeout, retries=self.retries)

    def planned(self, first, second, third, fourth, fifth, sixth, seventh, eighth, ninth):
        """Will do something useful one day."""
        raise NotImplementedError

    def tiny(self):
        """Return a rather short answer."""
        return 1
'''


def source_file(path: Path, text: str | bytes) -> SourceFile:
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return SourceFile("package", path.name, path)


def test_functions_of_a_file(tmp_path):
    dropped = Counter()
    outer, fetch, again = read_functions(source_file(tmp_path / "m.py", SOURCE), dropped)
    assert outer.name == "m.py:outer"
    assert outer.question == "Count every alpha in the beta list"
    # Without the decorator, the name, and the docstrings of the function and of its inner function.
    expected = "alpha beta 2 def inner gamma return gamma alpha"
    expected += " return inner gamma ray for gamma ray in beta if alpha"
    assert outer.answer == expected
    assert fetch.name == "m.py:Thing.fetch"
    assert fetch.answer == "self url return await self client get url timeout self timeout or 10"
    assert again.name == "m.py:Thing.fetch~2"
    assert dropped == {"functions_without_body_dropped": 1, "answers_too_short_dropped": 1}


def test_long_answers_are_cut_and_counted(tmp_path):
    text = 'def f(x):\n    """Return a very long list."""\n    return [' + "word, " * 500 + "]"
    dropped = Counter()
    (function,) = read_functions(source_file(tmp_path / "long.py", text), dropped)
    assert len(function.answer.split()) == 400
    assert dropped == {"answers_cut": 1}


def test_sources_hold_no_tests_and_no_vendored_copies():
    names = [source.name for source in find_sources(["click", "torch"])]
    assert {"json/decoder.py", "click/core.py", "torch/nn/functional.py"} <= set(names)
    assert names == sorted(set(names))
    folders = {folder for name in names for folder in name.split("/")[:-1]}
    assert not folders & {"test", "tests", "idle_test", "site-packages", "_vendor", "__pycache__"}


@settings(max_examples=50)
@given(
    st.lists(st.lists(st.sampled_from("abcdefg"), max_size=12), max_size=12),
    st.sampled_from([0.3, 0.4, 0.5, 0.6, 0.7, 1.0]),
    st.sampled_from([1, 3]),
)
def test_the_join_finds_exactly_the_near_pairs(texts, threshold, width):
    sets = near_copies.encode(texts, width)
    runs = [runs_of(text, width) for text in texts]
    expected = [
        (i, j)
        for i, j in itertools.product(range(len(texts)), repeat=2)
        if runs[i] and len(runs[i] & runs[j]) >= threshold * len(runs[i] | runs[j])
    ]
    assert near_copies.near_pairs(sets, sets, threshold) == expected


def runs_of(words, width):
    """The set of runs of words, computed without the code under test."""
    return {tuple(words[i : i + width]) for i in range(max(len(words) - width + 1, min(len(words), 1)))}


def similarity(a, b):
    return len(a & b) / len(a | b)


def plain_words(question):
    """Lower-cased words without articles and final s."""
    text = "".join(letter if letter.isalnum() else " " for letter in question.lower())
    words = [word for word in text.split() if word not in {"a", "an", "the", "this", "that", "its"}]
    return {word[:-1] if word.endswith("s") and len(word) > 3 else word for word in words}


def module_of(split: str, number: int) -> str:
    """The name of a file that belongs to ``split``."""
    names = (f"m{number}_{attempt}.py" for attempt in itertools.count())
    return next(name for name in names if split_of(name) == split)


def definition(name, question, words, prefix=""):
    return f'{prefix}def {name}(x):\n    """{question}."""\n    return {" + ".join(words)}\n\n'


@pytest.fixture(scope="module")
def tree(tmp_path_factory):
    """Files of all splits with random functions, and planted copies within and across splits."""
    draw = random.Random(5)
    vocabulary = ["".join(draw.choices("bcdfgklmnprt", k=6)) for _ in range(600)]
    files = {
        module_of(split, n): "" for split, many in zip(SPLITS, (60, 8, 8), strict=True) for n in range(many)
    }
    for number, name in enumerate(files):
        for index in range(5):
            question = " ".join(draw.sample(vocabulary, 7))
            files[name] += definition(f"f{number}_{index}", question, draw.sample(vocabulary, 25))
    first = {split: module_of(split, 0) for split in SPLITS}
    body = draw.sample(vocabulary, 25)
    twin = [*body[:24], "other"]
    # The same answer twice; a synchronous and an asynchronous twin; a nearly equal question; one question
    # with two answers.
    for split, name, question, words in (
        ("train", "same", "Compute the frobnicated answer of everything", body),
        ("test", "same", "Give whatever was asked for earlier", body),
        ("train", "near", "Open the big red door of a house", draw.sample(vocabulary, 25)),
        ("test", "near", "Opens the big red doors of the house", draw.sample(vocabulary, 25)),
        ("train", "left", "Turn the large wheel to the left", draw.sample(vocabulary, 25)),
        ("test", "right", "Turn the large wheel to the right", draw.sample(vocabulary, 25)),
    ):
        files[first[split]] += definition(name, question, words)
    files[first["dev"]] += definition("twin", "Wait for the slow remote machine", twin, "async ")
    # Two versions of a function.
    words = [f"value{letter}" for letter in "abcdefghijkl"]
    files[first["train"]] += definition("get", "Ask the server for its time", words)
    later = definition("get_later", "Asks the server for the time", [*words[:11], "more"], "async ")
    files[first["train"]] += later
    folder = tmp_path_factory.mktemp("tree")
    return [source_file(folder / name, text) for name, text in files.items()]


@pytest.fixture(scope="module")
def built(tree, tmp_path_factory):
    """The collection of these files."""
    folder = tmp_path_factory.mktemp("functions") / "out"
    import_functions(folder, sources=tree)
    return folder


def contents(folder):
    """Rows and pools per split, and all answers.

    A row is (question id, question, relevant answer id, relevant answer).
    """
    table = pq.read_table(folder / "answers.parquet")
    texts = dict(zip(table["answer_id"].to_pylist(), table["text"].to_pylist(), strict=True))
    rows, pools = {}, {}
    for split in SPLITS:
        lines = (folder / f"{split}.qrels").read_text().splitlines()
        gold = {question_id: answer for question_id, _, answer, _ in map(str.split, lines)}
        records = pq.read_table(folder / f"{split}.pools.parquet").to_pylist()
        names = [(record["question_id"], record["question"]) for record in records]
        rows[split] = [(name, question, gold[name], texts[gold[name]]) for name, question in names]
        pools[split] = {r["question_id"]: [c["answer_id"] for c in r["candidates"]] for r in records}
    return rows, pools, texts


def assert_splits_apart(rows):
    """Check by brute force that no two splits have the same text or near copies."""
    for pair in itertools.combinations(SPLITS, 2):
        sides = [
            [(row[0], plain_words(row[1]), runs_of(row[3].split(), 3)) for row in rows[split]]
            for split in pair
        ]
        for a, b in itertools.product(*sides):
            assert similarity(a[1], b[1]) < 0.6, (a[0], b[0])
            assert similarity(a[2], b[2]) < 0.4, (a[0], b[0])


def test_no_two_splits_share_a_text_or_near_copies(built):
    rows_by_split, _, _ = contents(built)
    assert_splits_apart(rows_by_split)
    names = {row[0].split(":")[1]: split for split in SPLITS for row in rows_by_split[split]}
    # Of each planted pair, the function of the later split stays; of a question with two answers, neither.
    assert names["same"] == "test"
    assert "twin" not in names
    assert "near" not in names
    assert names["right"] == "test"
    assert "left" not in names
    assert ("get" in names) != ("get_later" in names)
    policies = json.loads((built / "collection.json").read_text())["policies"]
    assert policies["near_copies_of_same_question_dropped"] == {"train": 1}
    assert policies["answers_repeated_dropped"] == {"train": 1}
    assert policies["near_copies_of_later_split_dropped"] == {"train": 1, "dev": 1}
    assert policies["questions_repeated_dropped"] == {"train": 1, "test": 1}
    # 76 files of 5 functions, and three of the 9 planted functions, two of them in test.
    sizes = {split: len(rows) for split, rows in rows_by_split.items()}
    assert sizes == {"train": 301, "dev": 40, "test": 42}


def test_a_pool_has_the_relevant_answer_and_the_best_of_its_split(built):
    rows_by_split, pools, _ = contents(built)
    for split, rows in rows_by_split.items():
        answers = {gold: answer for _, _, gold, answer in rows}
        ids = list(answers)
        index = BM25([answers[answer_id] for answer_id in ids])
        for question_id, question, gold, _ in rows:
            pool = pools[split][question_id]
            assert gold in pool
            assert len(pool) == len(set(pool)) == min(100, len(ids))
            # The ids, and so the order, depend only on the texts of the answers.
            assert pool == sorted(pool)
            scores = dict(zip(ids, index.scores(question).tolist(), strict=True))
            outside = max((scores[a] for a in set(ids) - set(pool)), default=0)
            assert min(scores[a] for a in pool if a != gold) >= outside


def digests(folder):
    return {file.name: hashlib.sha256(file.read_bytes()).hexdigest() for file in sorted(folder.iterdir())}


def test_the_same_files_in_another_folder_give_the_same_bytes(tree, built, tmp_path):
    folder = tmp_path / "other"
    folder.mkdir()
    moved = [source_file(folder / source.name, source.path.read_bytes()) for source in reversed(tree)]
    import_functions(tmp_path / "two", sources=moved)
    assert digests(built) == digests(tmp_path / "two")


def test_a_limit_samples_the_splits_in_proportion(tree, tmp_path):
    with pytest.raises(UsageError, match="limit 99: expected at least 100"):
        import_functions(tmp_path / "out", 99, sources=tree)
    assert not (tmp_path / "out").exists()
    import_functions(tmp_path / "out", 100, sources=tree)
    sizes = json.loads((tmp_path / "out" / "collection.json").read_text())["splits"]
    # 91, 3 and 6 percent.
    assert {split: size["questions"] for split, size in sizes.items()} == {"train": 91, "dev": 3, "test": 6}


def test_installed_packages_in_small(aptool, tmp_path, monkeypatch):
    """Real text gives the same bytes in processes with different hash seeds, and separate splits."""
    monkeypatch.setattr(functions, "PACKAGES", ("click", "numpy"))
    finished = aptool("data", "functions", "--limit", 200, "--output", tmp_path / "1")
    assert finished.code == 0, finished.err
    code = f"""if True:
        from aptool.data import functions
        functions.PACKAGES = {functions.PACKAGES}
        functions.import_functions({str(tmp_path / "2")!r}, 200)
    """
    subprocess.run([sys.executable, "-c", code], env={**os.environ, "PYTHONHASHSEED": "2"}, check=True)
    assert digests(tmp_path / "1") == digests(tmp_path / "2")
    rows_by_split, pools, texts = contents(tmp_path / "1")
    assert_splits_apart(rows_by_split)
    rows = [row for split in SPLITS for row in rows_by_split[split]]
    assert 150 <= len(rows) <= 200
    for column in range(4):
        assert len({row[column] for row in rows}) == len(rows)
    assert set(texts) == {answer for split in SPLITS for pool in pools[split].values() for answer in pool}
    details = json.loads((tmp_path / "1" / "collection.json").read_text())["details"]
    assert sum(details["functions_per_package"].values()) == len(rows)
