"""`aptool score --cluster`: the bytes of `aptool score`, and errors of one line."""

import json
import signal
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest
from scene import by_signal, write_row_groups

SCORE = ("score", "test.pools.parquet", "--output")


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """The current folder, with pools."""
    monkeypatch.chdir(tmp_path)
    write_row_groups(tmp_path / "test.pools.parquet", "test", 12, 3)
    return tmp_path


@pytest.fixture
def process(run, folder):
    """A function that scores at random in a process of its own."""

    def start(*more, **environment):
        return run("-m", "aptool", *SCORE, "out.run", "--model", "random", *more, **environment)

    return start


def assert_one_line(finished, code, *phrases):
    """Check that the error is one line, after at most one line about the cluster, and progress."""
    assert (finished.code, finished.out) == (code, []), finished
    *before, line = finished.err
    logged = [message.split(":")[0][:8] for message in before if not message.startswith("score")]
    assert logged in ([], ["cluster "]), finished
    assert line.startswith("aptool: ")
    for phrase in phrases:
        assert phrase in line


def test_cluster_of_ray_address_writes_the_same_bytes(run, aptool, folder, model_folder, address):
    command = (*SCORE[:2], "--model", model_folder, "--output")
    assert aptool(*command, "alone.run").out == ["alone.run: 72 pairs"]

    finished = run("-m", "aptool", *command, "out.run", "--cluster", RAY_ADDRESS=address)

    assert (finished.code, finished.out) == (0, ["out.run: 72 pairs"])
    assert (folder / "out.run").read_bytes() == (folder / "alone.run").read_bytes()
    assert not (folder / "out.run.parts").exists()
    # One line names the workers and the folder of Ray's logs, and no message of Ray is printed.
    line, *progress = finished.err
    assert all(message.startswith("score: ") for message in progress)
    assert "room for 2 workers with 1 CPU and 0 GPUs each" in line
    logs = line.rpartition("Ray's logs are in ")[2]
    assert Path(logs).is_dir()


# The worker of a task is lost once, and Ray prints a warning on the driver.
WARNED = """
import os, sys, time
from pathlib import Path
from aptool.cluster.connection import connect
with connect(sys.argv[1]):
    import ray

    @ray.remote(max_retries=1)
    def lost_once(path):
        if not path.exists():
            path.touch()
            os._exit(1)
        return "result"

    result = ray.get(lost_once.remote(Path("lost").absolute()))
    time.sleep(1)  # until the driver has received the message
print(result)
"""


def test_messages_of_nodes_are_not_in_the_output(run, address):
    finished = run("-c", WARNED, address)

    assert (finished.out, finished.err) == (["result"], [])


def test_nothing_listens_at_the_address(process):
    finished = process("--cluster", "127.0.0.1:1")

    assert_one_line(
        finished, 1, "--cluster 127.0.0.1:1: ", "expected the head of a Ray cluster to answer there"
    )


@pytest.mark.parametrize(
    ("variable", "value", "remedy"),
    [("RAY_AUTH_TOKEN", "0" * 32, "RAY_AUTH_TOKEN"), ("RAY_AUTH_MODE", "disabled", "RAY_AUTH_MODE=token")],
    ids=["wrong", "none"],
)
def test_wrong_or_missing_token(process, address, variable, value, remedy):
    assert_one_line(process("--cluster", address, **{variable: value}), 1, address, remedy)


def test_different_versions_are_named(process, nodes):
    """The versions that the head reports are replaced for a moment."""
    store, key = nodes.head_node.get_gcs_client(), (b"CLUSTER_METADATA", b"cluster")
    before = store.internal_kv_get(*key)
    other = json.loads(before) | {"ray_version": "2.1.0", "python_version": "3.9.1"}
    store.internal_kv_put(key[0], json.dumps(other).encode(), True, key[1])
    try:
        finished = process("--cluster", nodes.address)
    finally:
        store.internal_kv_put(key[0], before, True, key[1])

    assert_one_line(finished, 1, "Version mismatch", "Ray: 2.1.0 Python: 3.9.1")


def test_scoring_starts_with_fewer_workers_than_requested(aptool, cluster, folder):
    finished = aptool(*SCORE, "out.run", "--model", "random", "--cluster", cluster.address, "--workers", 3)

    assert finished.code == 0, finished.err
    assert ": room for 2 workers with 1 CPU and 0 GPUs each" in finished.err[0]


def test_local_cluster_writes_the_same_bytes_and_nothing_to_the_home_folder(run, aptool, folder):
    """Ray itself would write a token there, which clusters without a token refuse."""
    (folder / "home").mkdir()
    program = "import os; del os.environ['RAY_AUTH_TOKEN'], os.environ['RAY_AUTH_MODE']; "
    program += "from aptool.__main__ import main; main()"
    assert aptool(*SCORE, "alone.run", "--model", "random").code == 0

    arguments = (*SCORE, "out.run", "--model", "random", "--cluster", "local")
    finished = run("-c", program, *arguments, HOME=str(folder / "home"))

    assert finished.code == 0, finished.err
    assert (folder / "out.run").read_bytes() == (folder / "alone.run").read_bytes()
    assert finished.err[0].startswith("cluster 127.0.0.1:")
    assert list((folder / "home").iterdir()) == []


@pytest.mark.parametrize(
    ("line", "phrase"),
    [
        ("raise ImportError('of the user')", "numpy"),
        ("import os, sys; sys.stderr.write('of the user'); sys.stderr.flush(); os._exit(1)", "cannot start"),
    ],
    ids=["error", "exit"],
)
def test_workers_that_cannot_start_are_one_line(run, folder, address, line, phrase):
    """Ray adds the folder of the driver to the path of its workers; only they import the file."""
    (folder / "numpy.py").write_text(line)
    program = "import sys; sys.path.remove(''); import numpy; sys.path.insert(0, ''); "
    program += "from aptool.__main__ import main; main()"

    finished = run("-c", program, *SCORE, "out.run", "--model", "random", "--cluster", address)

    assert_one_line(finished, 1, phrase)


@by_signal
def test_signal_to_a_waiting_driver_is_one_line_and_the_run_resumes(
    address, cluster, surroundings, aptool, folder, model_folder, number, code, line
):
    """No node has a GPU."""
    arguments = [*SCORE, "out.run", "--model", model_folder, "--cluster", address]
    process = subprocess.Popen(
        [sys.executable, "-m", "aptool", *arguments, "--gpus-per-worker", "1"],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        cwd=folder,
        env=surroundings,
        # If a shell runs the tests in the background, child processes ignore Ctrl-C.
        preexec_fn=partial(signal.signal, signal.SIGINT, signal.SIG_DFL),
    )
    try:
        assert any("waiting for 1 worker with " in text for text in iter(process.stderr.readline, ""))
        process.send_signal(number)
        _, err = process.communicate(timeout=600)
    finally:
        process.kill()
        process.communicate()

    assert process.returncode == code, err
    assert [text for text in err.splitlines() if text] == [line]
    assert not (folder / "out.run").exists()
    assert aptool(*arguments).code == 0
