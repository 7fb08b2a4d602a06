"""The files of jobs/ for KubeRay, Docker and Ray's launcher, and the commands in them."""

import copy
import json
import re
import shlex
from fnmatch import fnmatchcase
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


def each(overlays):
    return pytest.mark.parametrize("overlay", overlays, ids=lambda path: path.name)


each_overlay = each(OVERLAYS)
each_on_a_store = each([path for path in OVERLAYS if path.name.startswith("store-")])
each_on_a_volume = each([path for path in OVERLAYS if not path.name.startswith("store-")])


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


def pods(job):
    """The pods of head and workers."""
    cluster = job["spec"]["rayClusterSpec"]
    return [group["template"]["spec"] for group in (cluster["headGroupSpec"], *cluster["workerGroupSpecs"])]


def workers(job):
    (group,) = job["spec"]["rayClusterSpec"]["workerGroupSpecs"]
    return group


def containers(job):
    return [container for pod in pods(job) for container in pod["containers"]]


def gpus(job):
    """Number of GPUs of the head and of a worker."""
    return [int(container["resources"]["limits"].get("nvidia.com/gpu", 0)) for container in containers(job)]


def test_every_way_to_run_has_an_overlay():
    assert [path.name for path in OVERLAYS] == [
        *("cpu", "eval", "score-gpu", "store-cpu", "store-score-gpu", "store-train-gpu"),
        *("train-8gpu", "train-gpu", "train-spot"),
    ]


@each_on_a_store
def test_overlay_of_a_store_has_one_bucket_and_no_disk(overlay):
    """No pod has a volume, every path is in the same bucket, and all pods get the secret."""
    (job,) = kustomized(overlay)

    jsonschema.Draft202012Validator(SCHEMA).validate(job)
    assert not any("volumes" in pod for pod in pods(job))
    for container in containers(job):
        assert not {"volumeMounts", "workingDir"} & container.keys()
        assert container["envFrom"] == [{"secretRef": {"name": "aptool-store", "optional": True}}]
    entrypoint = job["spec"]["entrypoint"]
    assert set(re.findall(r"\w+://[^/]+", entrypoint)) == {"s3://BUCKET"}
    assert all(path.startswith("s3://BUCKET/") for path in re.findall(r"[^ ]*/[^ ]*", entrypoint))
    assert job["spec"]["backoffLimit"] > 0


@each_on_a_volume
def test_overlay_is_a_rayjob_and_its_volume(overlay):
    resources = kustomized(overlay)

    assert [resource["kind"] for resource in resources] == ["RayJob", "PersistentVolumeClaim"]
    job, volume = resources
    jsonschema.Draft202012Validator(SCHEMA).validate(job)
    assert {
        volume["persistentVolumeClaim"]["claimName"] for pod in pods(job) for volume in pod["volumes"]
    } == {volume["metadata"]["name"]}


@each_on_a_volume
def test_retries_resume_from_the_volume(overlay):
    """A retry is a new cluster: all pods write to a volume that the next cluster mounts too."""
    job = rayjob(overlay.name)

    assert job["spec"]["backoffLimit"] > 0
    for pod in pods(job):
        claims = {volume["name"] for volume in pod["volumes"] if "persistentVolumeClaim" in volume}
        mounts = [mount for container in pod["containers"] for mount in container["volumeMounts"]]
        assert {mount["name"] for mount in mounts} <= claims
        assert {mount["mountPath"] for mount in mounts} == {"/aptool"}
        # The image's user may write to a volume that is new.
        assert pod["securityContext"]["fsGroup"] == pod["securityContext"]["runAsGroup"]


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
    device = "gpu" if any(gpus(job)) else "cpu"

    assert {container["image"] for container in containers(job)} == {f"aptool:{device}"}
    version = job["spec"]["rayClusterSpec"]["rayVersion"]
    assert version == tested.removeprefix("ray==")
    assert f"FROM rayproject/ray:{version}-py311-${{DEVICE}}\n" in (JOBS / "Dockerfile").read_text()


def in_image(path):
    """Whether a path is in the image; the last matching pattern of .dockerignore decides."""
    parts = Path(path).parts
    prefixes = ["/".join(parts[: end + 1]) for end in range(len(parts))]
    included = True
    for line in (ROOT / ".dockerignore").read_text().splitlines():
        if line and not line.startswith("#"):
            pattern = line.removeprefix("!")
            if any(fnmatchcase(prefix, pattern) for prefix in prefixes):
                included = line.startswith("!")
    return included


def test_image_has_all_files_of_the_installation():
    for path in ("pyproject.toml", "README.md", "LICENSE", "constraints.txt"):
        assert in_image(path)
        assert (ROOT / path).is_file()
    for path in ("aptool/cli/main.py", "schemas/pools.schema.json", "jobs/eval.toml"):
        assert in_image(path)
    assert not in_image("aptool/cli/__pycache__/main.pyc")
    # The table of overlays/eval is where the Dockerfile copies the tables.
    assert "/opt/aptool/jobs/eval.toml" in rayjob("eval")["spec"]["entrypoint"]
    assert "/tmp/aptool/jobs /opt/aptool/jobs" in (JOBS / "Dockerfile").read_text()


def test_launcher_file_has_all_required_entries():
    """Ray's own schema of such files, where Ray is installed."""
    schema = pytest.importorskip("ray.autoscaler")
    file = Path(schema.__file__).parent / "ray-schema.json"
    launcher = yaml.safe_load((JOBS / "cluster-launcher.yaml").read_text())

    jsonschema.validate(launcher, json.loads(file.read_text()))
