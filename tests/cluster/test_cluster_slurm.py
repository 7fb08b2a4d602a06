"""The scripts of jobs/slurm, with real ``ray symmetric-run`` and stand-ins for Slurm's own programs.

They run in namespaces, because ``ray symmetric-run`` uses fixed ports and stops all of Ray on a machine.
"""

import json
import os
import shlex
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from scene import UNITS, pools_of, wait_for

import aptool as library

HERE = Path(__file__).parent
SCRIPTS = HERE.parents[1] / "jobs" / "slurm"

# One node: `srun` runs the command here, `scontrol` notes what it is told.
PROGRAMS = {
    "srun": 'exec "$@"',
    "scontrol": 'case "$1" in show) echo 127.0.0.1 ;; *) echo "$@" >> scontrol.log ;; esac',
    "aptool": f'exec {shlex.quote(sys.executable)} -m aptool "$@"',
}
# Words of BM25 that take a while: a run takes longer than the signal.
SLOW_WORDS = """
import time

from aptool.text import bm25
from aptool.text.words import unicode_words


def split(text):
    time.sleep(0.05)
    return unicode_words(text)


bm25.unicode_words = split
"""
NAMESPACES = ("unshare", "--mount", "--pid", "--net", "--fork", "--mount-proc", "--kill-child")


@pytest.fixture
def submit(surroundings, tmp_path):
    """A function that starts a script on a separate node, as Slurm does."""
    if subprocess.run([*NAMESPACES, "true"], capture_output=True, check=False).returncode:
        pytest.skip("namespaces need privileges")
    folder = tmp_path / "bin"
    folder.mkdir()
    for name, line in PROGRAMS.items():
        (folder / name).write_text(f"#!/bin/sh\n{line}\n")
        (folder / name).chmod(0o755)
    path = os.pathsep.join([str(folder), str(Path(sys.executable).parent), os.environ["PATH"]])
    job = {"SLURM_JOB_ID": "7", "SLURM_JOB_NUM_NODES": "1", "SLURM_JOB_NODELIST": "node"}
    running = []

    def start(script, *arguments, **variables):
        command = [*NAMESPACES, sys.executable, HERE / "slurm_node.py", SCRIPTS / script, *arguments]
        with (tmp_path / "slurm.out").open("a") as output:
            running.append(
                subprocess.Popen(
                    command,
                    cwd=tmp_path,
                    env=surroundings
                    | job
                    | {"PATH": path, "PYTHONPATH": f"{tmp_path}{os.pathsep}{os.environ['PYTHONPATH']}"}
                    | variables,
                    stdout=output,
                    stderr=output,
                )
            )
        return running[-1]

    yield start
    for process in running:
        process.kill()  # and all processes of its namespaces
        process.wait()


def first_process(process):
    """The id of the first process in the namespaces."""
    return int(Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()[0])


def test_job_at_its_time_limit_goes_back_to_the_queue_and_resumes(submit, tmp_path):
    pools = pools_of("test", tmp_path / "test.pools.parquet")
    (tmp_path / "slow_words.py").write_text(SLOW_WORDS)
    arguments = (
        "score.sbatch",
        pools,
        "--model",
        "bm25",
        "--output",
        "out.run",
    )

    job = submit(*arguments, APTOOL_PLUGINS=str(tmp_path / "slow_words.py"))
    wait_for(lambda: list(tmp_path.glob("out.run.parts/*.run")))
    os.kill(first_process(job), signal.SIGUSR1)
    wait_for((tmp_path / "scontrol.log").exists)
    job.kill()  # as Slurm ends a job that is requeued
    job.wait()
    kept = len(list(tmp_path.glob("out.run.parts/*.run")))

    assert (tmp_path / "scontrol.log").read_text() == "requeue 7\n"
    assert 0 < kept < UNITS
    assert submit(*arguments).wait() == 0, (tmp_path / "slurm.out").read_text()
    assert json.loads((tmp_path / "out.run.json").read_text())["work"]["resumed"] == kept
    library.bm25_run(pools).save(tmp_path / "expected.run")
    assert (tmp_path / "out.run").read_bytes() == (tmp_path / "expected.run").read_bytes()
