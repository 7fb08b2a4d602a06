"""What needs no cluster: addresses and errors of a connection, resources, batches, checks of workers."""

import importlib
import os
import socket
from pathlib import Path

import pytest
from recorded import recorded

from aptool.cluster.connection import (
    Cluster,
    Resources,
    Wait,
    check_address,
    connect,
    connection_error,
    worker_resources,
)
from aptool.environment import versions_of
from aptool.errors import AptoolError, UsageError


@pytest.mark.parametrize(
    "address",
    ["auto", "local", "127.0.0.1:6379", "head.example.org:6379", "[::1]:6379"],
)
def test_valid_addresses_are_accepted(address):
    check_address(address)


@pytest.mark.parametrize(
    "address", ["pools.parquet", "head", "head:", "http://head:8265", "ray://head:10001", "s3://a/b", "--x"]
)
def test_invalid_addresses_are_refused(address):
    with pytest.raises(UsageError) as error:
        check_address(address)

    assert repr(address) in str(error.value)


def test_capacity_of_a_node():
    assert Resources(4).capacity(Resources(1)) == 4
    assert Resources(4, 1).capacity(Resources(1, 0.5)) == 2
    assert Resources(4, 1).capacity(Resources(3, 0.5)) == 1
    assert Resources(4).capacity(Resources(1, 1)) == 0
    # Ten tenths fit, despite rounding.
    assert Resources(1, 1).capacity(Resources(0.1, 0.1)) == 10


def node(cpus, gpus=0.0):
    return Resources(cpus, gpus, 8e9)


class FakeCluster(Cluster):
    """A cluster of given nodes."""

    def __init__(self, *nodes):
        super().__init__("head:1", "logs")
        object.__setattr__(self, "given", nodes)

    def nodes(self):
        return list(self.given)


def test_capacity_is_counted_node_by_node():
    """Two nodes of three cores have room for two workers with two cores, not for three."""
    assert FakeCluster(node(3), node(3)).capacity(Resources(2)) == 2


@pytest.fixture
def clock(monkeypatch):
    """A function that sets the time of a wait."""
    from aptool.cluster import connection

    now = [0.0]
    monkeypatch.setattr(connection.time, "monotonic", lambda: now[0])
    return lambda second: now.__setitem__(0, second)


@pytest.mark.parametrize(
    ("each", "needs"),
    [
        (Resources(1), "3 workers with 1 CPU and 0 GPUs each"),
        (Resources(0.5, memory=4e9), "3 workers with 0.5 CPUs and 0 GPUs each, 4.0 GB of memory"),
    ],
)
def test_missing_resources_are_named_every_half_minute(clock, each, needs):
    wait = Wait(FakeCluster(node(2)), 3, each)

    with recorded() as records:
        for second in range(65):
            clock(second)
            wait.poll()
    line = f"waiting for {needs}; the cluster has 2 CPUs and 0 GPUs, on 1 node"
    assert records.messages == [line] * 3


def test_a_wait_for_other_work_is_named_every_half_minute(clock):
    wait = Wait(FakeCluster(node(2)), 1, Resources(1))

    with recorded() as records:
        for second in range(65):
            clock(second)
            wait.poll(has_begun=False)
    line = "waiting for 1 worker with 1 CPU and 0 GPUs each; the cluster has 2 CPUs and 0 GPUs, on 1 node"
    assert records.messages == [line] * 2


def test_workers_get_a_gpu_if_the_cluster_has_gpus():
    with_gpus, without = FakeCluster(node(8, 2)), FakeCluster(node(8))

    assert worker_resources(with_gpus) == Resources(1, 1)
    assert worker_resources(with_gpus, "cpu") == Resources(1, 0)
    assert worker_resources(with_gpus, gpus=0.25) == Resources(1, 0.25)
    assert worker_resources(without) == Resources(1, 0)
    assert worker_resources(without, "cuda") == Resources(1, 1)  # an autoscaler may add one
    with pytest.raises(UsageError, match="--device cpu with --gpus-per-worker 1"):
        worker_resources(with_gpus, "cpu", 1)
    with pytest.raises(UsageError, match="'cuda:1': expected auto, cpu or cuda"):
        worker_resources(with_gpus, "cuda:1")


def test_memory_of_a_worker_is_the_minimum_over_nodes():
    """8 GB for four workers on one node, and for two workers on the other."""
    assert FakeCluster(node(4), node(2)).memory(Resources(1)) == 2e9


MISMATCH = """Version mismatch: The cluster was started with:
    Ray: 2.52.0
    Python: 3.9.1
This process on node 10.0.0.1 was started with:
    Ray: 2.60.0
    Python: 3.11.7
"""


@pytest.mark.parametrize(
    ("address", "message", "phrases"),
    [
        ("head:1", MISMATCH, ["Ray: 2.52.0 Python: 3.9.1 This process", "Ray: 2.60.0 Python: 3.11.7"]),
        ("head:1", "failed", ["--cluster head:1: failed: expected the head of", "set RAY_AUTH_MODE=token"]),
        ("auto", "failed", ["failed: expected a cluster on this machine", "`--cluster local` starts one"]),
        ("local", "failed", ["failed: expected Ray to start; RAY_TMPDIR names a writable folder"]),
    ],
)
def test_error_of_a_failed_connection_is_one_line(address, message, phrases):
    line = str(connection_error(address, ConnectionError(message)))

    assert "\n" not in line
    for phrase in phrases:
        assert phrase in line


def test_error_names_the_environment_variable_of_an_address():
    with pytest.raises(
        UsageError, match=r"^RAY_ADDRESS 'nonsense': expected host:port of the head, auto or local$"
    ):
        check_address("nonsense", "RAY_ADDRESS")


@pytest.mark.parametrize("given", ["auto", "host:port"])
def test_a_head_that_has_ended_is_named_at_once(given, tmp_path, monkeypatch):
    """Ray itself would try for minutes. Nothing listens at a port that is only bound."""
    ray = pytest.importorskip("ray", reason="the extra `cluster` is not installed")
    monkeypatch.setattr(ray, "init", lambda **options: pytest.fail("Ray tries"))
    monkeypatch.setenv("RAY_TMPDIR", str(tmp_path))
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        head = f"127.0.0.1:{bound.getsockname()[1]}"
        (tmp_path / "ray").mkdir()
        (tmp_path / "ray" / "ray_current_cluster").write_text(head)

        address, shown = ("auto", f"auto: {head}") if given == "auto" else (head, head)
        with (
            pytest.raises(AptoolError, match=f"^--cluster {shown}: connection refused"),
            connect(address),
        ):
            pass


def test_a_name_that_no_host_can_have_is_one_line(monkeypatch):
    ray = pytest.importorskip("ray", reason="the extra `cluster` is not installed")
    monkeypatch.setattr(ray, "init", lambda **options: pytest.fail("Ray tries"))
    address = f"{'a' * 70}.org:6379"
    with (
        pytest.raises(AptoolError, match=f"^--cluster {address}: .*: expected the head of"),
        connect(address),
    ):
        pass


@pytest.mark.parametrize(
    ("logs", "reason"),
    [
        (["ValueError: old", "ImportError: new\n[tail]"], "ImportError: new;"),
        (["ValueError: old", "no exception"], "ValueError: old;"),
        ([], "see "),
    ],
)
def test_a_worker_that_cannot_start_has_the_exception_of_the_newest_log(logs, reason, tmp_path):
    workers = module("workers")
    from ray.exceptions import WorkerCrashedError

    for number, text in enumerate(logs):
        file = tmp_path / f"python-core-worker-{9 - number}.log"
        file.write_text(f"started\n{text}\n")
        os.utime(file, (number, number))

    cluster = Cluster("head:1", str(tmp_path))
    expected = pytest.raises(AptoolError, match=f"a worker process cannot start: {reason}")
    with expected, workers.ray_failures(cluster):
        raise WorkerCrashedError


def module(name):
    """A module of the package, which imports Ray."""
    pytest.importorskip("ray", reason="the extra `cluster` is not installed")
    return importlib.import_module(f"aptool.cluster.{name}")


@pytest.mark.parametrize(
    ("totals", "gpus", "minibatch", "expected"),
    [
        (((8, 0),), 0, 16, 1),
        (((8, 0), (6, 0), (0, 0)), 0, 16, 2),
        (((16, 2), (16, 2), (4, 0)), 1, 16, 4),
        (((16, 2),), 0.5, 16, 4),
        (((16, 2), (16, 2)), 1, 3, 3),
        ((), 1, 16, 1),  # an autoscaler may add a node
    ],
)
def test_one_worker_per_gpu_or_per_node_without_gpus(totals, gpus, minibatch, expected):
    cluster = FakeCluster(*(node(*total) for total in totals))

    assert module("train").default_workers(cluster, Resources(1, gpus), minibatch) == expected


@pytest.mark.parametrize(
    ("totals", "workers", "gpus", "expected"),
    [
        (((8, 0),), 1, 0, 8),
        (((8, 0), (6, 0)), 2, 0, 6),  # if nodes differ, the smallest decides
        (((8, 0), (8, 0)), 3, 0, 4),  # two of them on one node of 8
        (((16, 2), (16, 2), (4, 0)), 4, 1, 8),
        (((16, 2),), 4, 0.5, 4),
        (((1, 0), (1, 0)), 4, 0, 1),  # more workers than room
    ],
)
def test_cores_are_divided_among_workers(totals, workers, gpus, expected):
    cluster = FakeCluster(*(node(*total) for total in totals))

    each = module("train").with_cores(cluster, workers, Resources(1, gpus))

    assert each == Resources(expected, gpus)


def test_a_node_that_does_not_see_the_output_is_an_error(tmp_path, monkeypatch):
    workers = module("workers")
    monkeypatch.chdir("/")
    workers.check_worker(tmp_path, {}, tmp_path)
    assert Path.cwd() == tmp_path
    with pytest.raises(AptoolError, match=r"^none: not found: expected an output on storage that all nodes"):
        workers.check_worker(tmp_path, {}, Path("none"))


def test_a_worker_with_another_torch_is_an_error(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    check_worker = module("workers").check_worker
    check_worker(tmp_path, versions_of("torch"), tmp_path)
    with pytest.raises(AptoolError, match=r"torch \d.* there, 1\.0 here: expected the same versions"):
        check_worker(tmp_path, {"torch": "1.0"}, tmp_path)


def test_batches_start_with_the_largest_units_and_shrink():
    """Of 80 pairs, two workers get an eighth at a time: 10, then 8, ..."""
    pairs = [1] * 10 + [30] + [2] * 20

    batches = module("score").batches_of(pairs, 2)

    assert batches[0] == [10]  # more than a share
    assert [sum(pairs[number] for number in batch) for batch in batches[1:5]] == [6, 4, 4, 4]
    assert [len(batch) for batch in batches[-3:]] == [1, 1, 1]
    assert sorted(number for batch in batches for number in batch) == list(range(len(pairs)))


def test_batches_have_a_maximum_of_units():
    score = module("score")

    assert {len(batch) for batch in score.batches_of([1] * 10_000, 1)[:9]} == {score.MOST_UNITS}
    # 2,000 units for two workers: few rows, because the driver has a fixed cost per row.
    assert len(score.batches_of([5_000] * 2_000, 2)) < 100
