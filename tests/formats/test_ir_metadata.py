"""RUN.ir-metadata.yml: what made a run, by the checklists of ir-metadata.org."""

import platform
from importlib import metadata

import pytest
import yaml

from aptool.errors import InputError
from aptool.formats.collection import CollectionFiles
from aptool.formats.ir_metadata import metadata_path
from aptool.formats.pools import list_units
from aptool.formats.schemas import check_document
from aptool.library.run import Run
from aptool.models.model import model_fingerprint
from aptool.scoring.baselines import Bm25System
from aptool.scoring.score import score


def read(run):
    return yaml.safe_load(metadata_path(run).read_text(encoding="utf-8"))


def test_score_fills_it(aptool, collection_folder, model_folder, tmp_path):
    run = tmp_path / "dev.run"
    command = ["score", collection_folder / "dev.pools.parquet", "--model", model_folder, "--output", run]

    assert aptool(*command).code == 0

    found = read(run)
    check_document("ir-metadata", found, metadata_path(run))
    assert found["tag"] == "ap-cnn"
    assert found["implementation"]["executable"]["cmd"] == " ".join(["aptool", *map(str, command)])
    assert found["platform"]["hardware"]["cpu"]["architecture"] == platform.machine()
    assert f"torch=={metadata.version('torch')}" in found["platform"]["software"]["libraries"]["python"]
    first, reranker = found["method"]["retrieval"]
    assert reranker["reranks"] == first["name"]
    assert reranker["fingerprint"] == model_fingerprint(model_folder)
    assert reranker["recipe"]["training"]["epochs"] == 4
    assert found["method"]["work"]["pairs"] == 120
    assert found["method"]["work"]["seconds"] > 0
    collection = CollectionFiles(collection_folder)
    assert found["data"]["test collection"]["name"] == "tiny"
    assert found["data"]["test collection"]["fingerprint"] == collection.fingerprint
    assert found["data"]["training data"] == [{"name": "tiny", "fingerprint": collection.fingerprint}]


def scored(collection, run):
    units = list_units([collection.pools("dev")])
    return score(units, Bm25System.of(units, None), run)


def test_what_an_author_has_added_stays(collection, tmp_path):
    run = tmp_path / "dev.run"
    scored(collection, run)
    path = metadata_path(run)
    path.write_text(path.read_text() + "actor:\n  name: Ada\nresearch goal:\n  venue: {name: SIGIR}\n")

    scored(collection, run)

    found = read(run)
    assert found["actor"] == {"name": "Ada"}
    assert found["research goal"] == {"venue": {"name": "SIGIR"}}
    assert found["method"]["retrieval"][1]["method"] == "BM25"
    # In the order of PRIMAD.
    parts = [key for key in found if key not in ("schema-version", "run-version", "tag")]
    assert parts == ["platform", "research goal", "implementation", "method", "actor", "data"]


def test_another_run_in_its_place_has_none_of_them(collection, tmp_path):
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
def test_metadata_of_another_tool_stay_when_a_run_is_saved(collection, tmp_path, text):
    run = tmp_path / "dev.run"
    scored(collection, tmp_path / "other.run")
    metadata_path(run).write_text(text)

    Run.load(tmp_path / "other.run").save(run)

    assert metadata_path(run).read_text() == text


@pytest.mark.parametrize("text", ["my notes", "a: [", "- 1\n"])
def test_a_file_of_another_kind_is_left_alone(collection, tmp_path, text):
    run = tmp_path / "dev.run"
    metadata_path(run).write_text(text)

    with pytest.raises(InputError, match=r"dev\.run\.ir-metadata\.yml: .*expected a document of ir_metadata"):
        scored(collection, run)

    assert metadata_path(run).read_text() == text
    assert not run.exists()
