"""Scoring from and to an object store: exact ranges, one version, and the bytes of a run on a disk."""

import hashlib
import signal
from pathlib import Path

import forked
import numpy as np
import pytest
from dying import die, die_after
from tiny import Opened, labelled_pools, row, write_pools

from aptool import outputs
from aptool.data.pools import Unit, list_units, read_pools
from aptool.errors import InputError
from aptool.files import stat
from aptool.paths import Url, names
from aptool.scoring.run import parts_folder, score_files
from aptool.scoring.systems import RandomScorer, RandomScores


def score_and_die(phase, path, output):
    """Score in a process that is killed in a given phase."""
    from aptool.data import pools
    from aptool.scoring import run

    pools.UNIT_PAIRS = 12
    if phase == "scoring":
        run.write = die_after(3, run.write)
    if phase == "uploading":
        outputs.upload = die  # of the run
    run.score_files(pools.list_units([path]), RandomScores(), output)


def write(split, path):
    """Six row groups of two pools."""
    pools = labelled_pools(split, 12)
    rows = [row(p.question_id, p.question, list(zip(p.answer_ids, p.texts, strict=True))) for p in pools]
    return write_pools(path, *(rows[start : start + 2] for start in range(0, 12, 2)))


def sha256(path):
    return hashlib.sha256(path.read_bytes()).hexdigest()


@pytest.fixture
def local(tmp_path, monkeypatch):
    """Pools on a disk, and their run file; each row group is a unit."""
    monkeypatch.setattr("aptool.data.pools.UNIT_PAIRS", 12)
    pools = write("test", tmp_path / "test.pools.parquet")
    score_files(list_units([pools]), RandomScores(), tmp_path / "out.run")
    return tmp_path


@pytest.fixture
def remote(bucket, local):
    """A bucket with the pools."""
    outputs.upload(local / "test.pools.parquet", Url(f"{bucket}/test.pools.parquet"))
    return Url(bucket)


def run(folder, output="out.run"):
    return score_files(list_units([folder / "test.pools.parquet"]), RandomScores(), f"{folder}/{output}")


def assert_whole(remote, local):
    assert sha256(remote / "out.run") == sha256(local / "out.run")
    assert names(remote) == ["out.run", "out.run.json", "test.pools.parquet"]


def test_a_row_group_costs_little_more_than_its_bytes(tmp_path, bucket, s3_proxy):
    """Reading one row group of 1.25 MB in a file of 12 MB transfers at most 1.5 MB."""
    random = np.random.default_rng(0)
    groups = [
        [row(f"q{number}", "why?", [(f"a{i}", random.bytes(300).hex()) for i in range(2040)])]
        for number in range(10)
    ]
    path = write_pools(tmp_path / "x.parquet", *groups)
    assert path.stat().st_size > 12_000_000
    outputs.upload(path, Url(f"{bucket}/x.parquet"))
    version = stat(f"{bucket}/x.parquet").version
    s3_proxy.bytes_read = 0

    pools = read_pools(Unit(f"{bucket}/x.parquet", (4,), 2040, None, version))

    assert pools.question_ids.to_pylist() == ["q4"]
    assert 1_200_000 < s3_proxy.bytes_read <= 1_500_000


@pytest.mark.parametrize("storage", ["disk", "s3"])
def test_an_input_replaced_during_scoring_is_an_error(storage, local, tmp_path, request):
    folder = local if storage == "disk" else request.getfixturevalue("remote")
    pools = folder / "test.pools.parquet"

    class Replacing(RandomScorer):
        def score(self, pools_read, count):
            new = write("dev", tmp_path / "new.parquet")
            new.replace(pools) if storage == "disk" else outputs.upload(new, pools)
            return super().score(pools_read, count)

    with pytest.raises(InputError, match=r"test\.pools\.parquet: replaced while it was read"):
        score_files(list_units([pools]), Opened(Replacing(RandomScores())), folder / "new.run")

    assert not (folder / "new.run").exists()
    result = score_files(list_units([pools]), RandomScores(), folder / "new.run", overwrite=True)
    assert result.resumed == 0


@pytest.mark.parametrize("phase", ["scoring", "uploading"])
def test_a_run_resumes_after_a_killed_driver(remote, local, tmp_path, phase):
    paths = str(remote / "test.pools.parquet"), str(remote / "out.run")
    driver = forked.run(tmp_path / "process", score_and_die, phase, *paths)
    assert driver.code == -signal.SIGKILL, driver.err
    assert not (remote / "out.run").is_file()

    result = run(remote)

    assert result.resumed == (6 if phase == "uploading" else 3)
    assert_whole(remote, local)


def test_a_run_in_a_folder_has_the_bytes_of_one_on_a_disk(remote, local):
    run(local, "folder/")
    run(remote, "folder/")

    assert run(remote, "folder/").resumed == 6
    parts = [[sha256(at / "folder" / name) for name in names(at / "folder")] for at in (local, remote)]
    assert len(parts[0]) == 6
    assert parts[0] == parts[1]


def test_an_incomplete_run_never_has_the_final_name(remote, local, s3_proxy):
    """The run file does not exist before the request that uploads it."""
    seen = []

    def look(method, path):
        if (method, Path(path).name) == ("PUT", "out.run"):
            seen.append("out.run" in names(remote))

    s3_proxy.before = look

    run(remote)

    assert seen == [False]
    assert names(parts_folder(remote / "out.run")) == []
    assert_whole(remote, local)
