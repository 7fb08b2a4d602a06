"""`teacher` and `ensemble` of a matrix: what is learned, when it is made, and what cannot be asked for."""

import json

import pytest
from tiny import labelled_pools, options

from aptool.experiments.matrix import read_matrix
from aptool.experiments.plan import list_trials
from aptool.experiments.side_by_side import Event, run_side_by_side
from aptool.formats.collection import Collection, CollectionWriter
from aptool.formats.pools import list_units, read_pools
from aptool.formats.trec import read_run

FOLDS = 2
NAMES = ["taught", "self-taught", "all", "ap-cnn", "fused", "bm25", "self-fused"]  # deliberately out of order


def table(systems=NAMES, teacher="fused", epochs=1, seeds="[1, 2]"):
    def sets(*more):
        return json.dumps(options("ap-cnn", f"training.epochs={epochs}", *more))

    return f"""
[collections.tiny]
path = "c"
folds = {FOLDS}
[systems.bm25]
baseline = "bm25"
[systems.ap-cnn]
preset = "ap-cnn"
set = {sets()}
[systems.fused]
fuse = ["ap-cnn", "bm25"]
[systems.all]
ensemble = "ap-cnn"
[systems.taught]
preset = "qa-cnn"
set = {json.dumps(options("qa-cnn", "training.epochs=1", "teacher.scale=10.0"))}
teacher = "{teacher}"
[systems.self-taught]
preset = "ap-cnn"
set = {sets("teacher.loss=margin-mse")}
teacher = "all"
[systems.self-fused]
fuse = ["all", "self-taught"]
[[rows]]
collection = "tiny"
systems = {json.dumps(systems)}
seeds = {seeds}
"""


@pytest.fixture
def matrix(run_matrix, tmp_path):
    """Runs `aptool matrix` on a table of the collection c."""
    with CollectionWriter(tmp_path / "c", name="tiny", source="made for tests") as writer:
        for split, questions in (("train", 10), ("dev", 6)):
            writer.add_split(split, labelled_pools(split, questions))
    return run_matrix


def made(finished):
    """The runs that were made, by their collection, system and seed."""
    return [line for line in finished.err if line.count(": ") == 1 and ", seed " in line]


def scores(path):
    return {
        row[:2]: row[2] for row in read_run(path).frame.select("question_id", "answer_id", "score").rows()
    }


def test_students_learn_scores_of_the_training_pools_of_their_fold(matrix, aptool, tmp_path):
    assert matrix(table()).code == 0
    # An ensemble has one run, and nobody's scores of training pools are in the table.
    document = json.loads((tmp_path / "out/table.json").read_text())
    assert {one["system"]: one["seeds"] for one in document["lines"]} == {**dict.fromkeys(NAMES, 2), "all": 1}
    assert {one["run"].split("/")[-1] for one in document["results"]} == {"folds.run"}

    for fold in range(1, FOLDS + 1):
        here, collection = (
            tmp_path / f"out/tiny-fold{fold}",
            Collection(tmp_path / f"out/collections/tiny-folds/fold{fold}"),
        )
        pools = [read_pools(unit) for unit in list_units([collection.pools("train")])]
        asked = {question for one in pools for question in one.question_ids.to_pylist()}
        teachers = [scores(here / f"ap-cnn/seed{seed}/train.run") for seed in (1, 2)]
        assert {question for question, _ in teachers[0]} == asked
        # The mean of the seeds, once for all of them; run files have six digits or more.
        ensemble = scores(here / "all/seed1/train.run")
        assert ensemble == pytest.approx(
            {pair: (teachers[0][pair] + teachers[1][pair]) / 2 for pair in teachers[0]}, abs=1e-6
        )
        assert [path.name for path in (here / "all").iterdir()] == ["seed1"]
        # Nobody's scores of the judged pools are learned.
        assert not asked & {question for question, _ in scores(here / "ap-cnn/seed1/dev.run")}
    # As `aptool train --teacher` does, with the teacher's run of the same seed, or with the ensemble's.
    for name, preset, run in (
        ("taught", "qa-cnn", "fused/seed2"),
        ("self-taught", "ap-cnn", "all/seed1"),
    ):
        text = (tmp_path / "eval.toml").read_text().split(f"[systems.{name}]")[1]
        given = json.loads(text.split("\nset = ")[1].splitlines()[0])
        sets = [word for one in given for word in ("--set", one)]
        fold, teacher = "out/collections/tiny-folds/fold1", f"out/tiny-fold1/{run}/train.run"
        arguments = (fold, "--preset", preset, "--seed", 2, "--teacher", teacher, "--output", name)
        assert aptool("train", *arguments, *sets).code == 0
        assert aptool("score", f"{fold}/dev.pools.parquet", "--model", name, "--output", "own.run").code == 0
        assert scores("own.run") == scores(f"out/tiny-fold1/{name}/seed2/dev.run")
    plain = [word for word in arguments if word not in ("--teacher", teacher)]
    refused = aptool("train", *plain[:-1], "plain", *sets)
    assert (refused.code, len(refused.err)) == (1, 1)
    assert "teacher.loss: 'margin-mse': expected a teacher" in refused.err[0]
    without = [word for one in given if not one.startswith("teacher.") for word in ("--set", one)]
    assert aptool("train", *plain[:-1], "plain", *without).code == 0
    weights = [(tmp_path / name / "model.safetensors").read_bytes() for name in ("self-taught", "plain")]
    assert weights[0] != weights[1]


def test_only_what_a_changed_teacher_taught_is_run_again(matrix):
    systems = ["bm25", "ap-cnn", "all", "taught", "self-taught"]

    def again(**changed):
        text = table(**{"systems": systems, "teacher": "bm25", "seeds": "[1, 2]", **changed})
        return [line.split(": ")[1] for line in made(matrix(text.replace("folds = 2", 'split = "dev"')))]

    assert {line.partition(",")[0] for line in again()} == set(systems)
    assert again() == []
    # Another teacher of one system changes that system alone.
    assert again(teacher="ap-cnn") == ["taught, seed 1", "taught, seed 2"]
    # The member of an ensemble changes the ensemble, and what it teaches.
    changed = again(teacher="bm25", epochs=2)
    assert {line.partition(",")[0] for line in changed} == {"ap-cnn", "all", "taught", "self-taught"}
    assert again(teacher="bm25", epochs=2) == []
    # A further seed makes another ensemble, and its students learn from that.
    more = again(systems=["ap-cnn", "all", "self-taught"], epochs=2, seeds="[1, 2, 3]")
    students = [f"self-taught, seed {seed}" for seed in (1, 2, 3)]
    assert set(more) == {"ap-cnn, seed 3", "all, seed 1", *students}


class Slow:
    """Two processes at a time, that end in the opposite order."""

    def __init__(self, systems):
        self.systems, self.running, self.done = systems, [], []

    def has_room(self):
        return len(self.running) < 2

    def start(self, number, trial, runner):
        from aptool.experiments.plan import needs_of

        missing = {one.key for one in needs_of(trial, self.systems)} - {one.key for _, one in self.done}
        assert not missing, f"{trial} was started before {missing}"
        self.running.append((number, trial))

    def events(self, timeout):
        self.done.append(self.running.pop())
        return [Event(self.done[-1][0], "results", [])]


class Nothing:
    """A runner that has no result yet."""

    def __init__(self, matrix):
        self.matrix = matrix

    def is_done(self, trial):
        return False


def test_side_by_side_a_student_waits_for_its_teacher(tmp_path):
    (tmp_path / "eval.toml").write_text(table())
    matrix = read_matrix(tmp_path / "eval.toml")
    trials = list_trials(matrix.experiments, matrix.systems)

    processes = Slow(matrix.systems)
    run_side_by_side(trials, Nothing(matrix), processes)

    assert sorted(one.key for _, one in processes.done) == sorted(one.key for one in trials)
    assert len(trials) == FOLDS * (6 * 2 + 1)
    # All that teach are scored on the training pools, and what fuses them needs those of its parts.
    scored = {one.system.name for one in trials if "train" in [split.split for split in one.splits]}
    assert scored == {"ap-cnn", "bm25", "fused", "all"}


BAD = {
    "unknown": (
        'teacher = "fused"',
        'teacher = "fusd"',
        "systems/taught/teacher: 'fusd'",
        "expected one of bm25",
    ),
    "not in the row": (
        '"fused", ',
        "",
        "rows/0/systems: teacher of taught: 'fused'",
        "expected one of taught",
    ),
    "itself": (
        'teacher = "all"',
        'teacher = "self-taught"',
        "self-taught needs self-taught",
        "no system that",
    ),
    "in a circle": (
        'fuse = ["ap-cnn", "bm25"]',
        'fuse = ["taught", "bm25"]',
        "fused needs taught needs fused",
        "expected no system that needs itself",
    ),
    "fitted on dev": (
        'fuse = ["ap-cnn", "bm25"]',
        'combine = ["ap-cnn", "bm25"]',
        "systems/taught/teacher: 'fused'",
        "expected one that is not combined",
    ),
    "a baseline is taught": ('baseline = "bm25"', 'baseline = "bm25"\nteacher = "all"', "systems/bm25", ""),
    "an ensemble of a fusion": (
        'ensemble = "ap-cnn"',
        'ensemble = "fused"',
        "systems/all/ensemble: 'fused'",
        "expected a system that is not itself fused",
    ),
    "a run as well": (
        '"teacher.scale=10.0"',
        '"teacher.run=some.run"',
        "system 'taught': qa-cnn: teacher.run: 'some.run'",
        "expected no run beside the teacher fused",
    ),
}


@pytest.mark.parametrize(("old", "new", "place", "expected"), BAD.values(), ids=BAD.keys())
def test_a_teacher_that_cannot_be_asked_for_ends_in_one_line(matrix, old, new, place, expected):
    assert old in table()

    finished = matrix(table().replace(old, new))

    assert (finished.code, finished.out, len(finished.err)) == (1, [], 1)
    assert place in finished.err[0]
    assert expected in finished.err[0]
