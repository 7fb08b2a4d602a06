"""Questions and answers that two splits share, and folds that keep near copies together."""

from pathlib import Path

import pytest
from imported import DATA, needs_data

from aptool.data.check import find_leaks
from aptool.data.collection import Collection
from aptool.data.folds import labelled_pools, write_folds
from aptool.data.near_copies import assign
from aptool.data.writing import LabelledPool, write_collection
from aptool.errors import AptoolError, InputError


def pool(name, question, relevant="it is so", other="it is not"):
    return LabelledPool(name, question, [f"{name}-1", f"{name}-0"], [relevant, other], {f"{name}-1": 1})


@pytest.fixture
def leaky(tmp_path):
    """Three test questions: one is in train, one is in train with another tenth word, one is new."""
    long = "one two three four five six seven eight nine"
    splits = {
        "train": [pool("a", "Who is it?"), pool("b", f"{long} ten", "another answer")],
        "test": [
            pool("x", "who is it", "It is so."),
            pool("y", f"{long} eleven", "entirely new words"),
            pool("z", "unheard of"),
        ],
    }
    write_collection(tmp_path / "leaky", splits, name="leaky", source="by hand")
    return Collection(tmp_path / "leaky")


def test_same_and_near_questions_are_counted(leaky):
    (leak,) = find_leaks(leaky)

    # 9 words shared of 11: a similarity of .818; "It is so." has the words of train's "it is so".
    assert (leak.split, leak.earlier) == ("test", "train")
    assert leak.questions == (3, 1, 2)
    assert leak.answers == (2, 1, 1)
    assert leak.examples == [("x", "a"), ("y", "b")]


def test_the_command_counts_the_leaks(aptool, leaky):
    finished = aptool("data", "check", leaky.path, "--leaks")

    assert finished.code == 0, finished.err
    assert any("2 of 3 questions of test" in line for line in finished.out)


def test_near_copies_stay_together_and_folds_are_even():
    long = "one two three four five six seven eight nine"
    questions = [f"{long} ten", "a b", f"{long} eleven", "c d", "e f", "g h"]

    fold_of = assign(questions, list("uvwxyz"), [1, 1, 1])

    assert fold_of[0] == fold_of[2]
    assert sorted(fold_of.count(fold) for fold in range(3)) == [2, 2, 2]
    assert fold_of == assign(questions, list("uvwxyz"), [1, 1, 1])


def test_folds_are_collections_that_hold_every_question_once(collection, tmp_path):
    folds = write_folds(collection, tmp_path / "folds", folds=4)

    every = [p.question_id for split in ("train", "dev") for p in labelled_pools(collection, split)]
    held_out = [p.question_id for fold in folds for p in labelled_pools(fold, "dev")]
    assert sorted(held_out) == sorted(every)
    for fold in folds:
        train = {p.question_id: p for p in labelled_pools(fold, "train")}
        dev = {p.question_id for p in labelled_pools(fold, "dev")}
        assert not dev & set(train)
        assert len(train) + len(dev) == len(every)
    first = {p.question_id: p for p in labelled_pools(collection, "train")}
    copied = next(labelled_pools(folds[0], "train"))
    assert copied == first[copied.question_id]


def test_impossible_folds_are_refused(collection, tmp_path):
    with pytest.raises(AptoolError, match="too few questions for 999 folds"):
        write_folds(collection, tmp_path / "folds", folds=999)
    once = write_folds(collection, tmp_path / "once", 3, ["train"])
    twice = write_folds(collection, tmp_path / "twice", 3, ["train", "train"])
    assert [fold.fingerprint for fold in twice] == [fold.fingerprint for fold in once]
    write_folds(collection, tmp_path / "fewer", 3)
    with pytest.raises(InputError, match=r"fewer/fold3: a fold of an earlier call with more than 2 folds"):
        write_folds(collection, tmp_path / "fewer", 2)
    with pytest.raises(InputError, match=r"a collection of the splits train, .*; expected one of test9"):
        write_folds(collection, tmp_path / "folds", splits=("test9",))
    assert not (tmp_path / "folds").exists()


@pytest.fixture
def faq(tmp_path):
    """Eight questions with their answer each, a dev question with a pool, and answers of no question."""
    train = [LabelledPool(f"q{n}", f"question {n}", [f"a{n}"], None, {f"a{n}": 1}) for n in range(8)]
    train[1] = train[1]._replace(relevance={"a1": 1, "a9": 1})  # a9 is missing from the pool
    dev = LabelledPool("d", "of dev", ["a3", "a8", "a10"], None, {"a8": 1})
    answers = [(f"a{n}", f"answer {n}") for n in range(11)]
    splits = {"train": train, "dev": [dev]}
    write_collection(tmp_path / "faq", splits, name="faq", source="by hand", answers=answers)
    return Collection(tmp_path / "faq")


def test_questions_without_a_pool_are_evaluated_on_drawn_answers(faq, tmp_path):
    folds = write_folds(faq, tmp_path / "folds", 3, pool_size=4, seed=7)

    sources = {pool.question_id: pool for split in faq.splits for pool in labelled_pools(faq, split)}
    evaluated = {pool.question_id: pool for fold in folds for pool in labelled_pools(fold, "dev")}
    assert evaluated.keys() == sources.keys()
    assert evaluated["d"] == sources["d"]
    seen = set()
    for n in range(8):
        pool = evaluated[f"q{n}"]
        assert len(pool.answer_ids) == len(set(pool.answer_ids)) == 4
        assert pool.texts == [f"answer {name[1:]}" for name in pool.answer_ids]
        relevant = {name for name, label in pool.relevance.items() if label > 0}
        assert relevant == set(sources[f"q{n}"].relevance)
        assert f"a{n}" in pool.answer_ids
        seen.update(pool.answer_ids)
    # Answers of no question are drawn, too: 24 draws of 11 answers.
    assert {"a8", "a9", "a10"} <= seen
    for fold in folds:
        assert all(pool == sources[pool.question_id] for pool in labelled_pools(fold, "train"))


def test_drawn_pools_depend_on_their_size_and_seed_and_are_in_the_manifest(faq, tmp_path):
    def fingerprints(name, **options):
        return [fold.fingerprint for fold in write_folds(faq, tmp_path / name, 2, **options)]

    first = write_folds(faq, tmp_path / "first", 2, pool_size=4, seed=1)

    details = first[0].manifest["details"]
    assert {"pool_size": 4, "pool_seed": 1, "pools_drawn": ["train"]}.items() <= details.items()
    drawn = [fold.manifest["policies"]["answers_of_other_questions_added"]["dev"] for fold in first]
    assert sum(drawn) == 8 * 3
    assert fingerprints("again", pool_size=4, seed=1) == [fold.fingerprint for fold in first]
    assert fingerprints("other", pool_size=4, seed=2) != fingerprints("again", pool_size=4, seed=1)
    # There are 11 answers.
    whole = write_folds(faq, tmp_path / "whole", 2)
    sizes = [len(pool.answer_ids) for fold in whole for pool in labelled_pools(fold, "dev")]
    assert sorted(sizes) == [3, *[11] * 8]


def test_a_share_of_the_training_questions_is_part_of_a_larger_share(faq, tmp_path):
    shares = {
        share: write_folds(faq, tmp_path / str(share), 3, train_share=share) for share in (0.3, 0.6, 1.0)
    }

    for number, whole in enumerate(shares[1.0]):
        questions = {
            share: [pool.question_id for pool in labelled_pools(folds[number], "train")]
            for share, folds in shares.items()
        }
        assert len(questions[1.0]) == 6
        assert [len(questions[share]) for share in (0.3, 0.6)] == [2, 4]
        assert set(questions[0.3]) < set(questions[0.6]) < set(questions[1.0])
        for folds in shares.values():
            assert folds[number].qrels_file("dev").read_bytes() == whole.qrels_file("dev").read_bytes()
            assert folds[number].pools_file("dev").read_bytes() == whole.pools_file("dev").read_bytes()


def test_a_text_that_is_relevant_is_not_drawn_under_another_id(tmp_path):
    """As in a table without ids of answers: each question has its own id for an answer."""
    questions = ["a", "b", "c d", "e", "f", "g"]
    texts = ["yes", "yes", "no", "no", "perhaps", "never"]
    pools = [
        LabelledPool(f"Q{n}", question, [f"Q{n}-0"], [text], {f"Q{n}-0": 1})
        for n, (question, text) in enumerate(zip(questions, texts, strict=True))
    ]
    write_collection(tmp_path / "faq", {"train": pools}, name="faq", source="by hand")

    folds = write_folds(Collection(tmp_path / "faq"), tmp_path / "folds", 2)

    for pool in (pool for fold in folds for pool in labelled_pools(fold, "dev")):
        assert sorted(pool.texts) == ["never", "no", "perhaps", "yes"]
        relevant = {
            text for name, text in zip(pool.answer_ids, pool.texts, strict=True) if pool.relevance[name]
        }
        assert relevant == {texts[int(pool.question_id[1:])]}


@needs_data
def test_folds_of_wikiqa_have_999_questions(aptool, tmp_path):
    folder = Path(DATA) / "wikiqa"
    splits = [f"{split}={folder}/WikiQA-{split}.tsv" for split in ("train", "dev")]
    aptool("data", "import", "wikiqa", *splits, "--questions", "answerable", "--output", tmp_path / "wikiqa")

    done = aptool("data", "folds", tmp_path / "wikiqa", "--output", tmp_path / "folds")

    assert done.code == 0, done.err
    # 873 + 126, as the paper counts them.
    folds = [Collection(tmp_path / "folds" / f"fold{number}") for number in range(1, 6)]
    sizes = [fold.manifest["splits"]["dev"]["questions"] for fold in folds]
    assert (sum(sizes), max(sizes) - min(sizes)) == (999, 1)
