"""RUN.ir-metadata.yml: the metadata of a run in the format of ir-metadata.org."""

import json
import platform
from importlib import metadata
from pathlib import Path

import jsonschema
import pytest
import yaml

from aptool.errors import InputError
from aptool.formats.collection import CollectionFiles
from aptool.formats.ir_metadata import metadata_path
from aptool.formats.pools import list_units
from aptool.library.run import Run
from aptool.models.model import model_fingerprint
from aptool.scoring.score import score_files
from aptool.scoring.systems import Bm25

SCHEMA = Path(__file__).parents[1] / "ir-metadata.schema.json"  # the checklists of ir-metadata.org


def read(run):
    return yaml.safe_load(metadata_path(run).read_text(encoding="utf-8"))


def test_score_writes_metadata(aptool, collection_folder, model_folder, tmp_path):
    run = tmp_path / "dev.run"
    command = ["score", collection_folder / "dev.pools.parquet", "--model", model_folder, "--output", run]

    assert aptool(*command).code == 0

    document = read(run)
    jsonschema.validate(document, json.loads(SCHEMA.read_text()))
    assert document["tag"] == "ap-cnn"
    assert document["implementation"]["executable"]["cmd"] == " ".join(["aptool", *map(str, command)])
    assert document["platform"]["hardware"]["cpu"]["architecture"] == platform.machine()
    assert f"torch=={metadata.version('torch')}" in document["platform"]["software"]["libraries"]["python"]
    first, reranker = document["method"]["retrieval"]
    assert reranker["reranks"] == first["name"]
    assert reranker["fingerprint"] == model_fingerprint(model_folder)
    assert reranker["recipe"]["training"]["epochs"] == 4
    assert document["method"]["work"]["pairs"] == 120
    assert document["method"]["work"]["seconds"] > 0
    collection = CollectionFiles(collection_folder)
    assert document["data"]["test collection"]["name"] == "tiny"
    assert document["data"]["test collection"]["fingerprint"] == collection.fingerprint
    assert document["data"]["training data"] == [{"name": "tiny", "fingerprint": collection.fingerprint}]


def scored(collection, run):
    units = list_units([collection.pools("dev")])
    return score_files(units, Bm25(), run)


def test_entries_of_the_author_are_preserved(collection, tmp_path):
    run = tmp_path / "dev.run"
    scored(collection, run)
    path = metadata_path(run)
    path.write_text(path.read_text() + "actor:\n  name: Ada\nresearch goal:\n  venue: {name: SIGIR}\n")

    scored(collection, run)

    document = read(run)
    assert document["actor"] == {"name": "Ada"}
    assert document["research goal"] == {"venue": {"name": "SIGIR"}}
    assert document["method"]["retrieval"][1]["method"] == "BM25"
    # In the order of PRIMAD.
    parts = [key for key in document if key not in ("schema-version", "run-version", "tag", "run-sha256")]
    assert parts == ["platform", "research goal", "implementation", "method", "actor", "data"]


def test_overwritten_run_has_no_stale_metadata(collection, tmp_path):
    run = tmp_path / "dev.run"
    scored(collection, run)
    Run.load(run).save(run, tag="other")
    assert not metadata_path(run).exists()

    scored(collection, run)
    path = metadata_path(run)
    path.write_text(path.read_text() + "actor:\n  name: Ada\n")
    Run.load(run).save(run, tag="other")
    assert read(run) == {"schema-version": 0.1, "actor": {"name": "Ada"}}


@pytest.mark.parametrize("text", ["my notes", "a: [", "schema-version: 0.1\ntag: mine\n"])
def test_metadata_of_another_tool_are_preserved(collection, tmp_path, text):
    run = tmp_path / "dev.run"
    scored(collection, tmp_path / "other.run")
    metadata_path(run).write_text(text)

    Run.load(tmp_path / "other.run").save(run)

    assert metadata_path(run).read_text() == text


@pytest.mark.parametrize("text", ["my notes", "a: [", "- 1\n"])
def test_file_of_another_kind_is_refused(collection, tmp_path, text):
    run = tmp_path / "dev.run"
    metadata_path(run).write_text(text)

    with pytest.raises(InputError, match=r"dev\.run\.ir-metadata\.yml: .*expected a document of ir_metadata"):
        scored(collection, run)

    assert metadata_path(run).read_text() == text
    assert not run.exists()
