"""Scoring into a run file: an interrupted run resumes only from its own parts."""

import re
from pathlib import Path

import numpy as np
import polars as pl
import pyarrow as pa
import pytest
from recorded import recorded
from tiny import Opened, labelled_pools, model_system, row, write_pools

import aptool as library
from aptool.errors import InputError, UsageError
from aptool.formats.local_store import LocalStore
from aptool.formats.pools import list_units, read_pools
from aptool.formats.runs import read_run
from aptool.formats.schemas import arrow_schema
from aptool.models.model import load_model, save_model
from aptool.scoring import score as scoring
from aptool.scoring.model_system import ModelSystem
from aptool.scoring.parts import missing_parts, plan, write_part
from aptool.scoring.pipeline import UnitRecord, prepare
from aptool.scoring.pipeline import score as score_prepared
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
    """Twelve pools in four row groups, in the current folder."""
    write(tmp_path / "test.pools.parquet", rows())
    monkeypatch.chdir(tmp_path)
    return tmp_path


class Counting(Scorer):
    """A scorer that counts scored row groups, and fails after ``stop_after`` of them."""

    def __init__(self, scorer, stop_after=None):
        super().__init__(scorer.system, scorer.tag, [scorer.fingerprint], scorer.description)
        self.scored = 0
        self._scorer = scorer
        self._stop_after = stop_after

    def prepare(self, pools):
        return self._scorer.prepare(pools)

    def score(self, inputs, progress):
        if self.scored == self._stop_after:
            raise RuntimeError("the power went out")
        self.scored += 1
        return self._scorer.score(inputs)


@pytest.fixture
def system(folder, model_folder):
    return model_system(load_model(model_folder))


def score(system, output="out.run", pools="test.pools.parquet", answers=None, stop_after=None):
    """Score into a run file; return the number of scored row groups, and the bytes of the file."""
    counting = Counting(system.open(), stop_after)
    units = list_units([pools])
    if stop_after is None:
        run = scoring.score_files(units, Opened(counting), output, tag="x", answers=answers)
        assert (run.pairs, run.truncated, run.units, run.retried) == (72, 0, len(units), 0)
        assert run.resumed == len(units) - counting.scored
        assert run.workers == (1 if counting.scored else 0)
        assert not Path(f"{output}.parts").exists()
        return counting.scored, Path(output).read_bytes()
    with pytest.raises(RuntimeError, match="the power went out"):
        scoring.score_files(units, Opened(counting), output, tag="x", answers=answers)
    assert not Path(output).exists()
    return counting.scored, b""


def parts():
    return sorted(Path("out.run.parts").glob("*"))


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


def test_progress_of_a_system_without_blocks_counts_row_groups(folder):
    with recorded() as log:
        scoring.score_files(list_units(["test.pools.parquet"]), RandomScores(), "out.run")

    assert [update[0] for update in log.updates["score"]] == [18, 36, 54, 72]


def test_progress_of_a_resumed_run_starts_at_the_pairs_that_are_scored(system):
    score(system, stop_after=3)

    with recorded() as log:
        score(system)

    assert [update[0] for update in log.updates["score"]][-1] == 72
    assert min(update[0] for update in log.updates["score"]) > 54


def test_truncated_answers_are_counted_and_reported_once(folder):
    class Truncating(RandomScorer):
        max_answer_tokens = 7

        def truncated(self, inputs):
            return 2

    with recorded() as log:
        run = scoring.score_files(
            list_units(["test.pools.parquet"]), Opened(Truncating(RandomScores())), "out.run"
        )

    assert run.truncated == 2 * GROUPS
    assert log.messages == ["8 answers were truncated to 7 tokens"]


@pytest.mark.parametrize("tag", ["", " ", "two words", " x", "x\n"])
def test_a_tag_is_one_word(system, folder, tag):
    with pytest.raises(UsageError, match=r"^tag '.*': expected one word$"):
        library.score("test.pools.parquet", system, "out.run", tag=tag)

    assert [path.name for path in folder.iterdir()] == ["test.pools.parquet"]


def test_the_default_tag_is_that_of_the_system(folder):
    scoring.score_files(list_units(["test.pools.parquet"]), RandomScores(), "out.run")

    assert {line.split()[5] for line in Path("out.run").read_text().splitlines()} == {"random"}


def test_a_model_is_loaded_from_its_folder(system, model_folder):
    _, whole = score(system, "whole.run")

    unloaded = ModelSystem(str(model_folder), device="cpu")
    scoring.score_files(list_units(["test.pools.parquet"]), unloaded, "out.run", tag="x")

    assert Path("out.run").read_bytes() == whole


def test_an_input_is_not_overwritten(system, folder):
    before = Path("test.pools.parquet").read_bytes()

    with pytest.raises(InputError, match=r"^test\.pools\.parquet: no record that aptool wrote it"):
        scoring.score_files(list_units(["test.pools.parquet"]), system, "test.pools.parquet", tag="x")

    assert Path("test.pools.parquet").read_bytes() == before


class OtherExecutor(scoring.Executor):
    """Scores in this process, in reverse order, as if by two workers after the loss of a worker."""

    def open(self, system, units, answers):
        return system.open(units)

    def run(self, missing, scorer, meter):
        for number, part in enumerate(reversed(missing)):
            unit = prepare(part.unit, read_pools(part.unit), scorer)
            write_part(part, *score_prepared([unit], scorer), unit.truncated)
            yield UnitRecord(number, part.pairs, f"worker {number % 2}", attempts=2 if number == 1 else 1)


def test_the_run_does_not_depend_on_the_executor(system):
    _, whole = score(system, "whole.run")
    units = list_units(["test.pools.parquet"])
    executor = OtherExecutor()

    for _ in range(2):  # an executor may be used again
        run = scoring.score_files(units, system, "out.run", executor, tag="x")
        assert (run.pairs, run.resumed, run.retried, run.workers) == (72, 0, 1, 2)

    assert Path("out.run").read_bytes() == whole


def emptied(part):
    part.write_bytes(b"")


def cut(part):
    part.write_bytes(part.read_bytes()[:-20])


def garbled(part):
    part.write_bytes(b"\x00\xff" * (part.stat().st_size // 2))


def garbled_inside(part):
    data = bytearray(part.read_bytes())
    middle = len(data) // 3
    data[middle : middle + 200] = b"\xff" * 200
    part.write_bytes(data)


@pytest.mark.parametrize("damage", [emptied, cut, garbled, garbled_inside])
def test_a_damaged_part_is_scored_again(system, damage):
    _, whole = score(system, "whole.run")
    score(system, stop_after=GROUPS - 1)

    damage(parts()[1])

    assert score(system) == (2, whole)


def test_a_part_that_is_removed_while_it_is_compared_is_written(system, monkeypatch):
    """A driver removes a damaged part, which a worker has found in its place."""
    scorer = system.open()
    part = plan(list_units(["test.pools.parquet"]), scorer, "out.run", "x")[0]
    part.path.parent.mkdir()
    part.path.write_bytes(b"damaged")
    unit = prepare(part.unit, read_pools(part.unit), scorer)
    read = LocalStore.read_versioned

    def read_removed(self, key):
        Path(key).unlink(missing_ok=True)
        return read(self, key)

    monkeypatch.setattr(LocalStore, "read_versioned", read_removed)
    write_part(part, *score_prepared([unit], scorer), 0)

    assert missing_parts([part]) == []


def test_parts_of_another_model_are_not_used(system, model_folder, folder):
    # The same model with negated embeddings.
    model = load_model(model_folder)
    model.ranker.encoder.embedding.weight.data.neg_()
    save_model("other", model.ranker, model.tokenizer, model.recipe, model.config["training"], [])
    other = model_system(load_model("other"))
    _, whole = score(other, "whole.run")
    score(system, stop_after=3)

    assert score(other) == (GROUPS, whole)


def test_parts_of_another_input_are_not_used(system):
    score(system, stop_after=3)
    # The same ids with other questions, in a file of the same name.
    write("test.pools.parquet", [{**line, "question": line["question"] + "?"} for line in rows()])
    _, whole = score(system, "whole.run")

    assert score(system) == (GROUPS, whole)


def test_parts_of_other_answers_are_not_used(system, folder):
    write("test.pools.parquet", rows(texts=False))
    texts = {candidate["answer_id"]: candidate["text"] for line in rows() for candidate in line["candidates"]}
    right = pl.DataFrame({"answer_id": list(texts), "text": list(texts.values())})
    right.write_parquet("right.parquet")
    right.with_columns(text=pl.col("text").str.reverse()).write_parquet("wrong.parquet")
    _, whole = score(system, "whole.run", answers="right.parquet")
    score(system, stop_after=3, answers="wrong.parquet")

    assert score(system, answers="right.parquet") == (GROUPS, whole)


def test_disk_space_is_checked_before_a_large_run(system, monkeypatch):
    """The parts and the run have the lines twice."""
    _, whole = score(system, "whole.run")
    monkeypatch.setattr(scoring, "_LARGE_RUN", 72)
    monkeypatch.setattr(scoring, "free_bytes", lambda path: len(whole))

    with pytest.raises(
        InputError, match=r"bytes free; expected about [0-9,]+ for the parts and the"
    ) as error:
        scoring.score_files(list_units(["test.pools.parquet"]), system, "out.run", tag="x")

    needed = int(re.search(r"about ([0-9,]+) for", str(error.value))[1].replace(",", ""))
    assert needed == pytest.approx(2 * len(whole), rel=0.1)
    assert not Path("out.run.parts").exists()


def test_disk_space_of_a_large_run_is_logged(system, monkeypatch):
    monkeypatch.setattr(scoring, "_LARGE_RUN", 72)
    monkeypatch.setattr(scoring, "free_bytes", lambda path: 8_000_000_000)

    with recorded() as log:
        scoring.score_files(list_units(["test.pools.parquet"]), system, "out.run", tag="x")

    assert log.messages == ["out.run: about 0.0 GB for the parts and the run, 8.0 GB free"]


def test_failure_while_writing_leaves_no_half_file(system, folder, monkeypatch):
    monkeypatch.setattr("aptool.formats.trec.rank_candidates", lambda frame: 1 / 0)

    with pytest.raises(ZeroDivisionError):
        score(system)

    assert [path.name for path in folder.iterdir()] == ["test.pools.parquet"]


def test_additional_columns_are_ignored(system):
    # One column resembles the candidates.
    _, whole = score(system, "whole.run")
    extra = pa.field("seen", pa.list_(pa.struct([("answer_id", pa.string())])))
    schema = pa.schema([extra, *arrow_schema("pools")])
    write("more.parquet", [{**line, "seen": []} for line in rows()], schema=schema)

    assert score(system, pools="more.parquet") == (GROUPS, whole)


@pytest.mark.parametrize("files", [1, 2])
def test_a_question_in_two_row_groups_is_named(system, files):
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

    def score(self, inputs, progress):
        return np.resize(np.array([0.0, -0.0], np.float32), len(inputs.answer_ids))


def test_negative_zero_in_memory_is_zero_as_in_a_run_file(folder):
    frame, _ = scoring.score_in_memory(list_units(["test.pools.parquet"]), Opened(Zeros(RandomScores())))

    assert not np.signbit(frame["score"].to_numpy()).any()
    ids = frame.group_by("question_id", maintain_order=True).agg("answer_id")["answer_id"]
    assert all(pool.to_list() == sorted(pool, reverse=True) for pool in ids)


def test_questions_without_a_ranking_are_counted_once(folder):
    units = list_units(["test.pools.parquet"])

    with recorded() as log:
        scoring.score_files(units, Opened(Zeros(RandomScores())), "out.run")
        scoring.score_in_memory(units, Opened(Zeros(RandomScores())))

    message = "warning: 12 of 12 questions have one score for all candidates, "
    assert [line.split(": ", 1) for line in log.messages] == [
        [name, message + "so their order is that of the answer ids"] for name in ("out.run", "random")
    ]


def test_a_question_in_two_row_groups_in_memory_is_named(folder):
    write_pools("b.parquet", [row("q2")], [row("q1")], [row("q1")])

    with pytest.raises(InputError) as error:
        scoring.score_in_memory(list_units(["b.parquet"]), RandomScores())

    assert str(error.value) == (
        "b.parquet: row group 2: column 'question_id': 'q1': expected one pool per question, "
        "but it is also in b.parquet, row group 1"
    )


def test_progress_and_truncation_in_memory_are_those_of_a_run_file(folder):
    class Truncating(RandomScorer):
        max_answer_tokens = 7

        def truncated(self, inputs):
            return 2

    with recorded() as log:
        scoring.score_in_memory(list_units(["test.pools.parquet"]), Opened(Truncating(RandomScores())))

    assert [update[0] for update in log.updates["score"]] == [18, 36, 54, 72]
    assert log.messages == ["8 answers were truncated to 7 tokens"]
