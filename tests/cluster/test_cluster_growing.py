"""Clusters without workers, to which an autoscaler adds nodes on this machine.

The nodes are Ray's fake nodes. ``ray.cluster_utils.AutoscalingCluster`` would run ``ray stop``, which ends
all Ray processes of the machine, so the tests start the head.
"""

import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest
from scene import pools_of, units_of
from slow import SlowSystem, scored

from aptool.scoring.run import score_files

STORE = 80 << 20


def configuration(types, address):
    """The configuration of Ray's autoscaler; its nodes are processes of this machine."""
    head = {"ray.head.default": {"resources": {"CPU": 0}, "node_config": {}, "max_workers": 0}}
    nothing = ("auth", "docker", "file_mounts", "head_node", "worker_nodes")
    none = (
        "cluster_synced_files",
        "rsync_exclude",
        "rsync_filter",
        "initialization_commands",
        "setup_commands",
    )
    commands = ("setup", "head_setup", "worker_setup", "head_start_ray", "worker_start_ray")
    return {
        **{name: {} for name in nothing},
        **{name: [] for name in none},
        **{f"{name}_commands": [] for name in commands},
        "file_mounts_sync_continuously": False,
        "cluster_name": "growing",
        "max_workers": 8,
        "provider": {
            "type": "fake_multinode",
            "gcs_address": address,
            "launch_multiple": True,
            # A node that starts slowly would be repaired through SSH, which fails and ends the autoscaling.
            "disable_node_updaters": True,
            "worker_liveness_check": False,
        },
        "available_node_types": head | types,
        "head_node_type": "ray.head.default",
        "upscaling_speed": 1.0,
        "idle_timeout_minutes": 5,
    }


@pytest.fixture
def grow(surroundings, tmp_path):
    """A function that starts a head without cores, whose autoscaler adds nodes of the given types."""
    started, short = [], tempfile.mkdtemp()  # Ray's sockets have paths of at most 107 bytes

    def start(**types):
        path = tmp_path / "autoscaler.json"
        entries = {
            name: {"resources": resources, "node_config": {}, "min_workers": 0, "max_workers": most}
            for name, (resources, most) in types.items()
        }
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        path.write_text(json.dumps(configuration(entries, f"127.0.0.1:{port}")))
        command = [
            *(Path(sys.executable).with_name("ray"), "start", "--head", "--block", "--num-cpus=0"),
            *(f"--port={port}", f"--autoscaling-config={path}", f"--object-store-memory={STORE}"),
            *("--include-dashboard=false", f"--temp-dir={short}", "--node-ip-address=127.0.0.1"),
        ]
        environment = {"AUTOSCALER_UPDATE_INTERVAL_S": "1", "RAY_FAKE_CLUSTER": "1"}
        with (tmp_path / "head.log").open("w") as log:
            head = subprocess.Popen(
                command,
                env=surroundings | environment,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        started.append(head)
        deadline = time.monotonic() + 600
        while "Ray runtime started" not in (tmp_path / "head.log").read_text():
            assert head.poll() is None, (tmp_path / "head.log").read_text()
            assert time.monotonic() < deadline
            time.sleep(0.2)
        return f"127.0.0.1:{port}"

    yield start
    for head in started:
        with contextlib.suppress(ProcessLookupError):  # its nodes are in its group
            os.killpg(head.pid, signal.SIGKILL)
        head.wait()
    shutil.rmtree(short, ignore_errors=True)


@pytest.fixture
def pools(tmp_path):
    return pools_of("test", tmp_path / "pools")


def run_driver(driver, address, pools, folder, **more):
    """Run a driver, check its run file, and return its output."""
    notes = folder / "notes"
    notes.mkdir(exist_ok=True)
    output = folder / "out.run"
    process = driver(
        address=address, pools=str(pools), output=str(output), notes=str(notes), verbose=True, **more
    )
    lines, _ = process.communicate(timeout=600)
    assert process.returncode == 0, lines
    score_files(units_of(pools), SlowSystem(notes=str(notes)), folder / "alone.run", tag="slow")
    assert output.read_bytes() == (folder / "alone.run").read_bytes()
    return lines


def test_a_node_that_the_autoscaler_adds_is_waited_for(grow, driver, pools, tmp_path):
    address = grow(small=({"CPU": 1}, 2))

    lines = run_driver(driver, address, pools, tmp_path, seconds=8.0, workers=2)

    assert "waiting for 1 worker with 1 CPU and 0 GPUs each; the cluster has 0 CPUs and 0 GPUs" in lines
    # This process scored all units too, for the expected run file.
    assert len({process for process, _ in scored(tmp_path / "notes")}) == 3


@pytest.mark.parametrize("share", [0.5, 0.25])
def test_workers_share_the_gpu_of_an_added_node(grow, driver, pools, tmp_path, share):
    """Workers leave the cores to the reading tasks. The GPU is only a resource of the scheduler."""
    address = grow(gpu=({"CPU": 2, "GPU": 1}, 1))

    lines = run_driver(driver, address, pools, tmp_path, seconds=1.0, gpus=share)

    assert "waiting for" in lines
    assert f"room for {int(1 / share)} workers with 0 CPUs and {share} GPUs each" in lines
