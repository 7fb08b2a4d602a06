"""Ray Data's time limit without progress: off by default, respected if the user sets it."""

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


def test_unit_that_exceeds_ray_datas_default_limit_is_scored(cluster, scene, monkeypatch):
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

    scene.assert_complete()
    assert context.execution_no_progress_timeout_s == 5  # for other data sets of this process


@pytest.mark.parametrize("where", ["environment", "context"])
def test_error_of_a_limit_by_the_user_is_one_line_and_the_run_resumes(
    address, cluster, scene, run, monkeypatch, where
):
    """A single worker scores three row groups and hangs in the fourth. It starts within the limit of 20 s."""
    import ray.data

    stuck = scene.notes / "stuck"
    stuck.write_text("test-q6")
    if where == "environment":
        finished = run(DRIVER, json.dumps(scene.arguments(address, workers=1)), **{LIMIT: "20"})
        assert finished.code == 1
        (line,) = finished.err
    else:
        context = ray.data.DataContext.get_current()
        monkeypatch.setattr(context, "execution_no_progress_timeout_s", 20)
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
    scene.assert_complete()


def test_error_of_an_invalid_limit_is_one_line(address, scene, run):
    """Ray Data itself raises a plain ValueError for 0."""
    finished = run(DRIVER, json.dumps(scene.arguments(address)), **{LIMIT: "0"})

    assert finished.code == 1
    (line,) = finished.err
    assert line.startswith(f"--cluster {address}: execution_no_progress_timeout_s must be positive")
    assert os.linesep not in line
