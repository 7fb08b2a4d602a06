"""The status file of a run that is being scored."""

import contextlib
import json
import time
from pathlib import Path

import pytest
from tiny import row, write_pools

from aptool.errors import AptoolError
from aptool.formats.atomic import atomic_file
from aptool.formats.pools import list_units, read_pools
from aptool.scoring import status
from aptool.scoring.parts import write_part
from aptool.scoring.pipeline import UnitRecord, prepare, score
from aptool.scoring.score import Executor, score_files
from aptool.scoring.systems import RandomScores

FILE = Path("out.run.parts/status.json")


class Watched(Executor):
    """Two workers. After the last unit, the status file is read until it has all units, or ``done()``."""

    def __init__(self, error=None, done=None):
        self.seen, self._error, self._done = [{"units": 0}], error, done

    def open(self, system, units, answers):
        return system.open(units)

    def run(self, missing, scorer, meter):
        for number, part in enumerate(missing):
            unit = prepare(part.unit, read_pools(part.unit), scorer)
            write_part(part, *score([unit], scorer), 0)
            meter.reach(number)
            yield UnitRecord(number, part.pairs, f"worker {number % 2}", 1 + number, seconds=2.0 + number)
        while not (self.seen[-1]["units"] == len(missing) if self._done is None else self._done()):
            if self._done is None and FILE.exists():
                self.seen.append(json.loads(FILE.read_text()))
            time.sleep(0.01)
        if self._error is not None:
            raise self._error


@pytest.fixture(autouse=True)
def pools(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(status, "SECONDS", 0.01)
    rows = [row(f"q{number}") for number in range(6)]
    return write_pools("x.parquet", rows[:2], rows[2:4], rows[4:])


def run(executor):
    return score_files(list_units(["x.parquet"]), RandomScores(), "out.run", executor, tag="x")


def test_status_counts_the_work_of_each_worker():
    executor = Watched()

    run(executor)

    seen = executor.seen[-1]
    assert (seen["state"], seen["pairs"], seen["total_pairs"]) == ("running", 12, 12)
    assert (seen["units"], seen["total_units"], seen["retries"], seen["bad_rows"]) == (3, 3, 3, 0)
    assert seen["slowest_unit"] == {"file": "x.parquet", "row_group": 2, "seconds": 4.0, "worker": "worker 0"}
    assert seen["workers"] == [
        {"worker": "worker 0", "units": 2, "pairs": 8, "pairs_per_second": 1.3},
        {"worker": "worker 1", "units": 1, "pairs": 4, "pairs_per_second": 1.3},
    ]
    assert not FILE.parent.exists()


def test_status_of_a_run_that_ended_has_its_error():
    with pytest.raises(AptoolError):
        run(Watched(AptoolError("x.parquet: out of memory")))

    assert json.loads(FILE.read_text())["state"] == "ended: x.parquet: out of memory"


def test_status_that_cannot_be_written_is_a_warning(caplog):
    FILE.mkdir(parents=True)

    assert run(Watched(done=lambda: len(caplog.records))).pairs == 12

    (record,) = caplog.records
    assert record.levelname == "WARNING"
    assert record.getMessage().startswith("status file: ")
    assert record.getMessage().endswith("; the run goes on without it")
    assert FILE.is_dir()


def test_file_of_the_user_is_kept(caplog):
    FILE.parent.mkdir()
    FILE.write_text("mine")

    run(Watched(done=lambda: len(caplog.records)))

    assert FILE.read_text() == "mine"


def test_temporary_file_of_a_killed_command_is_removed():
    FILE.parent.mkdir()
    with contextlib.suppress(KeyboardInterrupt), atomic_file(FILE) as temporary:
        copy = temporary.read_bytes() if temporary.exists() else b""
        name = temporary.name
        raise KeyboardInterrupt
    (FILE.parent / name).write_bytes(copy)  # as a killed process leaves it

    run(Watched())

    assert not FILE.parent.exists()
