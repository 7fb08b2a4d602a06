"""Models on the Hugging Face hub, with a local server that implements its protocol."""

import hashlib
import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
import yaml
from networks import REASON, write_network

import aptool
from aptool.errors import AptoolError
from aptool.models.hub import pinned_name
from aptool.models.model import FILES, load_model
from aptool.models.start import training_recipe

huggingface_hub = pytest.importorskip("huggingface_hub")

COMMIT = "a" * 40


class Hub(BaseHTTPRequestHandler):
    """The requests of snapshot_download."""

    files: dict[str, bytes] = {}  # noqa: RUF012 - replaced for each test

    def do_GET(self):
        path = self.path.partition("?")[0]
        if path.startswith("/api/models/org/tiny/tree"):
            tree = [{"type": "file", "path": name, "size": len(data)} for name, data in self.files.items()]
            self.reply([{**file, "oid": hashlib.sha1(file["path"].encode()).hexdigest()} for file in tree])
        elif path.startswith("/api/models/org/tiny"):
            siblings = [{"rfilename": name} for name in self.files]
            self.reply({"id": "org/tiny", "sha": COMMIT, "siblings": siblings, "private": False, "tags": []})
        elif "/resolve/" in path:
            self.send_file(path.split("/resolve/")[1].partition("/")[2], body=True)
        else:
            self.reply({"error": "Repository not found"}, 404, {"X-Error-Code": "RepoNotFound"})

    def do_HEAD(self):
        self.send_file(self.path.split("/resolve/")[-1].partition("/")[2], body=False)

    def send_file(self, name, *, body):
        if name not in self.files:
            self.reply({"error": "Entry not found"}, 404, {"X-Error-Code": "EntryNotFound"})
            return
        data = self.files[name]
        self.send_response(200)
        self.send_header("Content-Length", str(len(data)))
        self.send_header("ETag", f'"{hashlib.sha1(data).hexdigest()}"')
        self.send_header("X-Repo-Commit", COMMIT)
        self.end_headers()
        if body:
            self.wfile.write(data)

    def reply(self, document, status=200, headers=None):
        data = json.dumps(document).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(data)

    @property
    def base(self):
        return f"http://{self.headers['Host']}"

    def log_message(self, *_):
        pass


@pytest.fixture
def hub(monkeypatch, tmp_path):
    """The files on the hub; huggingface_hub uses the local server."""
    handler = type("OwnHub", (Hub,), {"files": {}})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    address = f"http://127.0.0.1:{server.server_port}"
    real_download = huggingface_hub.snapshot_download

    # Other tests of this process may have set it.
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(
        huggingface_hub,
        "snapshot_download",
        lambda name, **more: real_download(
            name, endpoint=address, token=False, cache_dir=tmp_path / "cache", **more
        ),
    )
    yield handler.files
    server.shutdown()
    server.server_close()


def test_a_model_of_the_hub_scores_as_its_folder(aptool, hub, model_folder, collection_folder, tmp_path):
    hub |= {name: (model_folder / name).read_bytes() for name in FILES}
    pools = collection_folder / "dev.pools.parquet"
    local = aptool("score", pools, "--model", model_folder, "--output", tmp_path / "local.run")
    remote = aptool("score", pools, "--model", "hf://org/tiny", "--output", tmp_path / "remote.run")

    assert (local.code, remote.code) == (0, 0), remote.err
    assert (tmp_path / "remote.run").read_bytes() == (tmp_path / "local.run").read_bytes()


@pytest.mark.parametrize("url", ["org/tiny", "hf://org/tiny"])
def test_training_starts_from_a_hub_model(aptool, hub, model_folder, collection_folder, tmp_path, url):
    hub |= {name: (model_folder / name).read_bytes() for name in FILES}
    arguments = ("train", collection_folder, "--set", "training.epochs=0")

    for start, output in ((url, "remote"), (model_folder, "local")):
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


def test_a_model_of_the_hub_is_saved_with_all_its_files(hub, model_folder, tmp_path):
    files = {name: (model_folder / name).read_bytes() for name in FILES}
    hub |= files
    model = aptool.load("org/tiny", device="cpu")

    model.save(tmp_path / "saved")

    assert {name: (tmp_path / "saved" / name).read_bytes() for name in FILES} == files


def test_every_node_downloads_the_commit_of_the_driver(hub, model_folder, tmp_path):
    hub |= {name: (model_folder / name).read_bytes() for name in FILES}

    name = pinned_name("hf://org/tiny")

    assert name == pinned_name("org/tiny") == f"hf://org/tiny@{COMMIT}"
    assert pinned_name(model_folder) == str(model_folder)
    (tmp_path / "cache").rename(tmp_path / "of the driver")  # another node has no cache
    assert load_model(name).fingerprint == load_model(model_folder).fingerprint
    assert (tmp_path / "cache" / "models--org--tiny" / "snapshots" / COMMIT).is_dir()
    with pytest.raises(AptoolError, match=r"^hf://org/other: .*expected a model on the hub$"):
        pinned_name("hf://org/other")


@pytest.mark.usefixtures("hub")
def test_model_missing_on_the_hub_is_refused():
    with pytest.raises(AptoolError, match=r"^hf://org/nothing: .*expected a model on the hub$"):
        aptool.load("hf://org/nothing")
    with pytest.raises(AptoolError, match="a URL of another form; expected hf://ORG/NAME"):
        aptool.load("hf://nothing")


def test_hub_reads_the_measures_of_the_model_card(model_folder):
    card = huggingface_hub.ModelCard.load(model_folder / "README.md")

    config = json.loads((model_folder / "config.json").read_text())
    measures = {result.metric_type: result.metric_value for result in card.data.eval_results}
    expected = {name.lower(): value for name, value in config["training"]["dev"].items()}
    assert measures == pytest.approx(expected, abs=5e-5)
    (first, *_) = card.data.eval_results
    assert (first.dataset_name, first.dataset_split) == ("tiny", "dev")
    header = yaml.safe_load((model_folder / "README.md").read_text().split("---")[1])
    assert header["model-index"][0]["name"] == "ap-cnn"
