"""The files of jobs/: what KubeRay and Ray's launcher would be given, and the commands that stand in them."""

import copy
import json
import shlex
from pathlib import Path

import click
import jsonschema
import pytest

from aptool.cli.main import cli

yaml = pytest.importorskip("yaml")

ROOT = Path(__file__).parents[2]
SCHEMA = json.loads((ROOT / "tests" / "rayjob.schema.json").read_text())
FILES = sorted((ROOT / "jobs").glob("rayjob-*.yaml"))


def load(name):
    return yaml.safe_load((ROOT / "jobs" / name).read_text())


def valid(job):
    return jsonschema.Draft202012Validator(SCHEMA).is_valid(job)


def test_there_is_a_job_for_each_step():
    assert [path.name for path in FILES] == ["rayjob-eval.yaml", "rayjob-score.yaml", "rayjob-train.yaml"]


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_job_is_a_rayjob(path):
    jsonschema.Draft202012Validator(SCHEMA).validate(load(path.name))


def test_schema_finds_what_is_wrong():
    job = load("rayjob-train.yaml")

    def changed(*keys, value):
        one = copy.deepcopy(job)
        place = one
        for key in keys[:-1]:
            place = place[key]
        place[keys[-1]] = value
        return one

    assert valid(job)
    assert not valid(changed("apiVersion", value="ray.io/v1alpha1"))
    assert not valid(changed("spec", "backoffLimits", value=3))
    assert not valid(changed("spec", "submissionMode", value="Job"))
    assert not valid(changed("spec", "rayClusterSpec", "headGroupSpec", value={}))
    # Kubernetes takes numbers of cores as integers or strings, and start parameters as strings alone.
    head = ("spec", "rayClusterSpec", "headGroupSpec")
    assert not valid(changed(*head, "rayStartParams", "num-cpus", value=0))
    container = (*head, "template", "spec", "containers", 0)
    assert not valid(changed(*container, "resources", "limits", "memory", value="8 GB"))


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_retries_go_on_where_the_last_one_stopped(path):
    """A retry is a new cluster: what is done has to stand on a volume that all pods of both mount."""
    spec = load(path.name)["spec"]

    assert spec["backoffLimit"] > 0
    cluster = spec["rayClusterSpec"]
    for group in [cluster["headGroupSpec"], *cluster["workerGroupSpecs"]]:
        pod = group["template"]["spec"]
        claims = {volume["name"] for volume in pod["volumes"] if "persistentVolumeClaim" in volume}
        mounts = [mount for one in pod["containers"] for mount in one["volumeMounts"]]
        assert {mount["name"] for mount in mounts} <= claims
        assert {mount["mountPath"] for mount in mounts} == {"/aptool"}
    assert spec["entrypoint"].startswith("cd /aptool && ")


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_commands_of_a_job_are_commands(path):
    for command in load(path.name)["spec"]["entrypoint"].split(" && ")[1:]:
        program, verb, *arguments = shlex.split(command)
        assert program == "aptool"
        group = click.Context(cli)
        found = cli.get_command(group, verb)
        assert found is not None
        found.make_context(verb, arguments, parent=group)  # raises UsageError for an option there is not


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_all_pods_have_one_image_of_the_version_that_is_tested(path):
    cluster = load(path.name)["spec"]["rayClusterSpec"]
    groups = [cluster["headGroupSpec"], *cluster["workerGroupSpecs"]]
    images = {one["image"] for group in groups for one in group["template"]["spec"]["containers"]}
    tested = next(
        line for line in (ROOT / "constraints.txt").read_text().splitlines() if line.startswith("ray==")
    )

    assert len(images) == 1
    assert cluster["rayVersion"] == tested.removeprefix("ray==")
    assert f"rayproject/ray:{cluster['rayVersion']}-py311" in (ROOT / "jobs" / "Dockerfile").read_text()


def test_launcher_file_names_what_the_launcher_needs():
    """Ray's own schema of such files, where Ray is installed."""
    schema = pytest.importorskip("ray.autoscaler")
    file = Path(schema.__file__).parent / "ray-schema.json"

    jsonschema.validate(load("cluster-launcher.yaml"), json.loads(file.read_text()))
