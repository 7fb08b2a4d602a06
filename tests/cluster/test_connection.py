"""Addresses, errors and output of a connection, and resources of nodes, without a cluster."""

import contextlib
import itertools
import socket
import sys
import threading
import time

import pytest
from recorded import recorded

from aptool.cluster.connection import _check_port, _without_rays_stdout, checked_address, connection_error
from aptool.cluster.resources import Cluster, Node, Resources, count, fitting, worker_resources
from aptool.errors import AptoolError, UsageError


@pytest.mark.parametrize(
    "address",
    ["auto", "local", "127.0.0.1:6379", "head.example.org:6379", "ray://head:10001", "[::1]:6379"],
)
def test_addresses(address):
    assert checked_address(address) == address


@pytest.mark.parametrize("address", ["pools.parquet", "head", "head:", "http://head:8265", "s3://a/b", "--x"])
def test_no_addresses(address):
    with pytest.raises(UsageError) as error:
        checked_address(address)

    assert repr(address) in str(error.value)


NOTHING = Resources(0, 0)
NUMBERS = itertools.count()


def node(cpus, gpus=0.0):
    return Node(f"node-{next(NUMBERS)}", "host", Resources(cpus, gpus, 8e9))


def test_what_fits_on_a_node():
    assert fitting(Resources(4), Resources(1)) == 4
    assert fitting(Resources(4, 1), Resources(1, 0.5)) == 2
    assert fitting(Resources(4, 1), Resources(3, 0.5)) == 1
    assert fitting(Resources(4), Resources(1, 1)) == 0
    # Ten tenths are one, although floating point sums differ.
    assert fitting(Resources(1, 1), Resources(0.1, 0.1)) == 10


class Some(Cluster):
    """A cluster of given nodes; ``taken`` is what other drivers use of each."""

    def __init__(self, *nodes, taken=None, wait=None):
        super().__init__("head:1", "logs", wait)
        object.__setattr__(self, "given", nodes)
        object.__setattr__(self, "taken", taken if taken is not None else [NOTHING] * len(nodes))

    def nodes(self):
        return list(self.given)

    def free(self):
        total = self.total()
        return Resources(
            total.cpus - sum(used.cpus for used in self.taken),
            total.gpus - sum(used.gpus for used in self.taken),
        )

    def requested(self, workers, each):
        """There is no autoscaler."""
        return contextlib.nullcontext()

    def placed(self, wanted, each):
        """What Ray's scheduler would do."""
        placed = []
        for one, used in zip(self.given, self.taken, strict=True):
            left = Resources(one.total.cpus - used.cpus, one.total.gpus - used.gpus)
            placed += [one.node_id] * min(wanted.count(one.node_id), fitting(left, each))
        return placed


def test_room_is_counted_node_by_node():
    """Two nodes of three cores have room for two workers of two, not for three."""
    cluster = Some(node(3), node(3), wait=0)

    assert cluster.check_room(2, Resources(2)) == 2
    with pytest.raises(AptoolError) as error:
        cluster.check_room(3, Resources(2))
    line = str(error.value)
    assert "6 CPUs and 0 GPUs free, of 6 CPUs and 0 GPUs, on 2 nodes" in line
    assert "room for 2; expected room for 3 workers with 2 CPUs and 0 GPUs each" in line


def test_room_on_nodes_that_are_partly_taken():
    """Three of eight cores are free, on two nodes: room for three workers of one core, for one of two."""
    cluster = Some(node(4), node(4), taken=[Resources(2, 0), Resources(3, 0)], wait=0)

    assert cluster.room(Resources(1)) == [2, 1]
    assert cluster.room(Resources(2)) == [1, 0]
    with pytest.raises(AptoolError, match="room for 1; expected room for 2 workers with 2 CPUs"):
        cluster.check_room(2, Resources(2))


def test_taken_resources_are_waited_for():
    with pytest.raises(AptoolError, match="0 CPUs and 0 GPUs free, of 2 CPUs"):
        Some(node(2), taken=[Resources(2, 0)], wait=0).check_room(1, Resources(1))
    taken = Some(node(2), taken=[Resources(2, 0)])

    def release():
        time.sleep(0.3)
        object.__setattr__(taken, "taken", [NOTHING])

    threading.Thread(target=release).start()
    assert taken.check_room(2, Resources(1)) == 2


def test_missing_resources_are_named_every_half_minute_until_the_wait_ends(monkeypatch):
    """Of a wait of 65 s, on a clock of its own: lines at 0, 30 and 60 s."""
    from aptool.cluster import resources

    now = [0.0]
    monkeypatch.setattr(resources.time, "monotonic", lambda: now[0])
    monkeypatch.setattr(resources.time, "sleep", lambda seconds: now.__setitem__(0, now[0] + 1))
    cluster = Some(node(2), wait=65)

    with (
        recorded() as told,
        pytest.raises(AptoolError, match=r"room for 2; expected room for 3 workers .* within 65 s"),
    ):
        cluster.check_room(3, Resources(1))
    assert told.messages == ["waiting for 3 CPUs; the cluster has 2, its autoscaler may add nodes"] * 3
    assert cluster.missing(2, Resources(1, 1)) == (
        "waiting for 2 GPUs; the cluster has 0, its autoscaler may add nodes"
    )
    assert cluster.missing(1, Resources(1, memory=9e9)) == (
        "waiting for nodes with room for 1 worker with 1 CPU and 0 GPUs, 9.0 GB of memory each, its "
        "autoscaler may add nodes"
    )
    assert cluster.missing(2, Resources(1)) == ""


def test_nodes_that_join_end_the_wait():
    cluster = Some()
    threading.Timer(0.5, lambda: object.__setattr__(cluster, "given", (node(1), node(1)))).start()
    object.__setattr__(cluster, "taken", [NOTHING, NOTHING])

    assert cluster.check_room(2, Resources(1)) == 2


def test_cores_are_shared_out_among_workers_that_train():
    pytest.importorskip("ray")
    from aptool.cluster.train import shared_out

    assert shared_out(Some(node(4), node(4)), None, Resources(1)) == (2, Resources(4))
    assert shared_out(Some(node(4), node(4)), 3, Resources(1)) == (3, Resources(2))
    assert shared_out(Some(node(8, 2)), None, Resources(1, 1)) == (2, Resources(4, 1))
    # A node that another driver has taken half of: two cores each.
    assert shared_out(Some(node(4), node(4), taken=[Resources(2, 0), NOTHING]), 2, Resources(1)) == (
        2,
        Resources(2),
    )


def test_a_gpu_each_where_there_are_any():
    with_gpus, without = Some(node(8, 2)), Some(node(8))

    assert worker_resources(with_gpus) == Resources(1, 1)
    assert worker_resources(with_gpus, "cpu") == Resources(1, 0)
    assert worker_resources(with_gpus, gpus=0.25) == Resources(1, 0.25)
    assert worker_resources(without) == Resources(1, 0)
    assert worker_resources(without, "cuda") == Resources(1, 1)  # an autoscaler may add one
    with pytest.raises(UsageError, match="--device cpu with --gpus-per-worker 1"):
        worker_resources(with_gpus, "cpu", 1)
    with pytest.raises(UsageError, match="'cuda:1': expected auto, cpu or cuda"):
        worker_resources(with_gpus, "cuda:1")


def test_memory_of_a_worker_is_its_part_of_the_fullest_node():
    """8 GB for four workers on one node, for two on the other."""
    assert Some(node(4), node(2)).memory(Resources(1)) == 2e9


MISMATCH = """Version mismatch: The cluster was started with:
    Ray: 2.52.0
    Python: 3.9.1
This process on node 10.0.0.1 was started with:
    Ray: 2.60.0
    Python: 3.11.7
"""


def test_versions_that_differ_are_all_named():
    line = str(connection_error("head:1", RuntimeError(MISMATCH)))

    assert line.startswith(
        "--cluster head:1: Ray 2.52.0 there, 2.60.0 here; Python 3.9.1 there, 3.11.7 here: "
    )
    only_one = str(connection_error("head:1", RuntimeError(MISMATCH.replace("3.9.1", "3.11.7"))))
    assert "Ray 2.52.0 there, 2.60.0 here: expected" in only_one


@pytest.mark.parametrize(
    ("address", "messages", "phrase"),
    [
        ("head:1", "RPC error: InvalidAuthToken: ...", "the token was refused: set RAY_AUTH_MODE=token"),
        ("head:1", "", "failed to connect: expected the head of a Ray cluster"),
        ("auto", "", "no Ray cluster runs on this machine"),
        ("auto", "Unauthenticated", "the token was refused"),
    ],
)
def test_reasons_of_a_failed_connection(address, messages, phrase):
    assert phrase in str(connection_error(address, ConnectionError("failed to connect"), messages))


def serve(answer):
    """A server that answers one client with some bytes; returns its address."""
    server = socket.create_server(("127.0.0.1", 0))

    def serve_one():
        connection, _ = server.accept()
        with connection, server:
            connection.recv(1 << 10)
            connection.sendall(answer)

    threading.Thread(target=serve_one, daemon=True).start()
    return f"127.0.0.1:{server.getsockname()[1]}"


def test_a_port_that_serves_something_else():
    with pytest.raises(AptoolError, match="something other than Ray answers: expected the head of a Ray"):
        _check_port(serve(b"HTTP/1.0 400 Bad Request\r\n\r\n"))
    _check_port(serve(b"\0\0\6\4\0\0\0\0\0"))  # the SETTINGS frame of an HTTP/2 server


def test_prints_of_a_thread_are_dropped_and_others_are_not(capsys):
    printed = threading.Event()

    def print_when_told():
        printed.wait(60)
        print("a node warns")  # noqa: T201

    thread = threading.Thread(target=print_when_told)
    thread.start()
    with _without_rays_stdout({thread}):
        printed.set()
        thread.join()
        sys.stdout.write("result\n")
    assert capsys.readouterr().out == "result\n"


@pytest.mark.parametrize(("number", "words"), [(1, "1 CPU"), (2, "2 CPUs"), (0.5, "0.5 CPUs"), (0, "0 CPUs")])
def test_counts(number, words):
    assert count(number, "CPU") == words


def test_the_reason_in_a_traceback_of_rays_client_server_is_its_last_line():
    sent = "Initialization failure from server:\nTraceback (most recent call last):\n ...\nOSError: no room"

    line = str(connection_error("ray://head:1", ConnectionAbortedError(sent)))

    assert "Initialization failure from server: OSError: no room: expected" in line


def test_an_address_of_the_environment_is_named_by_it():
    with pytest.raises(UsageError, match=r"^RAY_ADDRESS 'nonsense': expected host:port, .* or local$"):
        checked_address("nonsense", "RAY_ADDRESS")
