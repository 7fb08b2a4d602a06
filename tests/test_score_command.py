"""`aptool score`: every candidate once, in trec_eval's order, however often the work was interrupted."""

import gzip
import io
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import polars as pl
import pyarrow as pa
import pytest
from tiny import labelled_pools, row, write_pools

from aptool.errors import AptoolError
from aptool.formats.collection import CollectionWriter
from aptool.formats.pools import Unit, list_units, read_pools
from aptool.formats.schemas import arrow_schema
from aptool.models.checkpoint import load_model, save_model
from aptool.scoring.shards import System, score_frame
from aptool.scoring.systems import ModelSystem

POOLS = labelled_pools("test", 12)
GROUPS = 4  # row groups of three pools, eighteen candidates


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Twelve pools in four row groups, in a folder that is the current one."""
    rows = [
        row(pool.question_id, pool.question, list(zip(pool.answer_ids, pool.texts, strict=True)))
        for pool in POOLS
    ]
    write_pools(tmp_path / "test.pools.parquet", *(rows[start : start + 3] for start in range(0, 12, 3)))
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def score(aptool, folder, model_folder):
    """`aptool score test.pools.parquet --model MODEL --output out.run`, with further or other arguments."""

    def run(*more, pools=("test.pools.parquet",), model=model_folder, output="out.run"):
        return aptool("score", *pools, "--model", model, "--output", output, *more)

    return run


class Calls:
    """How often a model was asked to score a row group; it can be stopped after so many."""

    def __init__(self, monkeypatch):
        self.made = 0
        self.stop_after = None
        self.error = RuntimeError("the power went out")
        whole = ModelSystem.score

        def score(system, pools):
            if self.made == self.stop_after:
                raise self.error
            self.made += 1
            return whole(system, pools)

        monkeypatch.setattr(ModelSystem, "score", score)


@pytest.fixture
def calls(monkeypatch):
    return Calls(monkeypatch)


def interrupt(score, calls, after, error=None):
    """Runs the command until it has scored so many row groups."""
    calls.stop_after = after
    if error is not None:
        calls.error = error
    with pytest.raises(type(calls.error)):
        score()
    calls.made, calls.stop_after = 0, None


def parts():
    return sorted(Path("out.run.parts").iterdir())


def assert_one_line(finished, code, *phrases):
    assert (finished.code, finished.out) == (code, [])
    assert len(finished.err) == 1
    assert finished.err[0].startswith("aptool: ")
    for phrase in phrases:
        assert phrase in finished.err[0]


def test_run_holds_every_candidate_once_in_the_order_of_trec_eval(score, folder):
    finished = score("--tag", "mine")

    assert (finished.code, finished.out, finished.err) == (0, ["out.run: 72 pairs"], [])
    lines = [line.split(" ") for line in (folder / "out.run").read_text().splitlines()]
    wanted = {(pool.question_id, answer_id) for pool in POOLS for answer_id in pool.answer_ids}
    assert len(lines) == len(wanted) == 72
    assert {(line[0], line[2]) for line in lines} == wanted
    assert {(line[1], line[5]) for line in lines} == {("Q0", "mine")}
    # Question id ascending, score descending, answer id descending, as bytes.
    ordered = sorted(lines, key=lambda line: line[2].encode(), reverse=True)
    ordered.sort(key=lambda line: -float(line[4]))
    ordered.sort(key=lambda line: line[0].encode())
    assert lines == ordered
    assert [line[3] for line in lines] == [str(rank) for _ in range(12) for rank in range(1, 7)]
    assert not Path("out.run.parts").exists()


def test_scores_are_those_of_the_model(score, folder, model_folder):
    score()

    system = ModelSystem(load_model(model_folder))
    expected = {}
    for unit in list_units([folder / "test.pools.parquet"]):
        pools = read_pools(unit)
        questions = pools.question_ids.take(pa.array(pools.pair_question)).to_pylist()
        scores = system.score(pools)
        expected |= dict(zip(zip(questions, pools.answer_ids.to_pylist(), strict=True), scores, strict=True))
    lines = [line.split(" ") for line in (folder / "out.run").read_text().splitlines()]
    # Printed so that reading gives the very number back.
    assert {(line[0], line[2]): np.float32(line[4]) for line in lines} == expected


def tags(run):
    return {line.split(" ")[5] for line in run.read_text().splitlines()}


def test_the_tag_is_the_models_name_if_none_is_given(score, folder, model_folder):
    model = load_model(model_folder)
    recipe = replace(model.recipe, preset="my own recipe")
    save_model("mine", model.ranker, model.tokenizer, recipe, model.config["training"], [])

    score()
    score(model="mine", output="mine.run")

    assert (tags(folder / "out.run"), tags(folder / "mine.run")) == ({"ap-cnn"}, {"my-own-recipe"})


def test_scoring_again_gives_the_same_bytes(score, folder):
    score()
    first = (folder / "out.run").read_bytes()
    (folder / "out.run").unlink()
    score()
    score(output="out.run.gz")
    score(output="again.run.gz")

    assert (folder / "out.run").read_bytes() == first
    assert gzip.decompress((folder / "out.run.gz").read_bytes()) == first
    assert (folder / "out.run.gz").read_bytes() == (folder / "again.run.gz").read_bytes()


@pytest.mark.parametrize("error", [RuntimeError("broken"), KeyboardInterrupt()])
def test_an_interrupted_run_goes_on_from_its_parts(score, folder, calls, error):
    score(output="whole.run")
    calls.made = 0
    if isinstance(error, KeyboardInterrupt):
        calls.stop_after, calls.error = 2, error
        finished = score()
        # The shell shows ^C; the message goes on a line of its own.
        assert (finished.code, finished.out, finished.err) == (130, [], ["", "aptool: interrupted"])
        calls.made, calls.stop_after = 0, None
    else:
        interrupt(score, calls, after=2, error=error)

    # Two parts stand, and nothing under the final name.
    assert not (folder / "out.run").exists()
    assert len(parts()) == 2

    assert score().code == 0
    assert calls.made == GROUPS - 2
    assert (folder / "out.run").read_bytes() == (folder / "whole.run").read_bytes()
    assert not Path("out.run.parts").exists()


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


def too_short(part):
    frame = pl.read_ipc(io.BytesIO(part.read_bytes())).head(5)
    frame.write_ipc(part)


@pytest.mark.parametrize("damage", [emptied, cut, garbled, garbled_inside, too_short])
def test_a_damaged_part_is_scored_again(score, folder, calls, damage):
    score(output="whole.run")
    interrupt(score, calls, after=GROUPS - 1 + GROUPS)
    damage(parts()[1])

    assert score().code == 0
    assert calls.made == 2
    assert (folder / "out.run").read_bytes() == (folder / "whole.run").read_bytes()


@pytest.fixture
def other_model(tmp_path, model_folder):
    """The model with all of its embeddings the other way round."""
    model = load_model(model_folder)
    model.ranker.encoder.embedding.weight.data.neg_()
    save_model(tmp_path / "other", model.ranker, model.tokenizer, model.recipe, model.config["training"], [])
    return tmp_path / "other"


def test_parts_of_another_model_are_not_taken_up(score, folder, calls, other_model):
    score(output="whole.run", model=other_model)
    calls.made = 0
    interrupt(score, calls, after=3)

    assert score(model=other_model).code == 0
    assert calls.made == GROUPS
    assert (folder / "out.run").read_bytes() == (folder / "whole.run").read_bytes()


def test_parts_of_another_input_are_not_taken_up(score, folder, calls):
    interrupt(score, calls, after=3)
    # The same ids with the questions in upper case, in a file of the same name.
    rows = [
        row(pool.question_id, pool.question.upper() + "?", list(zip(pool.answer_ids, pool.texts, strict=True)))
        for pool in POOLS
    ]
    write_pools("test.pools.parquet", *(rows[start : start + 3] for start in range(0, 12, 3)))
    score(output="whole.run")
    calls.made = 0

    assert score().code == 0
    assert calls.made == GROUPS
    assert (folder / "out.run").read_bytes() == (folder / "whole.run").read_bytes()


@pytest.fixture
def shared(tmp_path, monkeypatch):
    """A collection whose pools share answers."""
    answers = {name: text for pool in POOLS for name, text in zip(pool.answer_ids, pool.texts, strict=True)}
    with CollectionWriter(tmp_path / "shared", name="shared", source="here") as writer:
        writer.add_answers(answers.items())
        writer.add_split("test", [pool._replace(texts=None) for pool in POOLS])
    return tmp_path / "shared"


def test_shared_answers_beside_the_pools_are_found(score, folder, shared):
    score(output="own.run")
    score(output="beside.run", pools=[shared / "test.pools.parquet"])
    shutil.move(shared / "answers.parquet", folder / "moved.parquet")
    score("--answers", "moved.parquet", output="given.run", pools=[shared / "test.pools.parquet"])

    scores = [
        {tuple(line.split()[:3:2]): float(line.split()[4]) for line in (folder / name).read_text().splitlines()}
        for name in ("own.run", "beside.run", "given.run")
    ]
    assert scores[1] == scores[2] == pytest.approx(scores[0], abs=1e-5)


def test_parts_of_other_answers_are_not_taken_up(score, folder, calls, shared):
    pools = [shared / "test.pools.parquet"]
    answers = pl.read_parquet(shared / "answers.parquet")
    answers.with_columns(text=pl.lit("the same for all")).write_parquet(folder / "other.parquet")
    # All parts are made with the right answers, then the run is stopped before they become one file.
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("aptool.scoring.local.merge", lambda *given: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            score(pools=pools)
    assert len(parts()) == 1

    assert score("--answers", "other.parquet", pools=pools).code == 0

    scores = {line.split()[4] for line in (folder / "out.run").read_text().splitlines() if "test-q0 " in line}
    assert len(scores) == 1


def test_missing_answers_are_named(score, shared):
    (shared / "answers.parquet").unlink()

    finished = score(pools=[shared / "test.pools.parquet"])

    first = POOLS[0].answer_ids[0]
    wanted = f"column 'candidates.text': None: expected a text, or an answers file with '{first}'"
    assert_one_line(finished, 1, "test.pools.parquet: row group 0: row 0: ", wanted)
    assert not Path("out.run").exists()


def test_answers_that_lack_a_candidate_are_named(score, folder, shared):
    pl.read_parquet(shared / "answers.parquet").head(3).write_parquet(folder / "few.parquet")

    finished = score("--answers", "few.parquet", pools=[shared / "test.pools.parquet"])

    assert_one_line(finished, 1, "row group 0: row ", "column 'candidates.answer_id'", "expected an answer of few.parquet")


@pytest.mark.parametrize("pools", [["many"], ["many/*.parquet"], ["many/a.pools.parquet", "many/b.pools.parquet"]])
def test_pools_may_be_folders_globs_and_several_files(score, folder, pools):
    rows = [
        row(pool.question_id, pool.question, list(zip(pool.answer_ids, pool.texts, strict=True)))
        for pool in POOLS
    ]
    (folder / "many").mkdir()
    write_pools("many/b.pools.parquet", rows[6:9], rows[9:])
    write_pools("many/a.pools.parquet", rows[:3], rows[3:6])
    score(output="whole.run")

    finished = score(pools=pools)

    assert finished.out == ["out.run: 72 pairs"]
    assert (folder / "out.run").read_bytes() == (folder / "whole.run").read_bytes()


def test_columns_beyond_those_of_the_format_are_let_be(score, folder):
    score(output="whole.run")
    extra = pa.field("seen", pa.list_(pa.struct([("answer_id", pa.string())])))
    rows = [
        {**row(pool.question_id, pool.question, list(zip(pool.answer_ids, pool.texts, strict=True))), "seen": []}
        for pool in POOLS
    ]
    write_pools("test.pools.parquet", rows, schema=pa.schema([extra, *arrow_schema("pools")]))

    assert score().out == ["out.run: 72 pairs"]


def test_shortest_form(aptool, folder, model_folder):
    shutil.copytree(model_folder, "models/ap-cnn")
    shutil.copy("test.pools.parquet", "pools.parquet")

    finished = aptool("score", "pools.parquet")

    assert finished.code == 0
    assert finished.err == ["--model not given: models/ap-cnn", "--output not given: pools.run"]
    assert finished.out == ["pools.run: 72 pairs"]
    assert aptool("score", "test.pools.parquet").out == ["test.run: 72 pairs"]


def test_long_answers_are_cut_and_counted(score, folder, model_folder):
    rows = [row("q1", "where", [("a1", "here " * 500), ("a2", "there"), ("a3", "far " * 201)])]
    write_pools("test.pools.parquet", rows)

    assert score().err == ["2 answers were cut at 200 tokens"]


class Constant(System):
    fingerprint = "constant"

    def __init__(self, value):
        self.value = value

    def score(self, pools):
        return np.full(len(pools.answer_ids), self.value, dtype=np.float32)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_a_score_that_is_not_finite_is_named(folder, value):
    pools = read_pools(Unit("test.pools.parquet", 0))

    with pytest.raises(AptoolError, match=rf"^here: question '{POOLS[0].question_id}', answer '.*': score {value}"):
        score_frame(pools, Constant(value), "here")


@pytest.fixture
def no_work(monkeypatch):
    """Fails the test if scoring begins or even a model is read."""
    monkeypatch.setattr("aptool.models.checkpoint.load_model", lambda *given: pytest.fail("a model was read"))


@pytest.mark.usefixtures("no_work")
def test_an_output_that_cannot_be_written_is_said_first(score, folder):
    (folder / "file").write_text("x")
    (folder / "place").mkdir()

    assert_one_line(score(output="file/out.run"), 1, "file/out.run: ", "expected a place that can be written to")
    assert_one_line(score(output="place"), 1, "place: 'a folder': expected a file, or nothing yet")


@pytest.mark.usefixtures("no_work")
def test_a_tag_of_two_words_is_said_first(score):
    assert_one_line(score("--tag", "my run"), 2, "--tag 'my run': expected one word")


@pytest.mark.usefixtures("no_work")
def test_an_output_must_be_given_for_several_pools(aptool, folder):
    finished = aptool("score", "test.pools.parquet", "test.pools.parquet", "--model", "m")

    assert_one_line(finished, 2, "--output RUN is needed unless POOLS is one file")


def test_a_device_that_there_is_not(score):
    assert_one_line(score("--device", "abacus"), 2, "--device 'abacus': ", "expected auto, cpu or a GPU")


def test_a_model_that_there_is_not(score):
    finished = score(model="models/none")

    assert_one_line(finished, 1, "models/none: no such model folder; `aptool train COLLECTION --output models/none`")


def test_a_model_without_weights(score, model_folder, folder):
    shutil.copytree(model_folder, "mine")
    (folder / "mine" / "model.safetensors").unlink()

    assert_one_line(score(model="mine"), 1, "mine/model.safetensors: 'no such file': expected the weights of a model")


def test_pools_that_there_are_not(score, folder):
    (folder / "empty").mkdir()

    assert_one_line(score(pools=["none.parquet"]), 1, "none.parquet: 'no such file'")
    assert_one_line(score(pools=["empty"]), 1, "empty: expected a file, a glob that matches files, or a folder with")
    assert_one_line(score(pools=["em*.parquet"]), 1, "em*.parquet: expected a file, a glob that matches")


def test_pools_without_a_pool(score, folder):
    write_pools("test.pools.parquet")
    assert_one_line(score(), 1, "test.pools.parquet: 'no row': expected at least one pool")

    write_pools("test.pools.parquet", [])
    assert_one_line(score(), 1, "test.pools.parquet: 'no row': expected at least one pool")


@pytest.mark.parametrize("files", [1, 2])
def test_a_question_in_two_row_groups_is_named(score, folder, files):
    write_pools("b.pools.parquet", *[[row("q2"), row("q1")]] * (3 - files))
    if files == 2:
        write_pools("a.pools.parquet", [row("q1")])

    finished = score(pools=["?.pools.parquet"])

    assert finished.code == 1
    assert len(finished.err) == 1
    wanted = "column 'question_id': 'q1': expected one pool a question: it also stands in "
    assert wanted in finished.err[0]
    assert not Path("out.run").exists()


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (row("q1", candidates=[]), "column 'candidates': []: expected a pool of at least one candidate"),
        (row("q1", candidates=[("a1", "x"), ("a1", "y")]), "'a1': expected each answer once in a pool"),
        (row("q 1"), "column 'question_id': 'q 1': expected an id without white space"),
    ],
)
def test_malformed_pools_end_in_one_line_and_leave_no_run(score, folder, wrong, message):
    write_pools("test.pools.parquet", [row("q0")], [wrong])

    assert_one_line(score(), 1, "test.pools.parquet: row group 1: row 0: ", message)
    assert not (folder / "out.run").exists()


def test_what_is_not_parquet_ends_in_one_line(score, folder):
    (folder / "test.pools.parquet").write_text("q1\twhere\n")

    assert_one_line(score(), 1, "test.pools.parquet: ", "expected a readable Parquet file")


def test_missing_columns_end_in_one_line(score, folder):
    pl.DataFrame({"question": ["where"], "answer": ["here"]}).write_parquet("test.pools.parquet")

    assert_one_line(score(), 1, "test.pools.parquet: 'question, answer': expected a column 'question_id'")


def test_failure_while_writing_leaves_no_half_file(score, folder, monkeypatch):
    monkeypatch.setattr("aptool.formats.trec.rank_candidates", lambda frame: 1 / 0)

    with pytest.raises(ZeroDivisionError):
        score()

    assert sorted(path.name for path in folder.iterdir()) == ["out.run.parts", "test.pools.parquet"]
