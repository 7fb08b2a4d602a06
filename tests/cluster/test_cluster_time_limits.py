"""Clusters that wait: without room, without nodes, and for units longer than Ray Data's time limit."""

import json
import signal
import subprocess
import sys
import threading
from functools import partial
from pathlib import Path

import pytest
from scene import wait_for
from slow import scored

from aptool.cluster.connection import Resources

TWO_CORES = Resources(cpus=2)
LIMIT = "RAY_DATA_EXECUTION_NO_PROGRESS_TIMEOUT_S"
DRIVER = Path(__file__).parent / "driver.py"
TEST_SECONDS = 600  # long enough for a busy machine


@pytest.fixture
def short_limit(monkeypatch):
    """Ray Data's default limit without progress is 5 s instead of 30 minutes."""
    import ray.data

    monkeypatch.setattr(ray.data.DataContext, "execution_no_progress_timeout_s", 5)
    monkeypatch.setattr(ray.data.DataContext.get_current(), "execution_no_progress_timeout_s", 5)


@pytest.mark.usefixtures("short_limit")
def test_unit_that_exceeds_ray_datas_default_limit_is_scored(cluster, scene):
    """No unit ends for 12 s."""
    import ray.data

    context = ray.data.DataContext.get_current()
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


def test_error_of_a_limit_by_the_user_is_one_line_and_the_run_resumes(address, cluster, scene, run):
    """A single worker scores three units and hangs in the fourth. It starts within the limit of 20 s."""
    stuck = scene.notes / "stuck"
    stuck.write_text("test-q6")
    finished = run(DRIVER, json.dumps(scene.arguments(address, workers=1)), **{LIMIT: "20"})

    assert finished.code == 1
    (line,) = finished.err
    assert line == (
        f"--cluster {address}: no progress within Ray Data's limit: expected a higher {LIMIT}, or -1 for no "
        "limit; finished work is kept: run the same command again to resume"
    )
    stuck.unlink()
    assert scene.score(cluster).resumed == 3
    scene.assert_complete()


@pytest.fixture
def add(nodes):
    """A function that adds a node with two cores, the only one with room for a worker of these tests."""
    added = []

    def start():
        added.append(nodes.add_node(num_cpus=2, object_store_memory=80 << 20))
        return added[-1]

    yield start
    for node in added:
        if node in nodes.worker_nodes:
            nodes.remove_node(node)


@pytest.mark.usefixtures("short_limit")
@pytest.mark.parametrize("workers", [None, 1])
def test_cluster_without_room_is_waited_for(cluster, scene, add, in_thread, workers):
    """No node fits for more than twice the limit."""
    scored_run = in_thread(scene.score, cluster, each=TWO_CORES, workers=workers)
    threading.Event().wait(12)
    assert not scored_run.done()
    add()
    scored_run.result(TEST_SECONDS)

    scene.assert_complete()


@pytest.mark.usefixtures("short_limit")
def test_all_nodes_are_lost_and_come_back(nodes, cluster, scene, add, in_thread):
    """The only node with room is lost while it scores, and replaced after more than twice the limit."""
    node = add()
    scored_run = in_thread(scene.score, cluster, seconds=1, each=TWO_CORES, workers=1)
    wait_for(lambda: len(scored(scene.notes)) >= 2)
    nodes.remove_node(node, allow_graceful=False)
    threading.Event().wait(12)
    assert not scored_run.done()
    add()
    scored_run.result(TEST_SECONDS)

    scene.assert_complete()


@pytest.fixture
def taken(cluster):
    """Another job has all cores of the cluster; calling the value frees them."""
    from ray.util import placement_group, remove_placement_group

    group = placement_group([{"CPU": 1.0}] * 2)
    assert group.wait(TEST_SECONDS)
    yield partial(remove_placement_group, group)
    remove_placement_group(group)


@pytest.mark.parametrize(
    ("number", "code", "line"),
    [
        (signal.SIGINT, 130, "aptool: interrupted; the same command resumes"),
        (signal.SIGTERM, 143, "aptool: terminated; the same command resumes"),
    ],
    ids=["Ctrl-C", "SIGTERM"],
)
def test_signal_to_a_waiting_driver_is_one_line_and_the_run_resumes(
    address, taken, collection_folder, surroundings, run, tmp_path, number, code, line
):
    pools = collection_folder / "test.pools.parquet"
    arguments = ["-m", "aptool", "score", str(pools), "--model", "random", "--output", "x.run"]
    arguments += ["--cluster", address]
    process = subprocess.Popen(
        [sys.executable, *arguments],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        cwd=tmp_path,
        env=surroundings,
        # If a shell runs the tests in the background, child processes ignore Ctrl-C.
        preexec_fn=partial(signal.signal, signal.SIGINT, signal.SIG_DFL),
    )
    try:
        assert any("waiting for 1 worker with 1 CPU" in text for text in iter(process.stderr.readline, ""))
        process.send_signal(number)
        _, err = process.communicate(timeout=TEST_SECONDS)
    finally:
        process.kill()
        process.communicate()

    assert process.returncode == code, err
    assert [text for text in err.splitlines() if text] == [line]
    assert not (tmp_path / "x.run").exists()
    taken()
    assert run(*arguments).code == 0
