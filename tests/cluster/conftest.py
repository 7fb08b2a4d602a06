"""A real cluster of several nodes on this machine, for the tests that are marked ``cluster``.

The nodes listen only on loopback and require a token; HOME is a temporary folder. All tests of a file share
one cluster; a test that removes a node adds it first. Only files named ``test_cluster_*`` use the cluster.

``aptool`` with the fixture ``cluster`` runs a command in this process, on its connection. ``run`` runs it in
a process of its own, for tests of the connection: each imports Ray and PyTorch.
"""

import json
import os
import secrets
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

import pytest
import s3
from scene import Scene

from aptool.paths import Url

HERE = Path(__file__).parent
ROOT = HERE.parent.parent
OBJECT_STORE = 80 << 20  # bytes per node; objects are small

# Ray starts workers with a low priority, and tests would time out on a busy machine.
os.environ.setdefault("RAY_worker_niceness", "0")


def pytest_ignore_collect(collection_path, config):
    """Import no file of the cluster's tests if they are not selected."""
    is_left_out = "not cluster" in config.option.markexpr
    return True if is_left_out and collection_path.name.startswith("test_cluster_") else None


def pytest_collection_modifyitems(items):
    for item in items:
        if HERE in item.path.parents and item.path.name.startswith("test_cluster_"):
            item.add_marker(pytest.mark.cluster)
            # Ray itself raises deprecation warnings, and leaves sockets to the garbage collector.
            item.add_marker(pytest.mark.filterwarnings("ignore"))


@pytest.fixture(scope="session")
def object_server():
    """The URL of an S3 server; None if it is not installed."""
    if not s3.is_installed():
        yield None
        return
    with s3.server() as url:
        yield url


@pytest.fixture(scope="session")
def surroundings(tmp_path_factory, object_server):
    """The environment of nodes, drivers and workers."""
    environment = {
        **({**s3.CREDENTIALS, "AWS_ENDPOINT_URL": object_server} if object_server else {}),
        "HOME": str(tmp_path_factory.mktemp("home")),
        "OMP_NUM_THREADS": "1",
        "PYTHONPATH": os.pathsep.join(map(str, (ROOT, HERE, HERE.parent))),
        "RAY_AUTH_MODE": "token",
        "RAY_AUTH_TOKEN": secrets.token_hex(16),
        "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",
        "RAY_USAGE_STATS_ENABLED": "0",
    }
    before = dict(os.environ)
    os.environ.pop("RAY_ADDRESS", None)
    os.environ.pop("CUDA_VISIBLE_DEVICES", None)  # nodes may have GPUs that only the scheduler knows
    os.environ.update(environment)
    yield dict(os.environ)
    os.environ.clear()
    os.environ.update(before)


@pytest.fixture(scope="session")
def nodes(surroundings):
    """A cluster with a head without cores and two nodes of one core, to which nodes can be added.

    This process is not connected to the cluster; the fixture ``cluster`` is.
    """
    from ray.cluster_utils import Cluster

    head = {"num_cpus": 0, "object_store_memory": OBJECT_STORE, "include_dashboard": False}
    started = Cluster(initialize_head=True, head_node_args=head)
    for _ in range(2):
        started.add_node(num_cpus=1, object_store_memory=OBJECT_STORE)
    yield started
    started.shutdown()


@pytest.fixture(scope="session")
def address(nodes):
    return nodes.address


@pytest.fixture(scope="session")
def cluster(address):
    """The connection of this process to the cluster. Workers stay between tests, which saves time."""
    from aptool.cluster.connection import connect

    with connect(address) as connected:
        yield connected


@pytest.fixture
def in_thread():
    """A function that calls a function in a thread: Ray adds nodes in the main thread only."""
    with ThreadPoolExecutor(1) as pool:
        yield pool.submit


@pytest.fixture
def preempt(surroundings, address):
    """A function that announces the preemption of a node by its id, as a cloud does with a spot node."""

    def drain(node_id):
        command = [Path(sys.executable).with_name("ray"), "drain-node", "--address", address]
        command += ["--node-id", node_id, "--reason", "DRAIN_NODE_REASON_PREEMPTION"]
        command += ["--reason-message", "spot", "--deadline-remaining-seconds", "60"]
        subprocess.run(command, check=True, capture_output=True, env=surroundings)

    return drain


class Finished(NamedTuple):
    """The exit code of a command and its output by lines."""

    code: int
    out: list[str]
    err: list[str]


@pytest.fixture
def run(surroundings, tmp_path):
    """A function that runs a Python program, or with ``-m`` a module, in another process."""

    def start(*arguments, **environment):
        finished = subprocess.run(
            [sys.executable, *map(str, arguments)],
            capture_output=True,
            text=True,
            timeout=600,  # long enough for a busy machine
            cwd=tmp_path,
            env=surroundings | environment,
        )
        return Finished(finished.returncode, finished.stdout.splitlines(), finished.stderr.splitlines())

    return start


@pytest.fixture
def driver(surroundings, tmp_path):
    """A function that starts ``driver.py``, a scoring driver that kills itself at a given point."""
    started = []

    def start(**settings):
        process = subprocess.Popen(
            [sys.executable, HERE / "driver.py", json.dumps(settings)],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            cwd=tmp_path,
            env=surroundings,
        )
        started.append(process)
        return process

    yield start
    for process in started:
        if process.poll() is None:
            process.kill()
        process.communicate()


@pytest.fixture
def scene(tmp_path):
    folder = tmp_path / "scene"
    folder.mkdir()
    return Scene(folder, folder / "notes")


@pytest.fixture(params=["disk", "s3"])
def anywhere(request, tmp_path, object_server):
    """A scene on a disk, or with its pools and its run on an object store."""
    if request.param == "disk":
        return request.getfixturevalue("scene")
    s3.require()
    return Scene(Url(s3.new_bucket(object_server)), tmp_path / "notes")
