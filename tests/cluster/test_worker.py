"""A worker by itself, without a cluster: it reports what its node lacks with the first unit."""

import os
import pickle
import shutil
import tempfile
from pathlib import Path

import pytest
from slow import run_out_of_memory
from tiny import labelled_pools, row, write_pools

from aptool.cluster.worker import ScoringJob, Worker, begin, check_node, host, versions
from aptool.errors import AptoolError, InputError, UsageError
from aptool.formats.claim import DRIVER, Claim
from aptool.formats.pools import list_units
from aptool.formats.store import ReplacedError
from aptool.formats.stores import store_of
from aptool.scoring.baselines import RandomSystem
from aptool.scoring.parts import digest_of, parts_folder, plan

NOBODY = 65534


def opened(device):
    return RandomSystem()


@pytest.fixture
def place():
    """A folder that every user can read."""
    folder = Path(tempfile.mkdtemp())
    folder.chmod(0o755)
    yield folder
    shutil.rmtree(folder)


@pytest.fixture
def as_nobody():
    """Runs a function without the rights of root, which can write anywhere."""

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
def job(place):
    pools = labelled_pools("test", 12)
    rows = [row(p.question_id, p.question, list(zip(p.answer_ids, p.texts, strict=True))) for p in pools]
    write_pools(place / "test.pools.parquet", rows)
    parts_folder(place / "x.run").mkdir()
    claim = claimed_by(place / "x.run")
    return ScoringJob(opened, "cpu", RandomSystem().fingerprint, claim.path.parent, claim.token, None)


def claimed_by(output):
    claim = Claim(parts_folder(output) / DRIVER, output)
    claim.take()
    return claim


def first_part(place):
    return plan(list_units([place / "test.pools.parquet"]), RandomSystem(), place / "x.run", "tag")[0]


def test_a_unit_is_scored(place, job):
    part = first_part(place)

    outcome = Worker(job).score(0, part)

    assert (outcome.pairs, outcome.attempts, outcome.error) == (part.pairs, 1, "")
    assert part.path.exists()


def test_a_limit_of_memory_is_one_line_and_the_unit_can_be_scored_again(place, job, monkeypatch):
    """PyTorch raises a plain RuntimeError where the processor's memory ends."""
    part = first_part(place)
    with monkeypatch.context() as short:
        short.setattr(RandomSystem, "score", lambda self, prepared: run_out_of_memory())
        outcome = Worker(job).score(0, part)
        assert Worker(job).score_again(0, part) is None

    assert f"row group 0: out of memory on node {host()}: a smaller --tokens-per-batch" in outcome.error
    assert not outcome.fatal
    assert not part.path.exists()
    assert Worker(job).score(0, part).error == ""
    assert part.path.exists()


def test_what_ray_is_told_of_a_worker(place, job, monkeypatch):
    from aptool.cluster import ray_data

    told = {}

    class Recorded:
        def __init__(self, name, description):
            self.values = told.setdefault(name.removeprefix("aptool_"), [])

        def inc(self, value=1.0):
            self.values.append(value)

        set = inc

    monkeypatch.setattr(ray_data.metrics, "Counter", Recorded)
    monkeypatch.setattr(ray_data.metrics, "Gauge", Recorded)
    part = first_part(place)
    batch = {"number": [0], "part": [pickle.dumps(part)]}

    begin(part, "score")  # by a worker that was lost
    ray_data.ScoreUnits(job, [part])(batch)

    (rate,) = told.pop("pairs_per_second")
    assert told == {"pairs": [part.pairs], "units": [1.0], "retries": [1.0]}
    assert rate > 0


def test_output_that_cannot_be_written_is_reported_with_the_node(place, job, as_nobody):
    part = first_part(place)
    job.folder.chmod(0o555)

    outcome = as_nobody(lambda: Worker(job).score(0, part))

    assert outcome.fatal
    assert outcome.error.startswith("node ")
    assert "x.run.parts/part: Permission denied; expected a writable folder" in outcome.error
    assert not part.path.exists()


def test_another_model_than_the_drivers_scores_nothing(place, job):
    part = first_part(place)

    outcome = Worker(job._replace(fingerprint="other")).score(0, part)

    assert outcome.fatal
    assert (
        "the model differs from the driver's: expected the same model folder on every node" in outcome.error
    )
    assert not part.path.exists()


def test_another_owner_of_the_folder_is_not_an_error_of_the_unit(place, job):
    worker = Worker(job)
    (job.folder / DRIVER).unlink()
    claimed_by(place / "x.run")  # a second driver

    outcome = worker.score(0, first_part(place))

    assert outcome.fatal
    assert "has taken over" in outcome.error
    assert not first_part(place).path.exists()


def test_a_model_on_an_object_store_is_seen_by_its_url(bucket, job):
    check_node(job._replace(paths=()))
    with pytest.raises(InputError, match=r"none: file not found; expected a path that every node sees"):
        check_node(job._replace(paths=(f"{bucket}/none",)))
    store, key = store_of(f"{bucket}/m/config.json")
    store.create(key, b"{}")

    check_node(job._replace(paths=(f"{bucket}/m",)))


def test_a_node_with_other_versions_scores_nothing(place, job):
    wanted = dict(versions())
    other = job._replace(versions=(("aptool", "0.1.0"), ("torch", wanted["torch"])))

    outcome = Worker(other).score(0, first_part(place))

    assert outcome.fatal
    assert outcome.error == (
        f"node {host()}: aptool {wanted['aptool']} there, 0.1.0 here: expected the same versions"
    )
    assert Worker(job._replace(versions=versions())).score(0, first_part(place)).error == ""


def test_a_file_that_is_not_the_drivers_is_not_scored(place, job):
    path = str(place / "test.pools.parquet")
    planned, part = job._replace(contents=((path, digest_of(path)),)), first_part(place)
    part = part._replace(unit=part.unit._replace(version=None))  # times are a node's own
    before = Path(path).read_bytes()
    write_pools(path, [row("q1", "who?", [("a1", "someone else"), ("a2", "nobody")])])

    assert "replaced while it was read" in Worker(planned).score(0, part).error
    assert not part.path.exists()

    Path(path).write_bytes(before)  # with another time
    assert Worker(planned).score(0, part).error == ""


@pytest.mark.parametrize(
    "error", [InputError("a.run", place="line 3", value=1, expected="2"), ReplacedError("a"), UsageError("b")]
)
def test_an_error_of_another_process_is_the_same_line(error):
    found = pickle.loads(pickle.dumps(error))

    assert isinstance(found, AptoolError)
    assert (str(found), found.exit_code) == (str(error), error.exit_code)
