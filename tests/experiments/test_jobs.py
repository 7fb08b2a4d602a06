"""The files of jobs/ for KubeRay, Docker and Ray's launcher, and the commands in them."""

import copy
import json
import re
import shlex
from pathlib import Path

import click
import jsonschema
import pytest

from aptool.cli.main import cli

yaml = pytest.importorskip("yaml")

ROOT = Path(__file__).parents[2]
JOBS = ROOT / "jobs"
SCHEMA = json.loads((ROOT / "tests" / "rayjob.schema.json").read_text())
OVERLAYS = sorted(file.parent for file in JOBS.glob("kubernetes/overlays/*/kustomization.yaml"))


each_overlay = pytest.mark.parametrize("overlay", OVERLAYS, ids=lambda path: path.name)


def kustomized(folder, resources=()):
    """The output of `kubectl kustomize`, for the features that these files use.

    Raises:
        KeyError, IndexError: a patch names a missing field.
    """
    file = yaml.safe_load((folder / "kustomization.yaml").read_text())
    rendered = [*resources]
    for name in file.pop("resources", ()):
        path = (folder / name).resolve()
        rendered += kustomized(path) if path.is_dir() else yaml.safe_load_all(path.read_text())
    for name in file.pop("components", ()):
        rendered = kustomized((folder / name).resolve(), rendered)
    for patch in file.pop("patches", ()):
        targets = [resource for resource in rendered if resource["kind"] == patch["target"]["kind"]]
        assert targets, patch["target"]
        change = yaml.safe_load(patch["patch"])
        if isinstance(change, dict):
            assert change.pop("$patch") == "delete"
            rendered = [resource for resource in rendered if resource not in targets]
            continue
        for target in targets:
            for operation in change:
                apply(operation, target)
    for image in file.pop("images", ()):
        for container in (container for job in rayjobs(rendered) for container in containers(job)):
            if container["image"].partition(":")[0] == image["name"]:
                container["image"] = f"{image['newName']}:{image['newTag']}"
    assert file.keys() == {"apiVersion", "kind"}
    return rendered


def apply(operation, target):
    """Apply an operation of a JSON patch (RFC 6902) to ``target`` in place."""
    *parents, last = (part.replace("~1", "/") for part in operation["path"].split("/")[1:])
    for part in parents:
        target = target[int(part) if isinstance(target, list) else part]
    if isinstance(target, list):
        assert (operation["op"], last) == ("add", "-")
        target.append(operation["value"])
        return
    assert (last in target) == (operation["op"] in ("replace", "remove")), operation
    if operation["op"] == "remove":
        del target[last]
    else:
        target[last] = copy.deepcopy(operation["value"])


def rayjobs(resources):
    return [resource for resource in resources if resource["kind"] == "RayJob"]


def rayjob(name):
    (job,) = rayjobs(kustomized(JOBS / "kubernetes" / "overlays" / name))
    return job


def containers(job):
    """The containers of head and workers."""
    cluster = job["spec"]["rayClusterSpec"]
    groups = (cluster["headGroupSpec"], *cluster["workerGroupSpecs"])
    return [container for group in groups for container in group["template"]["spec"]["containers"]]


@each_overlay
def test_overlay_is_a_rayjob_that_is_tried_again(overlay):
    job = rayjob(overlay.name)

    jsonschema.Draft202012Validator(SCHEMA).validate(job)
    assert job["spec"]["backoffLimit"] > 0


@each_overlay
def test_entrypoint_survives_kuberays_script(overlay):
    """KubeRay inserts it unquoted into a script of bash; tests/cluster/test_cluster_rayjobs.py runs that."""
    entrypoint = rayjob(overlay.name)["spec"]["entrypoint"]

    assert re.fullmatch(r'sh -c "[^"$`\\!\n]+"', entrypoint)
    assert entrypoint.startswith('sh -c "cd /aptool && ') != ("s3://" in entrypoint)


@each_overlay
def test_commands_of_jobs_are_valid(overlay):
    _, _, script = shlex.split(rayjob(overlay.name)["spec"]["entrypoint"])
    parts = re.split(r" && | \|\| ", script.replace("{ ", "").replace("; }", ""))
    commands = [part for part in parts if not part.startswith(("cd /aptool", "test -f "))]
    assert commands
    for line in commands:
        program, *arguments = shlex.split(line)
        assert program == "aptool"
        context, command = click.Context(cli, **cli.context_settings), cli
        while isinstance(command, click.Group):
            verb = arguments.pop(0)
            command = command.get_command(context, verb)
            assert command is not None, verb
        command.make_context(verb, arguments, parent=context)  # raises UsageError for an unknown option


@each_overlay
def test_image_is_named_once_and_is_of_the_tested_version(overlay):
    job = rayjob(overlay.name)
    constraints = (ROOT / "constraints.txt").read_text().splitlines()
    tested = next(line for line in constraints if line.startswith("ray=="))
    limits = [container["resources"]["limits"] for container in containers(job)]
    device = "gpu" if any(int(limit.get("nvidia.com/gpu", 0)) for limit in limits) else "cpu"

    assert {container["image"] for container in containers(job)} == {f"aptool:{device}"}
    version = job["spec"]["rayClusterSpec"]["rayVersion"]
    assert version == tested.removeprefix("ray==")
    assert f"FROM rayproject/ray:{version}-py311-${{DEVICE}}\n" in (JOBS / "Dockerfile").read_text()
