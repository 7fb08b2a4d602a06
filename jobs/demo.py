"""Run a small evaluation as jobs on a cluster of two nodes on this machine: `make cluster-demo`.

    python jobs/demo.py [--table jobs/demo.toml] [--output runs/demo]

Start a head and a second node, submit a matrix and then its report, print the output of both jobs, and end
the nodes. The nodes require a token, which is generated for this run.
"""

import argparse
import contextlib
import os
import secrets
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
TIMEOUT_SECONDS = 90.0  # for a node to start


def main() -> None:
    """Print the output of the jobs; the exit code is 1 if one of them fails."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--table", type=Path, default=ROOT / "jobs" / "demo.toml")
    parser.add_argument("--output", type=Path, default=Path("runs/demo"))
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    table, output = str(options.table.resolve()), str(options.output.resolve())
    with cluster() as (jobs, environment):
        for arguments in (("matrix", table, "--output", output, "--cluster"), ("report", output)):
            command = ["aptool", *arguments]
            sys.stdout.write(f"$ ray job submit --address {jobs} -- {shlex.join(command)}\n")
            sys.stdout.flush()
            here = f"cd {shlex.quote(str(Path.cwd()))} && {shlex.quote(sys.executable)} -m "
            submit = [*ray_command(), "job", "submit", "--address", jobs, "--log-style=record", "--"]
            ended = subprocess.run([*submit, "sh", "-c", here + shlex.join(command)], env=environment)
            if ended.returncode:
                sys.exit(1)


@contextlib.contextmanager
def cluster() -> Iterator[tuple[str, dict[str, str]]]:
    """Run two nodes of one core; yield the address of the jobs server and the environment with the token."""
    folder = Path(tempfile.mkdtemp(prefix="aptool-"))
    environment = os.environ | {
        "RAY_AUTH_MODE": "token",
        "RAY_AUTH_TOKEN": secrets.token_hex(16),
        "RAY_USAGE_STATS_ENABLED": "0",
        "OMP_NUM_THREADS": "1",
        "PYTHONPATH": os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH")))),
    }
    environment.pop("RAY_ADDRESS", None)
    port, board = free_port(), free_port()
    head = [
        *("--head", f"--port={port}", f"--ray-client-server-port={free_port()}", f"--temp-dir={folder}"),
        *("--include-dashboard=true", "--dashboard-host=127.0.0.1", f"--dashboard-port={board}"),
    ]
    nodes: list[subprocess.Popen[bytes]] = []
    try:
        for number, role in enumerate((head, [f"--address=127.0.0.1:{port}"])):
            nodes.append(start_node(role, number, folder, environment))
        yield f"http://127.0.0.1:{board}", environment
    finally:
        for node in reversed(nodes):
            node.terminate()
        for node in nodes:
            try:
                node.wait(30)
            except subprocess.TimeoutExpired:
                node.kill()
        shutil.rmtree(folder, ignore_errors=True)


def start_node(
    role: list[str], number: int, folder: Path, environment: dict[str, str]
) -> "subprocess.Popen[bytes]":
    """Start a node as a child of this process, and wait until it is up."""
    log = folder / f"node{number}.log"
    # Two nodes on one machine need separate port ranges.
    first = 21000 + 1000 * number
    ports = [
        f"--{name}-port={free_port()}"
        for name in ("dashboard-agent-listen", "dashboard-agent-grpc", "metrics-export", "runtime-env-agent")
    ]
    command = [
        *(*ray_command(), "start", "--block", "--node-ip-address=127.0.0.1", "--num-cpus=1", *role, *ports),
        *(
            "--object-store-memory=100000000",
            f"--min-worker-port={first}",
            f"--max-worker-port={first + 999}",
        ),
    ]
    with log.open("wb") as file:
        node = subprocess.Popen(command, stdout=file, stderr=subprocess.STDOUT, env=environment)
    deadline = time.monotonic() + TIMEOUT_SECONDS
    while b"Ray runtime started" not in log.read_bytes():
        if node.poll() is not None or time.monotonic() > deadline:
            node.kill()
            sys.exit(f"node {number} did not start:\n{log.read_text(errors='replace')}")
        time.sleep(0.2)
    return node


def ray_command() -> list[str]:
    """The command line of Ray in this Python environment."""
    return [sys.executable, "-m", "ray.scripts.scripts"]


def free_port() -> int:
    """A free port."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


if __name__ == "__main__":
    main()
