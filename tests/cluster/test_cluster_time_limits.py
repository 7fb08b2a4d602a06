"""Ray Data's limit of time without progress: off by default, respected where the user sets it."""

import json
import os
import threading
from pathlib import Path

import pytest
from scene import wait_for
from slow import scored

from aptool.errors import AptoolError

LIMIT = "RAY_DATA_EXECUTION_NO_PROGRESS_TIMEOUT_S"
DRIVER = Path(__file__).parent / "driver.py"


def test_unit_longer_than_ray_datas_default_limit_is_scored(cluster, scene, monkeypatch):
    """The default is 5 s here; no unit ends for 12 s."""
    import ray.data

    context = ray.data.DataContext.get_current()
    monkeypatch.setattr(ray.data.DataContext, "execution_no_progress_timeout_s", 5)
    monkeypatch.setattr(context, "execution_no_progress_timeout_s", 5)
    hold = scene.notes / "hold"
    hold.touch()

    def release():
        wait_for(lambda: scored(scene.notes))
        threading.Event().wait(12)
        hold.unlink()

    thread = threading.Thread(target=release)
    thread.start()
    scene.score(cluster)
    thread.join()

    scene.assert_whole()
    assert context.execution_no_progress_timeout_s == 5  # other data sets of this process keep it


@pytest.mark.parametrize("where", ["environment", "context"])
def test_limit_that_the_user_sets_ends_in_one_line_and_the_run_resumes(
    address, cluster, scene, run, monkeypatch, where
):
    """A single worker scores three row groups and stays in the fourth."""
    import ray.data

    stuck = scene.notes / "stuck"
    stuck.write_text("test-q6")
    if where == "environment":
        finished = run(DRIVER, json.dumps(scene.arguments(address, workers=1)), **{LIMIT: "5"})
        assert finished.code == 1
        (line,) = finished.err
    else:
        context = ray.data.DataContext.get_current()
        monkeypatch.setattr(context, "execution_no_progress_timeout_s", 5)
        with pytest.raises(AptoolError) as error:
            scene.score(cluster, workers=1)
        line = str(error.value)

    assert line == (
        f"--cluster {address}: no progress within Ray Data's limit: expected a higher {LIMIT}, or -1 for no "
        "limit; finished work is kept: run the same command again to resume"
    )
    stuck.unlink()
    if where == "context":
        monkeypatch.undo()
    assert scene.score(cluster).resumed == 3
    scene.assert_whole()


def test_limit_that_ray_data_refuses_is_one_line(address, scene, run):
    """Ray Data itself raises a plain ValueError for 0."""
    finished = run(DRIVER, json.dumps(scene.arguments(address)), **{LIMIT: "0"})

    assert finished.code == 1
    (line,) = finished.err
    assert line.startswith(f"--cluster {address}: execution_no_progress_timeout_s must be positive")
    assert os.linesep not in line
