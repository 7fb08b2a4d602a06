"""`aptool score --cluster`: the bytes of `aptool score`, and errors of one line."""

import json
from pathlib import Path

import pytest
from scene import write_row_groups
from tiny import labelled_pools


@pytest.fixture
def folder(tmp_path):
    write_row_groups(tmp_path / "test.pools.parquet", "test", 12, 3)
    return tmp_path


@pytest.fixture
def score(run, folder, model_folder):
    """A function that runs `aptool score test.pools.parquet --model MODEL` in another process."""

    def start(*more, pools="test.pools.parquet", model=model_folder, output="out.run", **environment):
        command = ("-m", "aptool", "score", pools, "--model", model, "--output", output, *more)
        return run(*command, cwd=folder, **environment)

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


def test_cluster_of_ray_address_writes_the_same_bytes(score, folder, address):
    alone = score(output="alone.run")
    finished = score("--cluster", RAY_ADDRESS=address)

    assert alone.out == ["alone.run: 72 pairs"]
    assert (finished.code, finished.out) == (0, ["out.run: 72 pairs"])
    assert (folder / "out.run").read_bytes() == (folder / "alone.run").read_bytes()
    assert not (folder / "out.run.parts").exists()
    # One line names the workers and the folder of Ray's logs, and no message of Ray is printed.
    line, *progress = finished.err
    assert all(message.startswith("score: ") for message in progress)
    assert "room for 2 workers with 1 CPU and 0 GPUs each" in line
    logs = line.rpartition("Ray's logs are in ")[2]
    assert Path(logs).is_dir()


def test_bm25_on_a_cluster_writes_the_same_bytes(run, folder, address):
    """Document frequencies are counted over all row groups."""
    command = ["-m", "aptool", "score", "test.pools.parquet", "--model", "bm25", "--output"]

    alone = run(*command, "alone.run", cwd=folder)
    finished = run(*command, "out.run", "--cluster", address, cwd=folder)

    assert (alone.code, alone.out) == (0, ["alone.run: 72 pairs"])
    assert (finished.code, finished.out) == (0, ["out.run: 72 pairs"]), finished.err
    assert (folder / "out.run").read_bytes() == (folder / "alone.run").read_bytes()


def test_fixed_number_of_workers_and_shared_answers(run, collection_folder, model_folder, tmp_path, address):
    from aptool.data.writing import CollectionWriter

    pools = labelled_pools("test", 12)
    texts = {a: t for pool in pools for a, t in zip(pool.answer_ids, pool.texts, strict=True)}
    with CollectionWriter(tmp_path / "shared", name="shared", source="tests") as writer:
        writer.add_answers(texts.items())
        writer.add_split("test", [pool._replace(texts=None) for pool in pools])
    command = ["-m", "aptool", "score", tmp_path / "shared" / "test.pools.parquet", "--model", model_folder]

    run(*command, "--output", "alone.run")
    finished = run(*command, "--output", "out.run", "--cluster", address, "--workers", 1)

    assert finished.code == 0, finished.err
    assert ": 1 worker with 1 CPU" in finished.err[0]
    assert (tmp_path / "out.run").read_bytes() == (tmp_path / "alone.run").read_bytes()


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


def test_nothing_listens_at_the_address(score):
    finished = score("--cluster", "127.0.0.1:1")

    assert_one_line(
        finished, 1, "--cluster 127.0.0.1:1: ", "expected the head of a Ray cluster to answer there"
    )


def test_options_that_need_a_cluster(score):
    assert_one_line(score("--workers", 2), 2, "--workers: requires --cluster")
    assert_one_line(score("--gpus-per-worker", 0.5), 2, "--gpus-per-worker: requires --cluster")
    assert_one_line(score("--cluster", "auto", "--gpus-per-worker", 1.5), 2, "a whole number")


def test_wrong_token(score, address):
    finished = score("--cluster", address, RAY_AUTH_TOKEN="0" * 32)

    assert_one_line(finished, 1, address, "RAY_AUTH_TOKEN")


def test_no_token(score, address):
    finished = score("--cluster", address, RAY_AUTH_MODE="disabled")

    assert_one_line(finished, 1, address, "RAY_AUTH_MODE=token")


def test_different_versions_are_named(score, nodes):
    """The versions that the head reports are replaced for a moment."""
    store, key = nodes.head_node.get_gcs_client(), (b"CLUSTER_METADATA", b"cluster")
    before = store.internal_kv_get(*key)
    other = json.loads(before) | {"ray_version": "2.1.0", "python_version": "3.9.1"}
    store.internal_kv_put(key[0], json.dumps(other).encode(), True, key[1])
    try:
        finished = score("--cluster", nodes.address)
    finally:
        store.internal_kv_put(key[0], before, True, key[1])

    assert_one_line(finished, 1, "Version mismatch", "Ray: 2.1.0 Python: 3.9.1")


def test_scoring_starts_with_fewer_workers_than_requested(score, folder, address):
    finished = score("--cluster", address, "--workers", 3)

    assert finished.code == 0, finished.err
    assert ": 3 workers, room for 2 workers, with 1 CPU and 0 GPUs each" in finished.err[0]


def test_local_cluster_writes_the_same_bytes_and_nothing_to_the_home_folder(run, folder, tmp_path):
    """Ray itself would write a token there, which clusters without a token refuse."""
    home = tmp_path / "home"
    home.mkdir()
    program = "import os; del os.environ['RAY_AUTH_TOKEN'], os.environ['RAY_AUTH_MODE']; "
    program += "from aptool.__main__ import main; main()"
    arguments = ["score", "test.pools.parquet", "--model", "random", "--output"]

    alone = run("-m", "aptool", *arguments, "alone.run", cwd=folder)
    finished = run("-c", program, *arguments, "out.run", "--cluster", "local", cwd=folder, HOME=str(home))

    assert (alone.code, finished.code) == (0, 0), finished.err
    assert (folder / "out.run").read_bytes() == (folder / "alone.run").read_bytes()
    assert finished.err[0].startswith("cluster 127.0.0.1:")
    assert list(home.iterdir()) == []


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
    arguments = ["score", "test.pools.parquet", "--model", "random", "--output", "out.run"]

    finished = run("-c", program, *arguments, "--cluster", address, cwd=folder)

    assert_one_line(finished, 1, phrase)
