"""Scoring on a cluster: lost workers, nodes and drivers, units that cannot be scored, and waits."""

import os
import re
import shutil
import signal
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from recorded import recorded
from scene import UNITS, node_ids, wait_for
from slow import ONE_CORE, executor_of, scored

from aptool.cluster.connection import Resources
from aptool.errors import AptoolError
from aptool.scoring.model_system import ModelSystem
from aptool.scoring.run import score_files

LIMIT = "RAY_DATA_EXECUTION_NO_PROGRESS_TIMEOUT_S"


def test_two_workers_write_the_run_of_one_process(cluster, scene):
    with recorded() as records:
        result = scene.score(cluster, seconds=0.2)

    scene.assert_complete()
    assert (result.pairs, result.units, result.resumed) == (96, UNITS, 0)
    assert len({process for process, _ in scored(scene.notes)} - {os.getpid()}) == 2
    pairs = range(96 // UNITS, 97, 96 // UNITS)
    assert [update[:3] for update in records.updates["score"]] == [(done, 96, "pairs") for done in pairs]


def score_and_meanwhile(cluster, scene, act, **more):
    """Score, and call ``act`` while every worker is in the middle of a unit; return both results."""
    hold = scene.notes / "hold"
    hold.touch()

    def meanwhile():
        try:
            return act()
        finally:
            hold.unlink()

    with ThreadPoolExecutor(1) as thread:
        acted = thread.submit(meanwhile)
        return scene.score(cluster, **more), acted.result()


def test_unit_of_a_killed_worker_is_scored_again(cluster, scene):
    def kill():
        wait_for(lambda: len(scored(scene.notes)) == 2)
        process, question = scored(scene.notes)[-1]
        os.kill(process, signal.SIGKILL)
        return question

    _, lost = score_and_meanwhile(cluster, scene, kill, workers=2)

    scene.assert_complete()
    begun = scored(scene.notes)
    assert len(begun) > UNITS
    # Another process started the lost unit again.
    assert len({process for process, question in begun if question == lost}) >= 2


@pytest.mark.parametrize("announced", [False, True], ids=["lost", "preempted"])
def test_units_of_a_removed_node_are_scored_again(nodes, cluster, scene, preempt, announced):
    """The third node is lost while its worker scores."""
    before = node_ids()
    node = nodes.add_node(num_cpus=1, object_store_memory=80 << 20)
    wait_for(lambda: cluster.capacity(Resources(cpus=1)) == 3)
    raylet = node.all_processes["raylet"][0].process.pid

    def remove():
        wait_for(lambda: any(_parent(process) == raylet for process, _ in scored(scene.notes)))
        process, question = next(unit for unit in scored(scene.notes) if _parent(unit[0]) == raylet)
        if announced:
            (new,) = node_ids() - before
            preempt(new)
        os.kill(process, signal.SIGKILL)  # the unit must not be completed before
        nodes.remove_node(node, allow_graceful=False)
        return process, question

    _, (gone, lost) = score_and_meanwhile(cluster, scene, remove, workers=3)

    scene.assert_complete()
    begun = scored(scene.notes)
    assert len(begun) > UNITS
    assert [process for process, question in begun if question == lost][-1] != gone


def _parent(process):
    """The id of the parent of a process, or None if the process has ended."""
    try:
        return int(Path(f"/proc/{process}/stat").read_text().rsplit(")", 1)[1].split()[1])
    except OSError:
        return None


# The point where the driver is killed, and the number of complete parts for the next driver. Before and after
# the work of its workers, a driver does the same as a run without a cluster.
PHASES = {
    "scoring": {3, 4, 5, 6},  # each worker may complete one or two more units
    "before joining": {UNITS},
}


@pytest.mark.parametrize("phase", PHASES)
def test_scoring_resumes_after_a_killed_driver(address, cluster, anywhere, driver, phase):
    """The next driver resumes from the complete parts."""
    first = driver(**anywhere.arguments(address, phase=phase, seconds=0.3))
    output, _ = first.communicate(timeout=600)
    assert first.returncode == -signal.SIGKILL, output
    assert not anywhere.output.exists()
    assert anywhere.parts.exists()

    result = anywhere.score(cluster)

    assert result.resumed in PHASES[phase]
    anywhere.assert_complete()
    assert len(set(scored(anywhere.notes))) >= UNITS


def error_of(cluster, scene):
    """The error of a run by one worker."""
    with pytest.raises(AptoolError) as error:
        scene.score(cluster, workers=1)
    assert "\n" not in str(error.value)
    return str(error.value)


def test_unit_that_kills_its_workers_ends_the_run(cluster, scene, monkeypatch):
    """A worker exits in the middle of a unit, as if the kernel had killed it for its memory."""
    monkeypatch.setattr("aptool.cluster.score.RESTARTS", 1)
    (scene.notes / "trouble").write_text("test-q6 exit")  # in the fourth unit

    error = error_of(cluster, scene)

    assert "The actor died unexpectedly" in error
    assert "a smaller --tokens-per-batch" in error
    assert "run the same command again" in error
    assert [question for _, question in scored(scene.notes)].count("test-q6") == 2
    # The run continues with the parts of the other units.
    kept = len(list(scene.parts.glob("*.run")))
    assert kept >= 1
    (scene.notes / "trouble").unlink()
    assert scene.score(cluster).resumed == kept
    scene.assert_complete()


def test_unit_without_enough_memory_is_named(cluster, scene):
    (scene.notes / "trouble").write_text("test-q6 limit")

    error = error_of(cluster, scene)

    assert f"out of memory in {scene.pools}/3.pools.parquet: row group 0; expected a smaller" in error
    assert list(scene.parts.glob("*.run"))


def test_unreadable_row_group_is_named(cluster, scene):
    """The pages of a row group are overwritten; the footer, which the driver reads, is intact."""
    path = scene.pools / "5.pools.parquet"
    group = pq.read_metadata(path).row_group(0).column(0)
    content, begin = bytearray(path.read_bytes()), group.dictionary_page_offset or group.data_page_offset
    content[begin : begin + group.total_compressed_size] = b"\xff" * group.total_compressed_size
    path.write_bytes(content)

    error = error_of(cluster, scene)

    assert f"{path}: row group 0: " in error
    assert "expected a readable Parquet file" in error
    assert list(scene.parts.glob("*.run"))


def test_files_that_workers_do_not_see_are_named(cluster, scene, model_folder, monkeypatch):
    """The driver has planned the run when they vanish."""
    model, pools = scene.notes / "model", scene.pools / "5.pools.parquet"
    shutil.copytree(model_folder, model)
    monkeypatch.setattr("aptool.cluster.score.first_task", lambda *given: shutil.rmtree(model))
    executor = executor_of(cluster, ONE_CORE, workers=1)
    with pytest.raises(AptoolError, match=rf"^node \S+ \(\w+\): {model}.*$"):
        score_files(scene.units, ModelSystem(str(model), "cpu"), scene.output, executor)
    shutil.rmtree(scene.parts, ignore_errors=True)

    monkeypatch.setattr("aptool.cluster.score.first_task", lambda *given: pools.unlink())
    assert re.match(rf"node \S+ \(\w+\): {pools}: file not found; ", error_of(cluster, scene))


@pytest.fixture
def short_limit(monkeypatch):
    """Ray Data's default limit without progress is 2 s instead of 30 minutes."""
    import ray.data

    monkeypatch.setattr(ray.data.DataContext, "execution_no_progress_timeout_s", 2)
    monkeypatch.setattr(ray.data.DataContext.get_current(), "execution_no_progress_timeout_s", 2)


@pytest.mark.usefixtures("short_limit")
def test_unit_that_exceeds_ray_datas_default_limit_is_scored(cluster, scene):
    """No unit ends for 5 s."""
    hold = scene.notes / "hold"
    hold.touch()

    def release():
        wait_for(lambda: scored(scene.notes))
        threading.Event().wait(5)
        hold.unlink()

    thread = threading.Thread(target=release)
    thread.start()
    scene.score(cluster)
    thread.join()

    scene.assert_complete()


@pytest.mark.usefixtures("short_limit")
def test_a_limit_set_by_the_user_ends_the_run_which_resumes(cluster, scene, monkeypatch):
    """No unit ends, and the limit is 5 s."""
    monkeypatch.setenv(LIMIT, "5")
    (scene.notes / "hold").touch()

    with pytest.raises(AptoolError, match=f"no progress within Ray Data's limit: expected a higher {LIMIT}"):
        scene.score(cluster)

    (scene.notes / "hold").unlink()
    monkeypatch.delenv(LIMIT)
    scene.score(cluster)
    scene.assert_complete()


@pytest.fixture
def add(nodes):
    """A function that adds a node with two cores, the only one with room for a worker of these tests."""
    added = []

    def start(**more):
        added.append(nodes.add_node(num_cpus=2, object_store_memory=80 << 20, **more))
        return added[-1]

    yield start
    for node in added:
        if node in nodes.worker_nodes:
            nodes.remove_node(node)


@pytest.mark.usefixtures("short_limit")
def test_workers_wait_for_a_node_with_room_and_share_its_gpu(cluster, scene, add, in_thread):
    """No node fits for more than twice the limit. The GPU is only a resource of the scheduler."""
    with recorded() as records:
        scored_run = in_thread(scene.score, cluster, each=Resources(cpus=0, gpus=0.5))
        threading.Event().wait(5)
        assert not scored_run.done()
        add(num_gpus=1)
        scored_run.result(600)

    scene.assert_complete()
    waiting, described = records.messages[:2]
    assert waiting.startswith(
        "waiting for 1 worker with 0 CPUs and 0.5 GPUs each; the cluster has 2 CPUs and 0 G"
    )
    assert ": room for 2 workers with 0 CPUs and 0.5 GPUs each" in described


def test_workers_join_and_leave(nodes, cluster, scene, add, in_thread):
    """One of at most two workers has room; another one joins with its node, and is lost with it."""
    hold = scene.notes / "hold"
    hold.touch()
    add()
    scored_run = in_thread(scene.score, cluster, each=Resources(cpus=2), workers=(1, 2))
    try:
        wait_for(lambda: len(scored(scene.notes)) == 1)
        node = add()
        wait_for(lambda: len({process for process, _ in scored(scene.notes)}) == 2)
        nodes.remove_node(node, allow_graceful=False)
    finally:
        hold.unlink()
    scored_run.result(600)

    scene.assert_complete()


@pytest.mark.usefixtures("short_limit")
def test_all_nodes_are_lost_and_come_back(nodes, cluster, scene, add, in_thread):
    """The only node with room is lost while it scores, and replaced after more than twice the limit."""
    node = add()
    scored_run = in_thread(scene.score, cluster, seconds=1, each=Resources(cpus=2), workers=1)
    wait_for(lambda: len(scored(scene.notes)) >= 2)
    nodes.remove_node(node, allow_graceful=False)
    threading.Event().wait(5)
    assert not scored_run.done()
    add()
    scored_run.result(600)

    scene.assert_complete()
