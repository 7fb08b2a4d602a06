"""The RayJob of jobs/kubernetes, submitted by KubeRay's script to a real Ray cluster."""

import importlib.util
import json
import shlex
import shutil
import subprocess
import sys
import tempfile
import urllib.request
from pathlib import Path
from typing import NamedTuple

import pytest

yaml = pytest.importorskip("yaml")

ROOT = Path(__file__).parents[2]
RAYJOB = ROOT / "jobs" / "kubernetes" / "base" / "rayjob.yaml"

# The script of KubeRay's submitter in K8sJobMode: BuildJobSubmitCommand in
# https://github.com/ray-project/kuberay/blob/05b2df3/ray-operator/controllers/ray/common/job.go (Apache 2.0),
# for a job without runtime environment, metadata and resources. The entrypoint is not quoted.
# `{probe}` is KubeRay's request of /api/gcs_healthz.
SUBMIT = (
    "until {probe} >/dev/null 2>&1 ; "
    'do echo "Waiting for Ray Dashboard GCS to become healthy at {address} ..." ; sleep 2 ; done ; '
    "if ! ray job status --address {address} {job} >/dev/null 2>&1 ; "
    "then ray job submit --address {address} --no-wait --submission-id {job} -- {entrypoint} ; fi ; "
    "ray job logs --address {address} --follow {job}"
)
COMMAND = ("/bin/bash", "-ce", "--")  # GetContainerCommand(["e"]) in its utils

IN_SUBMITTER = 97  # exit code of `aptool` in a submitter, where only `ray` may run


class Submitted(NamedTuple):
    """The exit code and output of the script; the job's status, which KubeRay reads from the dashboard."""

    code: int
    out: str
    status: str


@pytest.fixture(scope="module")
def ray_jobs(surroundings, tmp_path_factory):
    """The address of a jobs server, and the environment of a submitter with the cluster's token."""
    bin_folder, submitter = tmp_path_factory.mktemp("bin"), tmp_path_factory.mktemp("submitter")
    write_program(bin_folder / "aptool", f'exec {shlex.quote(sys.executable)} -m aptool "$@"')
    write_program(submitter / "aptool", f"exit {IN_SUBMITTER}")
    write_program(submitter / "ray", f'exec {shlex.quote(sys.executable)} -m ray.scripts.scripts "$@"')
    specification = importlib.util.spec_from_file_location("demo", ROOT / "jobs" / "demo.py")
    demo = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(demo)
    path, port, head = surroundings["PATH"], demo.free_port(), demo.free_port()
    folder = Path(tempfile.mkdtemp(prefix="ray-"))  # paths of sockets are short
    options = ["--head", f"--port={head}", f"--temp-dir={folder}", "--include-dashboard=true"]
    options += ["--dashboard-host=127.0.0.1", f"--dashboard-port={port}"]
    node = demo.start_node(options, 0, folder, surroundings | {"PATH": f"{bin_folder}:{path}"})
    try:
        yield f"http://127.0.0.1:{port}", surroundings | {"PATH": f"{submitter}:{path}"}
    finally:
        node.kill()  # its reaper ends the other processes at once; on SIGTERM Ray takes 30 s
        node.wait()
        shutil.rmtree(folder, ignore_errors=True)


def write_program(path, line):
    path.write_text(f"#!/bin/sh\n{line}\n")
    path.chmod(0o755)


@pytest.fixture(scope="module")
def volume(tmp_path_factory, collection_folder):
    """A folder that replaces /aptool, with a tiny collection at the path of the job."""
    folder = tmp_path_factory.mktemp("volume")
    shutil.copytree(collection_folder, folder / "data" / "functions")
    return folder


@pytest.fixture(scope="module")
def entrypoint(volume):
    text = yaml.safe_load(RAYJOB.read_text())["spec"]["entrypoint"]
    assert text.count("/aptool ") == 1
    return text.replace("cd /aptool ", f"cd {volume} ")


@pytest.fixture(scope="module")
def submit(ray_jobs):
    address, environment = ray_jobs
    request = f"import urllib.request; urllib.request.urlopen('{address}/api/gcs_healthz')"
    probe = shlex.join([sys.executable, "-c", request])

    def start(job, entrypoint):
        script = SUBMIT.format(probe=probe, address=address, job=job, entrypoint=entrypoint.strip())
        finished = subprocess.run(
            [*COMMAND, script],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=600,
            env=environment,
        )
        status = request_json(address, environment, job)["status"]
        return Submitted(finished.returncode, finished.stdout, status)

    return start


def request_json(address, environment, job="", page=None):
    """The response of the jobs server for a job or all jobs, or another page of the dashboard."""
    token = {"Authorization": f"Bearer {environment['RAY_AUTH_TOKEN']}"}
    url = f"{address}/api/{page or f'jobs/{job}'}"
    with urllib.request.urlopen(urllib.request.Request(url, headers=token)) as answer:
        return json.load(answer)


def test_from_a_collection_to_a_run_file(submit, ray_jobs, entrypoint, volume):
    first = submit("first", entrypoint)

    assert (first.code, first.status) == (0, "SUCCEEDED"), first.out
    run, model = volume / "runs" / "test.run", volume / "models" / "ap-cnn" / "model.safetensors"
    scores, trained = run.read_bytes(), model.stat()
    assert len(scores.splitlines()) == 20 * 6  # questions, candidates
    assert "map" in first.out.lower()

    # Ray's dashboard shows the run as a data set with its stages.
    shown = [
        dataset
        for job in request_json(*ray_jobs)
        if job["job_id"] is not None
        for dataset in request_json(*ray_jobs, page=f"data/datasets/{job['job_id']}")["datasets"]
    ]
    (dataset,) = [entry for entry in shown if entry["dataset"].startswith("aptool-score-test.run")]
    assert any("ScoreUnits" in stage["operator"] for stage in dataset["operators"])

    # A restarted submitter does not submit the job again.
    again = submit("first", entrypoint)
    assert (again.code, again.status) == (0, "SUCCEEDED"), again.out
    assert [job["submission_id"] for job in request_json(*ray_jobs)] == ["first"]

    # A retry (backoffLimit) has a new id. The model is not trained again, and the missing run is written.
    run.unlink()
    retry = submit("retry", entrypoint)
    assert (retry.code, retry.status) == (0, "SUCCEEDED"), retry.out
    assert run.read_bytes() == scores
    assert (model.stat().st_mtime_ns, model.stat().st_ino) == (trained.st_mtime_ns, trained.st_ino)
