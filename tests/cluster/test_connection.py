"""Addresses, errors and output of a connection, and resources of nodes, without a cluster."""

import contextlib
import itertools
import socket
import sys
import threading
import time
from pathlib import Path

import pytest
from recorded import recorded

from aptool.cluster.connection import (
    _check_port,
    _without_rays_stdout,
    check_address,
    connect,
    connection_error,
)
from aptool.cluster.resources import Cluster, Node, Resources, capacity, worker_resources
from aptool.errors import AptoolError, UsageError, counted


@pytest.mark.parametrize(
    "address",
    ["auto", "local", "127.0.0.1:6379", "head.example.org:6379", "[::1]:6379"],
)
def test_valid_addresses_are_accepted(address):
    assert check_address(address) == address


@pytest.mark.parametrize(
    "address", ["pools.parquet", "head", "head:", "http://head:8265", "ray://head:10001", "s3://a/b", "--x"]
)
def test_invalid_addresses_are_refused(address):
    with pytest.raises(UsageError) as error:
        check_address(address)

    assert repr(address) in str(error.value)


NOTHING = Resources(0, 0)
NUMBERS = itertools.count()


def node(cpus, gpus=0.0):
    return Node(f"node-{next(NUMBERS)}", Resources(cpus, gpus, 8e9))


def test_capacity_of_a_node():
    assert capacity(Resources(4), Resources(1)) == 4
    assert capacity(Resources(4, 1), Resources(1, 0.5)) == 2
    assert capacity(Resources(4, 1), Resources(3, 0.5)) == 1
    assert capacity(Resources(4), Resources(1, 1)) == 0
    # Ten tenths fit, despite rounding.
    assert capacity(Resources(1, 1), Resources(0.1, 0.1)) == 10


class FakeCluster(Cluster):
    """A cluster of given nodes; ``taken`` are the resources of each that other drivers use."""

    def __init__(self, *nodes, taken=None, wait=None):
        super().__init__("head:1", "logs", wait)
        object.__setattr__(self, "given", nodes)
        object.__setattr__(self, "taken", taken if taken is not None else [NOTHING] * len(nodes))

    def nodes(self):
        return list(self.given)

    def free(self):
        total = self.total()
        return Resources(
            total.cpus - sum(taken.cpus for taken in self.taken),
            total.gpus - sum(taken.gpus for taken in self.taken),
        )

    def requested(self, workers, each):
        """There is no autoscaler."""
        return contextlib.nullcontext()

    def reserve(self, node_ids, each):
        """Do what Ray's scheduler does."""
        reserved = []
        for node, taken in zip(self.given, self.taken, strict=True):
            free = Resources(node.total.cpus - taken.cpus, node.total.gpus - taken.gpus)
            reserved += [node.node_id] * min(node_ids.count(node.node_id), capacity(free, each))
        return reserved


def test_room_is_counted_node_by_node():
    """Two nodes of three cores have room for two workers with two cores, not for three."""
    cluster = FakeCluster(node(3), node(3), wait=0)

    assert cluster.check_room(2, Resources(2)) == 2
    with pytest.raises(AptoolError) as error:
        cluster.check_room(3, Resources(2))
    line = str(error.value)
    assert "6 CPUs and 0 GPUs free, of 6 CPUs and 0 GPUs, on 2 nodes" in line
    assert "room for 2; expected room for 3 workers with 2 CPUs and 0 GPUs each" in line


def test_room_on_partly_used_nodes():
    """Three of eight cores are free, on two nodes: room for three workers with one core, or one with two."""
    cluster = FakeCluster(node(4), node(4), taken=[Resources(2, 0), Resources(3, 0)], wait=0)

    assert cluster.room(Resources(1)) == [2, 1]
    assert cluster.room(Resources(2)) == [1, 0]
    with pytest.raises(AptoolError, match="room for 1; expected room for 2 workers with 2 CPUs"):
        cluster.check_room(2, Resources(2))


def test_cluster_waits_for_used_resources():
    with pytest.raises(AptoolError, match="0 CPUs and 0 GPUs free, of 2 CPUs"):
        FakeCluster(node(2), taken=[Resources(2, 0)], wait=0).check_room(1, Resources(1))
    taken = FakeCluster(node(2), taken=[Resources(2, 0)])

    def release():
        time.sleep(0.3)
        object.__setattr__(taken, "taken", [NOTHING])

    threading.Thread(target=release).start()
    assert taken.check_room(2, Resources(1)) == 2


def test_missing_resources_are_named_every_half_minute_until_the_wait_ends(monkeypatch):
    """A wait of 65 s with a fake clock has lines at 0, 30 and 60 s."""
    from aptool.cluster import resources

    now = [0.0]
    monkeypatch.setattr(resources.time, "monotonic", lambda: now[0])
    monkeypatch.setattr(resources.time, "sleep", lambda seconds: now.__setitem__(0, now[0] + 1))
    cluster = FakeCluster(node(2), wait=65)

    with (
        recorded() as records,
        pytest.raises(AptoolError, match=r"room for 2; expected room for 3 workers .* within 65 s"),
    ):
        cluster.check_room(3, Resources(1))
    assert records.messages == ["waiting for 3 CPUs; the cluster has 2, its autoscaler may add nodes"] * 3
    assert cluster.missing(2, Resources(1, 1)) == (
        "waiting for 2 GPUs; the cluster has 0, its autoscaler may add nodes"
    )
    assert cluster.missing(1, Resources(1, memory=9e9)) == (
        "waiting for nodes with room for 1 worker with 1 CPU and 0 GPUs, 9.0 GB of memory each, its "
        "autoscaler may add nodes"
    )
    assert cluster.missing(2, Resources(1)) == ""


def test_cluster_without_room_for_35_minutes_is_waited_for(monkeypatch):
    """The default is no limit; a line per half minute names the missing resources."""
    from aptool.cluster import resources

    now, cluster = [0.0], FakeCluster(node(1))

    def sleep(seconds):
        now[0] += 1
        if now[0] == 35 * 60:
            object.__setattr__(cluster, "given", (node(1), node(1)))
            object.__setattr__(cluster, "taken", [NOTHING, NOTHING])

    monkeypatch.setattr(resources.time, "monotonic", lambda: now[0])
    monkeypatch.setattr(resources.time, "sleep", sleep)

    with recorded() as records:
        assert cluster.check_room(2, Resources(1)) == 2
    assert set(records.messages) == {"waiting for 2 CPUs; the cluster has 1, its autoscaler may add nodes"}
    assert len(records.messages) == 35 * 2


def test_nodes_that_join_end_the_wait():
    cluster = FakeCluster()
    threading.Timer(0.5, lambda: object.__setattr__(cluster, "given", (node(1), node(1)))).start()
    object.__setattr__(cluster, "taken", [NOTHING, NOTHING])

    assert cluster.check_room(2, Resources(1)) == 2


def test_cores_are_divided_among_training_workers():
    pytest.importorskip("ray")
    from aptool.cluster.train import allocate_workers

    assert allocate_workers(FakeCluster(node(4), node(4)), None, Resources(1)) == (2, Resources(4))
    assert allocate_workers(FakeCluster(node(4), node(4)), 3, Resources(1)) == (3, Resources(2))
    assert allocate_workers(FakeCluster(node(8, 2)), None, Resources(1, 1)) == (2, Resources(4, 1))
    # Another driver uses half of one node: two cores per worker.
    assert allocate_workers(
        FakeCluster(node(4), node(4), taken=[Resources(2, 0), NOTHING]), 2, Resources(1)
    ) == (
        2,
        Resources(2),
    )


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


def test_all_different_versions_are_named_with_the_remedy():
    line = str(connection_error("head:1", RuntimeError(MISMATCH)))

    assert line == (
        "--cluster head:1: Ray 2.52.0 there, 2.60.0 here; Python 3.9.1 there, 3.11.7 here: expected the same "
        "versions; to match the cluster, use `python -m pip install ray==2.52.0` and an environment of "
        "Python 3.9 here"
    )


def test_another_patch_version_of_python_is_not_named():
    line = str(connection_error("head:1", RuntimeError(MISMATCH.replace("3.9.1", "3.11.9"))))

    assert "Ray 2.52.0 there, 2.60.0 here: expected" in line
    assert "Python 3" not in line


@pytest.mark.parametrize(
    ("address", "messages", "phrase"),
    [
        ("head:1", "RPC error: InvalidAuthToken: ...", "the token was refused: set RAY_AUTH_MODE=token"),
        ("head:1", "", "failed to connect: expected the head of a Ray cluster"),
        ("auto", "", "no Ray cluster runs on this machine"),
        ("auto", "Unauthenticated", "the token was refused"),
        ("local", "", "RAY_TMPDIR to name a writable folder with a short path"),
    ],
)
def test_error_names_the_reason_of_a_failed_connection(address, messages, phrase):
    assert phrase in str(connection_error(address, ConnectionError("failed to connect"), messages))


def test_a_user_without_a_home_folder_is_named():
    """Errors of Path.home() and of ``ray.init`` for such a user have these words."""
    error = RuntimeError("Could not determine home directory.")

    assert str(connection_error("local", error)) == (
        "--cluster local: the user has no home folder: expected HOME to name a folder"
    )


def test_address_of_a_head_that_crashed_is_refused_at_once(tmp_path, monkeypatch):
    pytest.importorskip("ray")
    for entry in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            if b"/gcs_server" in entry.read_bytes():
                pytest.skip("a cluster runs on this machine")
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"127.0.0.1:{server.getsockname()[1]}"
    (tmp_path / "ray").mkdir()
    (tmp_path / "ray" / "ray_current_cluster").write_text(address, encoding="utf-8")
    monkeypatch.setenv("RAY_TMPDIR", str(tmp_path))
    monkeypatch.delenv("RAY_ADDRESS", raising=False)

    with pytest.raises(AptoolError, match=f"{address}, does not answer .*`ray stop`"), connect("auto"):
        pass


def serve(*answers):
    """A server that answers one client with some bytes, one answer after the other; returns its address."""
    server = socket.create_server(("127.0.0.1", 0))

    def serve_one():
        connection, _ = server.accept()
        with connection, server:
            connection.recv(1 << 10)
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            for answer in answers:
                connection.sendall(answer)
                time.sleep(0.05)

    threading.Thread(target=serve_one, daemon=True).start()
    return f"127.0.0.1:{server.getsockname()[1]}"


def test_port_of_another_server_is_refused():
    with pytest.raises(AptoolError, match="something other than Ray answers: expected the head of a Ray"):
        _check_port(serve(b"HTTP/1.0 400 Bad Request\r\n\r\n"))
    _check_port(serve(b"\0\0\6\4\0\0\0\0\0"))  # the SETTINGS frame of an HTTP/2 server
    _check_port(serve(b"\0\0", b"\6\4\0\0\0\0\0"))  # in two packets
    with pytest.raises(AptoolError, match="something other than Ray answers"):
        _check_port(serve(b"\0\0"))


def test_only_output_of_the_given_threads_is_dropped(capsys):
    printed = threading.Event()

    def print_after_event():
        printed.wait(60)
        print("a node warns")  # noqa: T201

    thread = threading.Thread(target=print_after_event)
    thread.start()
    with _without_rays_stdout({thread}):
        printed.set()
        thread.join()
        sys.stdout.write("result\n")
    assert capsys.readouterr().out == "result\n"


@pytest.mark.parametrize(
    ("number", "words"),
    [
        (1, "1 CPU"),
        (2.0, "2 CPUs"),
        (0.5, "0.5 CPUs"),
        (0, "0 CPUs"),
        (1_234_567, "1,234,567 CPUs"),
    ],
)
def test_a_number_is_counted_with_its_plural(number, words):
    assert counted(number, "CPU") == words


@pytest.mark.parametrize(
    ("address", "server"), [("ray://head:10001", "client server"), ("http://head:8265", "jobs server")]
)
def test_address_of_another_server_of_ray_names_the_job_to_submit(address, server):
    with pytest.raises(UsageError) as error:
        check_address(address)

    assert str(error.value) == (
        f"--cluster {address!r}: the address of Ray's {server}; expected host:port of the head, or "
        "`ray job submit -- aptool ... --cluster`, which runs the command there"
    )


def test_error_names_the_environment_variable_of_an_address():
    with pytest.raises(UsageError, match=r"^RAY_ADDRESS 'nonsense': expected host:port, .* or local$"):
        check_address("nonsense", "RAY_ADDRESS")
