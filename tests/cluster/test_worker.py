"""A worker without a cluster: scores, retries, and errors of its node."""

import logging
import os
import pickle
import shutil
import tempfile
import time
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from aptool.formats.claim import DRIVER, Claim
from aptool.formats.location import store_of
from aptool.formats.store import ReplacedError
from aptool.scoring.parts import digest_of, parts_folder, plan
from safetensors.numpy import load_file, save_file
from scene import write_row_groups
from slow import run_out_of_memory
from tiny import row, write_pools

from aptool.cluster.nodes import check_node, host
from aptool.cluster.worker import (
    ScoringJob,
    Worker,
    open_scorer,
    read_and_prepare,
)
from aptool.environment import versions_of
from aptool.errors import AptoolError, InputError, UsageError
from aptool.formats.pools import Unit, list_units
from aptool.scoring.model_system import ModelSystem
from aptool.scoring.systems import RandomScorer, RandomScores

NOBODY = 65534


@pytest.fixture
def shared_folder():
    """A folder that every user can read."""
    folder = Path(tempfile.mkdtemp())
    folder.chmod(0o755)
    yield folder
    shutil.rmtree(folder)


@pytest.fixture
def as_nobody():
    """A function that runs another function without the rights of root."""

    def run(function):
        if os.geteuid():
            return function()
        os.seteuid(NOBODY)
        try:
            return function()
        finally:
            os.seteuid(0)

    return run


@pytest.fixture
def job(shared_folder):
    write_row_groups(shared_folder / "test.pools.parquet", "test", 12, 12)
    parts_folder(shared_folder / "x.run").mkdir()
    claim = claimed_by(shared_folder / "x.run")
    system = RandomScores()
    return ScoringJob(system, "cpu", system.open().fingerprint, claim.path.parent, claim.token, None)


def claimed_by(output):
    claim = Claim(parts_folder(output) / DRIVER, output)
    claim.take()
    return claim


def first_part(shared_folder):
    return plan(
        list_units([shared_folder / "test.pools.parquet"]),
        RandomScores().open(),
        shared_folder / "x.run",
        "tag",
    )[0]


def test_a_unit_is_scored(shared_folder, job):
    part = first_part(shared_folder)

    outcome = Worker(job).score({0: part})[0]

    assert (outcome.pairs, outcome.attempts, outcome.error) == (part.pairs, 1, "")
    assert part.path.exists()


def test_core_seconds_are_cpu_time(shared_folder, job, monkeypatch):
    """A unit that waits for a second takes little CPU time."""
    score = RandomScorer.score

    def wait_and_score(self, inputs, progress):
        time.sleep(1)
        return score(self, inputs, progress)

    monkeypatch.setattr(RandomScorer, "score", wait_and_score)

    outcome = Worker(job).score({0: first_part(shared_folder)})[0]

    assert 0 < outcome.core_seconds <= outcome.seconds - 0.9


def test_out_of_memory_is_one_line_and_the_unit_can_be_scored_again(shared_folder, job, monkeypatch):
    """PyTorch raises a plain RuntimeError if the CPU's memory is exhausted."""
    part = first_part(shared_folder)
    with monkeypatch.context() as patch:
        patch.setattr(RandomScorer, "score", lambda self, inputs, progress: run_out_of_memory())
        outcome = Worker(job).score({0: part})[0]
        assert Worker(job).score_again(0, part) is None

    assert f"row group 0: out of memory on node {host()}: a smaller --tokens-per-batch" in outcome.error
    assert not outcome.fatal
    assert not part.path.exists()
    assert Worker(job).score({0: part})[0].error == ""
    assert part.path.exists()


def test_output_that_cannot_be_written_is_reported_with_the_node(shared_folder, job, as_nobody):
    part = first_part(shared_folder)
    job.folder.chmod(0o555)

    outcome = as_nobody(lambda: Worker(job).score({0: part})[0])

    assert outcome.fatal
    assert outcome.error.startswith("node ")
    assert "x.run.parts/part: Permission denied; expected a writable folder" in outcome.error
    assert not part.path.exists()


def test_model_that_differs_from_the_drivers_is_refused(shared_folder, job):
    part = first_part(shared_folder)

    outcome = Worker(job._replace(fingerprint="other")).score({0: part})[0]

    assert outcome.fatal
    assert (
        "the model differs from the driver's: expected the same model folder and plugins on every node"
        in outcome.error
    )
    assert not part.path.exists()


def test_a_model_that_differs_prepares_no_unit_for_workers_with_a_gpu(shared_folder, job, model_folder):
    folder = shared_folder / "model"
    shutil.copytree(model_folder, folder)
    system, part = ModelSystem(str(folder), precision="fp32"), first_part(shared_folder)
    expected = system.open(device="cpu").prepare_fingerprint
    job = job._replace(system=system, device="cuda", prepare_fingerprint=expected)

    assert read_and_prepare(job, part).error == ""
    weights = load_file(folder / "model.safetensors")
    save_file({name: weight + 1 for name, weight in weights.items()}, folder / "model.safetensors")
    open_scorer.cache_clear()

    assert "the model differs from the driver's" in read_and_prepare(job, part).error


def test_lost_claim_is_not_an_error_of_the_unit(shared_folder, job):
    worker = Worker(job)
    (job.folder / DRIVER).unlink()
    claimed_by(shared_folder / "x.run")  # a second driver

    outcome = worker.score({0: first_part(shared_folder)})[0]

    assert outcome.fatal
    assert "has taken over" in outcome.error
    assert not first_part(shared_folder).path.exists()


def test_model_on_an_object_store_is_checked_by_its_url(bucket, job):
    check_node(job._replace(paths=()).requirements)
    with pytest.raises(InputError, match=r"none: file not found; expected a path that every node sees"):
        check_node(job._replace(paths=(f"{bucket}/none",)).requirements)
    store, key = store_of(f"{bucket}/m/config.json")
    store.create(key, b"{}")

    check_node(job._replace(paths=(f"{bucket}/m",)).requirements)


def test_node_with_other_versions_is_refused(shared_folder, job):
    current = versions_of("torch")
    other = job._replace(versions=(("aptool", "0.1.0"), ("torch", current["torch"])))

    outcome = Worker(other).score({0: first_part(shared_folder)})[0]

    assert outcome.fatal
    assert outcome.error == (
        f"node {host()}: aptool {current['aptool']} there, 0.1.0 here: expected the same versions and plugins"
    )
    assert (
        Worker(job._replace(versions=tuple(current.items()))).score({0: first_part(shared_folder)})[0].error
        == ""
    )


def test_file_that_differs_from_the_drivers_is_not_scored(shared_folder, job):
    path = str(shared_folder / "test.pools.parquet")
    planned, part = job._replace(contents=((path, digest_of(path)),)), first_part(shared_folder)
    part = part._replace(unit=part.unit._replace(version=None))  # times differ between nodes
    before = Path(path).read_bytes()
    write_pools(path, [row("q1", "who?", [("a1", "someone else"), ("a2", "nobody")])])

    assert "replaced while it was read" in Worker(planned).score({0: part})[0].error
    assert not part.path.exists()

    Path(path).write_bytes(before)  # with a new time
    assert Worker(planned).score({0: part})[0].error == ""


def test_answers_beside_the_pools_are_compared_with_the_drivers(shared_folder, job, monkeypatch):
    """A node with another copy of ``answers.parquet`` does not score its texts."""
    pytest.importorskip("ray", reason="the extra `cluster` is not installed")
    from aptool.cluster.score import scoring_job

    monkeypatch.chdir(shared_folder)
    write_pools("test.pools.parquet", [row("q1", "who?", [("a1", None), ("a2", None)])])
    pq.write_table(pa.table({"answer_id": ["a1", "a2"], "text": ["me", "you"]}), "answers.parquet")
    scorer = RandomScores().open()
    (part,) = plan(list_units(["test.pools.parquet"]), scorer, shared_folder / "x.run", "tag")
    claim = claimed_by(shared_folder / "y.run")
    planned = scoring_job([part], scorer, None, claim)
    part = part._replace(unit=Unit(str(shared_folder / "test.pools.parquet"), 0))
    pq.write_table(pa.table({"answer_id": ["a1", "a2"], "text": ["you", "me"]}), "answers.parquet")

    assert Worker(planned).score({0: part})[0].error.startswith(f"{shared_folder}/answers.parquet: replaced")
    assert not part.path.exists()

    (shared_folder / "answers.parquet").unlink()
    with pytest.raises(InputError, match=r"answers.parquet: file not found; expected a path that every node"):
        check_node(planned.requirements)


def test_each_input_is_checked_once(shared_folder, monkeypatch):
    pytest.importorskip("ray", reason="the extra `cluster` is not installed")
    from aptool.cluster.score import scoring_job
    from aptool.formats import inputs

    write_row_groups(shared_folder / "test.pools.parquet", "test", 12, 2)
    units = list_units([shared_folder / "test.pools.parquet"])
    scorer = RandomScores().open()
    parts = plan(units, scorer, shared_folder / "x.run", "tag")
    checked, stat = [], inputs.stat
    monkeypatch.setattr(inputs, "stat", lambda path: checked.append(path) or stat(path))

    claim = claimed_by(shared_folder / "x.run")
    scoring_job(parts, scorer, None, claim)

    assert checked == [str(shared_folder / "test.pools.parquet")]


@pytest.mark.parametrize(
    "error",
    [InputError("a.run", position="line 3", value=1, expected="2"), ReplacedError("a"), UsageError("b")],
)
def test_pickled_errors_keep_their_message_and_exit_code(error):
    copy = pickle.loads(pickle.dumps(error))

    assert isinstance(copy, AptoolError)
    assert (str(copy), copy.exit_code) == (str(error), error.exit_code)


def test_a_node_whose_folder_of_parts_is_another_is_refused(job, tmp_path):
    expected = r"not the driver's folder; expected an output on storage that all nodes share"
    with pytest.raises(InputError, match=expected):
        check_node(job._replace(folder=tmp_path).requirements)
    check_node(job.requirements)


def test_unit_of_an_interrupted_batch_is_not_scored_again(shared_folder, job, monkeypatch):
    part = first_part(shared_folder)
    Worker(job).score({0: part})
    monkeypatch.setattr(RandomScorer, "score", None)

    assert Worker(job).score({0: part})[0][:2] == (0, part.pairs)


def test_log_of_a_worker_has_a_line_per_unit(shared_folder, job, caplog):
    part = first_part(shared_folder)
    caplog.set_level(logging.DEBUG, "aptool")

    Worker(job).score({0: part})
    part.path.unlink()
    (shared_folder / "test.pools.parquet").unlink()
    Worker(job).score({0: part})

    node = f"node {host()}: {shared_folder}/test.pools.parquet: row group 0: "
    (scored, failed) = caplog.records
    assert (scored.levelname, failed.levelname) == ("DEBUG", "ERROR")
    assert scored.message.startswith(f"{node}72 pairs in ")
    assert failed.message.startswith(node)
    assert failed.message.endswith("file not found; expected a file that exists")
