"""Models on the Hugging Face hub."""

from fnmatch import fnmatch
from unittest.mock import Mock

import pytest
from networks import REASON, write_network

from aptool.errors import AptoolError
from aptool.models.hub import pinned_name
from aptool.models.initialization import training_recipe
from aptool.models.model import FILES, load_model

huggingface_hub = pytest.importorskip("huggingface_hub")
RepositoryNotFoundError = pytest.importorskip("huggingface_hub.errors").RepositoryNotFoundError

COMMIT = "a" * 40


@pytest.fixture
def hub(monkeypatch, tmp_path):
    """The files of org/tiny on the hub; they are downloaded to the layout of the library's cache."""
    files: dict[str, bytes] = {}

    def download(name, revision, allow_patterns):
        if name != "org/tiny" or revision not in (None, COMMIT):
            raise RepositoryNotFoundError(f"Repository not found: {name}", response=Mock())
        folder = tmp_path / "cache" / "models--org--tiny" / "snapshots" / COMMIT
        for file, data in files.items():
            if any(fnmatch(file, pattern) for pattern in allow_patterns):
                (folder / file).parent.mkdir(parents=True, exist_ok=True)
                (folder / file).write_bytes(data)
        return str(folder)

    monkeypatch.setattr(huggingface_hub, "snapshot_download", download)
    return files


def test_a_model_of_the_hub_scores_as_its_folder(aptool, hub, model_folder, collection_folder, tmp_path):
    hub |= {name: (model_folder / name).read_bytes() for name in FILES}
    pools = collection_folder / "dev.pools.parquet"
    local = aptool("score", pools, "--model", model_folder, "--output", tmp_path / "local.run")
    remote = aptool("score", pools, "--model", "org/tiny", "--output", tmp_path / "remote.run")

    assert (local.code, remote.code) == (0, 0), remote.err
    assert (tmp_path / "remote.run").read_bytes() == (tmp_path / "local.run").read_bytes()


def test_training_starts_from_a_hub_model(aptool, hub, model_folder, collection_folder, tmp_path):
    hub |= {name: (model_folder / name).read_bytes() for name in FILES}
    arguments = ("train", collection_folder, "--set", "training.epochs=0")

    for start, output in (("org/tiny", "remote"), (model_folder, "local")):
        finished = aptool(*arguments, "--start", start, "--output", tmp_path / output)
        assert finished.code == 0, finished.err

    weights = [(tmp_path / output / "model.safetensors").read_bytes() for output in ("remote", "local")]
    assert weights[0] == weights[1]


def test_training_starts_from_a_checkpoint_on_the_hub(hub, tmp_path):
    pytest.importorskip("transformers", reason=REASON)
    network = write_network(tmp_path / "network")
    hub |= {path.name: path.read_bytes() for path in network.iterdir()}

    recipe = training_recipe(None, (), "org/tiny")

    assert recipe.pooling["type"] == "mean"
    assert recipe.encoder["name"].endswith(COMMIT)


def test_every_node_downloads_the_commit_of_the_driver(hub, model_folder, tmp_path):
    hub |= {name: (model_folder / name).read_bytes() for name in FILES}

    name = pinned_name("org/tiny")

    assert name == f"org/tiny@{COMMIT}"
    assert pinned_name(model_folder) == str(model_folder)
    (tmp_path / "cache").rename(tmp_path / "of the driver")  # another node has no cache
    assert load_model(name).fingerprint == load_model(model_folder).fingerprint
    assert (tmp_path / "cache" / "models--org--tiny" / "snapshots" / COMMIT).is_dir()
    with pytest.raises(AptoolError, match=r"^org/other: .*expected a model on the hub$"):
        pinned_name("org/other")
