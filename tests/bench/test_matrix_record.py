"""`python -m bench.record` and results as JSON documents."""

import json
import sys
from statistics import fmean, stdev

import pytest
import small_matrix

from aptool.data.collection import Collection
from aptool.errors import InputError
from bench.record import main, read_result, result_document, write_result


def test_a_matrix_records_every_seed_with_its_provenance(aptool, tmp_path, collection_folder, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "m.toml").write_text(small_matrix.table(collection_folder).replace("[1]", "[1, 2]"))
    trained = ["qa-cnn", "ap-cnn", "ap-bilstm"]

    done = aptool("matrix", "m.toml", "--output", "out")
    assert done.code == 0, done.err
    monkeypatch.setattr(sys, "argv", ["record.py", "out", "r.json"])
    main()

    written = read_result(tmp_path / "r.json")
    table = json.loads((tmp_path / "out" / "table.json").read_text())
    assert written["command"] == "aptool matrix m.toml --output out" == table["command"]
    assert written["seeds"] == [1, 2]
    assert list(written["collections"].values()) == [Collection(collection_folder).fingerprint]
    assert sorted(written["fingerprint"]) == sorted(trained)
    assert {system["system"]: system["preset"] for system in written["systems"]} == {
        **dict.fromkeys(["random", "bm25", "fused"]),
        **{name: name for name in trained},
    }
    assert written["machine"]["cores"] > 0
    for system in written["systems"]:
        seeds = [
            entry["measures"]["MAP"]
            for entry in table["results"]
            if (entry["collection"], entry["system"]) == (system["collection"], system["system"])
        ]
        # The run of a system without random choices is recorded once.
        seeds = seeds[:1] if system["system"] == "bm25" else seeds
        assert system["values"]["MAP"] == seeds
        assert system["seeds"] == len(seeds)
        assert system["means"]["MAP"] == pytest.approx(fmean(seeds))
        assert system["deviations"]["MAP"] == pytest.approx(stdev(seeds) if len(seeds) > 1 else 0)


def test_a_file_that_is_not_a_result_is_not_replaced(tmp_path):
    (tmp_path / "notes.json").write_text('{"mine": 1}')

    with pytest.raises(InputError, match="top level: expected the entry 'format'"):
        write_result(tmp_path / "notes.json", result_document("m", "c"))

    assert (tmp_path / "notes.json").read_text() == '{"mine": 1}'


def test_rows_have_a_cell_per_column(tmp_path):
    table = {"columns": ["system", "MAP"], "rows": [["bm25", 0.5], ["random"]]}
    write_result(tmp_path / "r.json", result_document("m", "c", tables={"results": table}))

    with pytest.raises(InputError, match=r"tables/results/rows/1.*2 cells"):
        read_result(tmp_path / "r.json")


def test_unknown_entries_are_refused(tmp_path):
    with pytest.raises(InputError, match="'notes'"):
        write_result(tmp_path / "r.json", result_document("m", "c", notes="unknown"))
    assert not (tmp_path / "r.json").exists()
