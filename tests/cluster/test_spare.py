"""Units that are late, scored by a worker without work; without a cluster."""

import pytest
from tiny import labelled_pools, row, write_pools

from aptool.cluster import ray_data
from aptool.cluster.ray_data import score_late, wait_until_begun
from aptool.cluster.worker import ScoringJob, Worker, begin
from aptool.formats.claim import DRIVER, Claim
from aptool.formats.pools import list_units
from aptool.scoring.baselines import RandomSystem
from aptool.scoring.parts import parts_folder, plan


def opened(device):
    return RandomSystem()


@pytest.fixture
def parts(tmp_path, monkeypatch):
    """Four row groups of three pools."""
    monkeypatch.setattr(ray_data, "PATIENCE_SECONDS", 0)
    pools = labelled_pools("test", 12)
    rows = [row(p.question_id, p.question, list(zip(p.answer_ids, p.texts, strict=True))) for p in pools]
    write_pools(tmp_path / "test.pools.parquet", *(rows[start : start + 3] for start in range(0, 12, 3)))
    parts_folder(tmp_path / "x.run").mkdir()
    return plan(list_units([tmp_path / "test.pools.parquet"]), RandomSystem(), tmp_path / "x.run", "tag")


@pytest.fixture
def claim(parts, tmp_path):
    claim = Claim(parts_folder(tmp_path / "x.run") / DRIVER, tmp_path / "x.run")
    claim.take()
    return claim


@pytest.fixture
def job(claim):
    return ScoringJob(opened, "cpu", RandomSystem().fingerprint, claim.path.parent, claim.token, None)


@pytest.fixture
def worker(job):
    return Worker(job)


def test_what_others_have_not_written_is_scored(worker, parts):
    worker.score(0, parts[0])
    worker.score(2, parts[2])
    begin(parts[1], "score")  # by a worker that is slow

    late = score_late(worker, parts)

    assert [(outcome.number, outcome.pairs, outcome.again) for outcome in late] == [
        (1, parts[1].pairs, True),
        (3, parts[3].pairs, True),
    ]
    assert all(part.path.exists() for part in parts)
    assert score_late(worker, parts) == []


def test_what_is_late_is_scored_by_one_worker_without_work(worker, parts):
    begin(parts[1], "again")  # by another one
    begin(parts[2], "again")

    assert [outcome.number for outcome in score_late(worker, parts)] == [0, 3]


def test_a_unit_that_cannot_be_scored_is_left_to_its_worker(worker, parts, tmp_path):
    (tmp_path / "test.pools.parquet").unlink()

    assert score_late(worker, parts) == []
    assert not any(part.path.exists() for part in parts)


def test_nothing_is_scored_for_a_driver_that_has_gone_on(worker, parts, claim):
    claim.reissue()

    assert score_late(worker, parts) == []
    assert not any(part.path.exists() for part in parts)


def test_none_is_without_work_before_all_is_begun(worker, job, parts, monkeypatch):
    waits = []

    def wait(seconds):
        begin(parts[len(waits)], "score")
        waits.append(seconds)

    monkeypatch.setattr(ray_data.time, "sleep", wait)
    worker.score(3, parts[3])

    wait_until_begun(job, parts)

    assert waits == [ray_data.POLL_SECONDS] * 2  # the third one may stand behind one of these


def test_nothing_is_waited_for_forever_or_for_another_driver(job, parts, claim, monkeypatch):
    monkeypatch.setattr(ray_data.time, "sleep", lambda seconds: claim.reissue())
    wait_until_begun(job, parts)  # ends once the claim is another's

    monkeypatch.setattr(ray_data, "QUEUE_SECONDS", 0)
    wait_until_begun(job._replace(owner=claim.token), parts)


def test_a_worker_waits_as_long_as_its_own_units_took_it(worker, job, parts, monkeypatch):
    """Meanwhile the others may write their parts, and then nothing is scored twice."""
    other = Worker(job)
    monkeypatch.setattr(Worker, "seconds_per_unit", 60.0)
    waits = []

    def wait(seconds):
        waits.append(seconds)
        other.score(len(waits) - 1, parts[len(waits) - 1])

    monkeypatch.setattr(ray_data.time, "sleep", wait)

    assert score_late(worker, parts) == []
    assert waits == [ray_data.POLL_SECONDS] * 4
