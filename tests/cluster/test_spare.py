"""Units of stragglers, re-scored by an idle worker; without a cluster."""

import pytest
from aptool.formats.claim import DRIVER, Claim
from aptool.scoring.parts import parts_folder, plan
from scene import write_row_groups

from aptool.cluster import ray_data
from aptool.cluster.ray_data import MOST_UNITS, batches_of, score_stragglers, wait_until_started
from aptool.cluster.worker import ScoringJob, Worker, start_attempt
from aptool.formats.pools import list_units
from aptool.scoring.systems import RandomScores


@pytest.fixture
def parts(tmp_path, monkeypatch):
    """Four row groups of three pools."""
    monkeypatch.setattr(ray_data, "PATIENCE_SECONDS", 0)
    write_row_groups(tmp_path / "test.pools.parquet", "test", 12, 3)
    parts_folder(tmp_path / "x.run").mkdir()
    return plan(
        list_units([tmp_path / "test.pools.parquet"]), RandomScores().open(), tmp_path / "x.run", "tag"
    )


@pytest.fixture
def claim(parts, tmp_path):
    claim = Claim(parts_folder(tmp_path / "x.run") / DRIVER, tmp_path / "x.run")
    claim.take()
    return claim


@pytest.fixture
def job(claim):
    system = RandomScores()
    return ScoringJob(system, "cpu", system.open().fingerprint, claim.path.parent, claim.token, None)


@pytest.fixture
def worker(job):
    return Worker(job)


def test_missing_parts_of_other_workers_are_scored(worker, parts):
    worker.score({0: parts[0]})
    worker.score({2: parts[2]})
    start_attempt(parts[1], "score")  # by a slow worker

    late = score_stragglers(worker, parts)

    assert [(outcome.number, outcome.pairs, outcome.again) for outcome in late] == [
        (1, parts[1].pairs, True),
        (3, parts[3].pairs, True),
    ]
    assert all(part.path.exists() for part in parts)
    assert score_stragglers(worker, parts) == []


def test_late_unit_is_scored_again_by_one_idle_worker(worker, parts):
    start_attempt(parts[1], "again")  # by another worker
    start_attempt(parts[2], "again")

    assert [outcome.number for outcome in score_stragglers(worker, parts)] == [0, 3]


def test_failing_unit_is_left_to_its_worker(worker, parts, tmp_path):
    (tmp_path / "test.pools.parquet").unlink()

    assert score_stragglers(worker, parts) == []
    assert not any(part.path.exists() for part in parts)


def test_nothing_is_scored_after_the_driver_reissues_its_claim(worker, parts, claim):
    claim.reissue()

    assert score_stragglers(worker, parts) == []
    assert not any(part.path.exists() for part in parts)


def test_spare_row_waits_until_units_are_started(worker, job, parts, monkeypatch):
    waits = []

    def wait(seconds):
        start_attempt(parts[len(waits)], "score")
        waits.append(seconds)

    monkeypatch.setattr(ray_data.time, "sleep", wait)
    worker.score({3: parts[3]})

    wait_until_started(job, parts)

    assert waits == [ray_data.POLL_SECONDS] * 2  # the last unit may be queued behind a started unit


def test_wait_ends_after_a_limit_and_with_the_claim(job, parts, claim, monkeypatch):
    monkeypatch.setattr(ray_data.time, "sleep", lambda seconds: claim.reissue())
    wait_until_started(job, parts)  # ends when the claim is reissued

    monkeypatch.setattr(ray_data, "QUEUE_SECONDS", 0)
    wait_until_started(job._replace(owner=claim.token), parts)


def test_worker_waits_for_the_mean_duration_of_its_groups(worker, job, parts, monkeypatch):
    """During the wait, the other workers write their parts, and no unit is scored twice."""
    other = Worker(job)
    monkeypatch.setattr(Worker, "seconds_per_group", 60.0)
    waits = []

    def wait(seconds):
        waits.append(seconds)
        other.score({len(waits) - 1: parts[len(waits) - 1]})

    monkeypatch.setattr(ray_data.time, "sleep", wait)

    assert score_stragglers(worker, parts) == []
    assert waits == [ray_data.POLL_SECONDS] * 4


def test_started_unit_of_a_slow_worker_is_scored_before_the_units_in_its_queue(worker, parts):
    start_attempt(parts[2], "score")  # by a slow worker, whose batch has all units

    assert [outcome.number for outcome in score_stragglers(worker, parts)] == [2, 0, 1, 3]


def test_batches_start_with_the_largest_units_and_shrink():
    """Of 80 pairs, two workers get an eighth at a time: 10, then 8, ..."""
    pairs = [1] * 10 + [30] + [2] * 20

    batches = batches_of(pairs, 2)

    assert batches[0] == [10]  # more than a share
    assert [sum(pairs[number] for number in batch) for batch in batches[1:5]] == [6, 4, 4, 4]
    assert [len(batch) for batch in batches[-3:]] == [1, 1, 1]
    assert sorted(number for batch in batches for number in batch) == list(range(len(pairs)))


def test_batches_have_a_maximum_of_units_and_of_pairs():
    assert {len(batch) for batch in batches_of([1] * 10_000, 1)[:9]} == {MOST_UNITS}
    assert max(len(batch) for batch in batches_of([10] * 1000, 1, 50)) == 5
    assert batches_of([100], 8, 50) == [[0]]
    # 2,000 units for two workers: few rows, because the driver has a fixed cost per row.
    assert len(batches_of([5_000] * 2_000, 2)) < 100
