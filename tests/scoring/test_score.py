"""Scoring into a run file: an interrupted run resumes only from its own parts."""

import dataclasses
import json
from functools import partial
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from recorded import recorded
from tiny import Opened, labelled_pools, model_system, row, write_pools

import aptool as library
from aptool.data.pools import list_units
from aptool.data.runs import read_run
from aptool.documents import check_document
from aptool.errors import InputError
from aptool.models.model import load_model
from aptool.scoring import run as scoring
from aptool.scoring.systems import RandomScorer, RandomScores, Scorer

GROUPS = 4  # row groups of three pools, eighteen candidates each


def rows(texts=True):
    return [
        row(
            pool.question_id,
            pool.question,
            list(zip(pool.answer_ids, pool.texts if texts else [None] * 6, strict=True)),
        )
        for pool in labelled_pools("test", 12)
    ]


def write(path, rows, **more):
    return write_pools(path, *(rows[start : start + 3] for start in range(0, 12, 3)), **more)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Twelve pools in four row groups, in the current folder; each is a unit."""
    monkeypatch.setattr("aptool.data.pools.UNIT_PAIRS", 18)
    write(tmp_path / "test.pools.parquet", rows())
    monkeypatch.chdir(tmp_path)
    return tmp_path


class Counting(Scorer):
    """A scorer that counts scored units, and fails after ``stop_after`` of them."""

    def __init__(self, scorer, stop_after=None):
        super().__init__(scorer.system, scorer.tag, [scorer.fingerprint], scorer.description)
        self.scored = 0
        self._scorer = scorer
        self._stop_after = stop_after

    def prepare(self, pools):
        work = self._scorer.prepare(pools)
        return work._replace(score=partial(self._score, work))

    def _score(self, work, count):
        if self.scored == self._stop_after:
            raise RuntimeError("the power went out")
        self.scored += 1
        return work.score(count)


@pytest.fixture
def system(folder, model_folder):
    return model_system(load_model(model_folder))


def score(system, output="out.run", pools="test.pools.parquet", answers=None, stop_after=None, **more):
    """Score into a run file; return the number of scored units, and the bytes of the file."""
    counting = Counting(system.open(), stop_after)
    units = list_units([pools])
    if stop_after is None:
        run = scoring.score_files(units, Opened(counting), output, tag="x", answers=answers, **more)
        assert (run.pairs, run.truncated, run.units) == (72, 0, len(units))
        assert run.resumed == len(units) - counting.scored
        assert not Path(f"{output}.parts").exists()
        return counting.scored, Path(output).read_bytes()
    with pytest.raises(RuntimeError, match="the power went out"):
        scoring.score_files(units, Opened(counting), output, tag="x", answers=answers)
    assert not Path(output).exists()
    return counting.scored, b""


def parts():
    return sorted(Path("out.run.parts").glob("*.run"))


@pytest.mark.parametrize("done", [0, 1, 3])
def test_an_interrupted_run_resumes_from_its_parts(system, done):
    _, whole = score(system, "whole.run")

    score(system, stop_after=done)

    assert len(parts()) == done
    assert score(system) == (GROUPS - done, whole)


def test_progress_counts_pairs_block_by_block(model_folder, folder):
    """A single row group of 72 pairs, in blocks of few tokens."""
    write_pools("whole.pools.parquet", rows())
    system = model_system(load_model(model_folder), tokens_per_batch=16)

    with recorded() as log:
        scoring.score_files(list_units(["whole.pools.parquet"]), system, "out.run", tag="x")

    counts = [update[0] for update in log.updates["score"]]
    assert len(counts) > 4
    assert counts == sorted(counts)
    assert counts[-1] == 72
    assert {update[1:3] for update in log.updates["score"]} == {(72, "pairs")}
    assert log.messages == []


class Truncating(RandomScorer):
    max_answer_tokens = 7

    def prepare(self, pools):
        return super().prepare(pools)._replace(truncated=2)


def test_pairs_of_units_and_truncated_answers_are_reported_once(folder):
    units = list_units(["test.pools.parquet"])
    for score_pools in (
        lambda system: scoring.score_files(units, system, "out.run"),
        lambda system: scoring.score_in_memory(units, system),
    ):
        with recorded() as log:
            score_pools(Opened(Truncating(RandomScores())))

        assert [update[0] for update in log.updates["score"]] == [18, 36, 54, 72]
        assert log.messages == ["8 answers were truncated to 7 tokens"]


def test_progress_of_a_resumed_run_starts_at_the_pairs_that_are_scored(system):
    score(system, stop_after=3)

    with recorded() as log:
        score(system)

    assert [update[0] for update in log.updates["score"]][-1] == 72
    assert min(update[0] for update in log.updates["score"]) > 54


def test_an_input_is_not_overwritten(system, folder):
    before = Path("test.pools.parquet").read_bytes()

    with pytest.raises(InputError, match=r"^test\.pools\.parquet: also an input of this command"):
        scoring.score_files(
            list_units(["test.pools.parquet"]), system, "test.pools.parquet", tag="x", overwrite=True
        )

    assert Path("test.pools.parquet").read_bytes() == before


class OtherExecutor(scoring.Executor):
    """Scores in this process, in reverse order."""

    def open(self, system, units, answers):
        return system.open(units)

    def run(self, missing, scorer, meter):
        for part in reversed(missing):
            unit = scoring.read(part.unit, scorer, None)
            yield part.number, scoring.write(part, unit, unit.work.score(meter.update))


def test_the_run_does_not_depend_on_the_executor(system):
    _, whole = score(system, "whole.run")
    units = list_units(["test.pools.parquet"])
    executor = OtherExecutor()

    for name in ("out.run", "again.run"):  # an executor may be used again
        run = scoring.score_files(units, system, name, executor, tag="x")
        assert (run.pairs, run.resumed) == (72, 0)
        assert Path(name).read_bytes() == whole


FORMS = ["out.run", "out.run.gz", "out.parquet", "out/", "out.gz/", "out.parquet/"]


@pytest.mark.parametrize("output", FORMS)
def test_every_form_has_the_rows_of_a_run_file_and_the_sidecar(folder, output):
    units = list_units(["test.pools.parquet"])
    scoring.score_files(units, RandomScores(), "whole.run", tag="x")

    run = scoring.score_files(units, RandomScores(), output, tag="x")

    read = read_run(output)
    frame, tag = read.frame, read.tag
    assert (frame.rows(), tag) == (read_run("whole.run").frame.rows(), "x")
    sidecar = json.loads(Path(f"{output.rstrip('/')}.json").read_text())
    check_document("run", sidecar, "sidecar")
    assert (sidecar["tag"], sidecar["parts"], sidecar["work"]["pairs"]) == ("x", GROUPS, run.pairs)
    assert sidecar["system"] == {"name": "random scores", "seed": 0}
    assert sidecar["pools"] == ["test.pools.parquet"]


@pytest.mark.parametrize("output", FORMS)
def test_a_complete_run_of_the_same_command_is_left_as_it_is(folder, output):
    units = list_units(["test.pools.parquet"])
    first = scoring.score_files(units, RandomScores(), output, tag="x")
    files = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}

    with recorded() as log:
        again = scoring.score_files(units, RandomScores(), output, tag="x")

    assert again == dataclasses.replace(first, resumed=GROUPS)
    assert log.messages == [f"{output}: complete, written by the same command before"]
    assert log.updates.get("score", []) == []
    assert {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()} == files


@pytest.mark.parametrize("output", FORMS)
def test_a_run_of_other_arguments_is_replaced_when_asked(folder, output):
    units = list_units(["test.pools.parquet"])
    scoring.score_files(units, RandomScores(1), output, tag="x")
    scoring.score_files(units[:2], RandomScores(0), "half.run", tag="x")
    before = read_run(output).frame.rows()

    with pytest.raises(InputError, match=r"it exists; expected another path, or --overwrite"):
        scoring.score_files(units[:2], RandomScores(0), output, tag="x")
    assert read_run(output).frame.rows() == before
    scoring.score_files(units[:2], RandomScores(0), output, tag="x", overwrite=True)

    assert read_run(output).frame.rows() == read_run("half.run").frame.rows()


@pytest.mark.parametrize("output", FORMS)
def test_a_file_of_the_user_is_replaced_only_when_asked(folder, output):
    path = Path(output) / "notes.txt" if output.endswith("/") else Path(output)
    path.parent.mkdir(exist_ok=True)
    path.write_text("mine")
    units = list_units(["test.pools.parquet"])

    with pytest.raises(InputError, match=r"it exists; expected another path, or --overwrite"):
        library.score("test.pools.parquet", RandomScores(), output)
    assert path.read_text() == "mine"
    scoring.score_files(units, RandomScores(), output, overwrite=True)

    assert read_run(output).frame.height == 72


def test_a_json_file_of_the_user_in_the_place_of_the_sidecar_is_not_replaced(folder):
    Path("out.json").write_text("{}")

    with pytest.raises(InputError, match=r"/out\.json: it exists"):
        library.score("test.pools.parquet", RandomScores(), "out/")

    assert Path("out.json").read_text() == "{}"


@pytest.mark.parametrize("output", ["out.run", "out/"])
def test_parts_of_other_arguments_are_refused_or_removed(folder, output):
    units = list_units(["test.pools.parquet"])
    with pytest.raises(RuntimeError):
        scoring.score_files(units, Opened(Counting(RandomScores(1).open(), 3)), output)
    scoring.score_files(units[:2], RandomScores(0), "half.run")

    with pytest.raises(
        InputError, match="parts of a run with other arguments; expected the same arg"
    ) as error:
        scoring.score_files(units[:2], RandomScores(0), output)
    assert str(error.value).startswith(
        ("out.run.parts: ", f"{folder}/out.run.parts: ", f"{folder}/out.parts: ")
    )
    assert "--overwrite" in str(error.value)
    scoring.score_files(units[:2], RandomScores(0), output, overwrite=True)

    assert read_run(output).frame.rows() == read_run("half.run").frame.rows()
    assert not list(folder.glob("*.parts"))


@pytest.mark.parametrize(
    ("output", "step"),
    [
        ("out.run", "join_parts"),
        *((output, step) for output in ("out.run", "out/") for step in ("write_sidecar", "_remove_parts")),
    ],
)
def test_a_run_is_completed_after_an_interruption_while_it_gets_its_name(folder, monkeypatch, output, step):
    """An old run is replaced without asking again."""
    units = list_units(["test.pools.parquet"])
    scoring.score_files(units, RandomScores(1), output, tag="x")
    scoring.score_files(units, RandomScores(0), "whole.run", tag="x")
    done = getattr(scoring, step)

    def dying(*args):
        if step == "join_parts":
            done(*args)
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(scoring, step, dying)
        with pytest.raises(KeyboardInterrupt):
            scoring.score_files(units, RandomScores(0), output, tag="x", overwrite=True)

    assert scoring.score_files(units, RandomScores(0), output, tag="x").resumed == GROUPS
    assert read_run(output).frame.rows() == read_run("whole.run").frame.rows()
    assert not list(folder.glob("*.parts"))


def test_a_row_group_that_is_divided_has_the_run_of_the_whole(system, monkeypatch):
    """A row group of 72 pairs in units of three pools, as one unit, and in units of one pool."""
    write_pools("one.parquet", rows())
    files = set()
    for limit in (1000, 18, 1):
        monkeypatch.setattr("aptool.data.pools.UNIT_PAIRS", limit)
        units = list_units(["one.parquet"])
        scoring.score_files(units, RandomScores(), f"{limit}.run")
        files.add(Path(f"{limit}.run").read_bytes())
        assert len(units) == {1000: 1, 18: 4, 1: 12}[limit]

    assert len(files) == 1


@pytest.mark.parametrize("files", [1, 2])
def test_a_question_in_two_units_is_named(system, files, monkeypatch):
    monkeypatch.setattr("aptool.data.pools.UNIT_PAIRS", 4)
    write_pools("b.parquet", *[[row("q2"), row("q1")]] * (3 - files))
    if files == 2:
        write_pools("a.parquet", [row("q1")])
    units = list_units(["b.parquet"] if files == 1 else ["a.parquet", "b.parquet"])

    with pytest.raises(InputError) as error:
        scoring.score_files(units, system, "out.run", tag="x")

    location = f"b.parquet: row group {2 - files}: column 'question_id': "
    assert str(error.value).startswith(location)
    first = "a.parquet" if files == 2 else "b.parquet"
    assert ": expected one pool per question, but it is also in " in str(error.value)
    assert str(error.value).endswith(f"{first}, row group 0")
    assert not Path("out.run").exists()
    with pytest.raises(InputError) as in_memory:
        scoring.score_in_memory(units, system)
    assert str(in_memory.value) == str(error.value)


def test_scores_in_memory_are_the_rows_of_the_run_file(system):
    units = list_units(["test.pools.parquet"])
    scoring.score_files(units, system, "out.run")

    frame, tag = scoring.score_in_memory(units, system)

    written = read_run("out.run")
    assert tag == written.tag
    assert frame.schema == written.frame.schema
    # A run file has the shortest decimals of float32 scores.
    assert (
        frame.rows() == written.frame.with_columns(pl.col("score").cast(pl.Float32).cast(pl.Float64)).rows()
    )


class Zeros(RandomScorer):
    """Alternating scores of 0 and -0, which are equal."""

    def score(self, pools, count):
        return np.resize(np.array([0.0, -0.0], np.float32), len(pools.answer_ids))


def test_questions_without_a_ranking_are_counted_once(folder):
    units = list_units(["test.pools.parquet"])

    with recorded() as log:
        scoring.score_files(units, Opened(Zeros(RandomScores())), "out.run")
        frame, _ = scoring.score_in_memory(units, Opened(Zeros(RandomScores())))

    assert not np.signbit(frame["score"].to_numpy()).any()  # as a run file, which has no negative zero
    ids = frame.group_by("question_id", maintain_order=True).agg("answer_id")["answer_id"]
    assert all(pool.to_list() == sorted(pool, reverse=True) for pool in ids)
    message = "warning: 12 of 12 questions have one score for all candidates, "
    assert [line.split(": ", 1) for line in log.messages] == [
        [name, message + "so their order is that of the answer ids"] for name in ("out.run", "random")
    ]
