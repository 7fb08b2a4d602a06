"""`--record` of the benchmarks."""

import json
import sys

from bench import common, simulation
from bench.common import tables
from bench.record import read_result

# As `python -m bench.cluster` writes it.
COSTS = {
    "pairs": 2_000_000,
    "answers": 1000,
    "units": 8,
    "cores": 2,
    "seconds": {"cluster": [10.0, 12.0, 11.0]},
    "unit_seconds": 0.1,
    "start_seconds": 5.0,
    "unit_overhead_seconds": 0.01,
    "input_bytes": 4_000_000,
    "run_bytes": 80_000_000,
    "stages": {
        "pairs": 2_000_000,
        "units": 8,
        "core_seconds": {"read": 1, "tokenize": 1, "encode": 2, "score": 8, "write": 1, "merge": 0.1},
    },
}


def test_a_benchmark_records_its_values_and_tables(tmp_path, monkeypatch, capsys):
    costs, record = tmp_path / "cluster.json", tmp_path / "scale.json"
    costs.write_text(json.dumps(COSTS))
    program = "/somewhere/bench/simulation.py"
    monkeypatch.setattr(sys, "argv", [program, "cluster.json", "--pairs", "1e8", "--record", str(record)])
    monkeypatch.chdir(tmp_path)

    simulation.main()

    written = read_result(record)
    assert written["command"] == "python -m bench.simulation cluster.json --pairs 1e8"
    assert written["values"] == COSTS
    assert written["fingerprint"] is None
    assert written["tables"]["measured"]["rows"][0] == ["pairs", "2,000,000"]
    # Read, tokenize, ... of 8 units: 8 core seconds of scoring are 1 per unit.
    assert ["score, core s per unit", "1.000"] in written["tables"]["measured"]["rows"]
    assert [row[0] for row in written["tables"]["workers"]["rows"]] == ["2", "8", "32", "128", "512", "1,000"]
    assert "workers" in capsys.readouterr().out


def test_nested_results_become_tables():
    results = {
        "threads": 2,
        "scoring": [
            {"system": "a", "pairs_per_second": {"fp32": 1.0, "bf16": 2.0}},
            {"system": "b", "pairs_per_second": {"fp32": 3.0}},
        ],
        "seconds": [0.5, 0.25],
    }

    assert tables(results) == {
        "results": {"columns": ["threads"], "left": 0, "rows": [[2]]},
        "scoring": {
            "columns": ["system", "pairs_per_second fp32", "pairs_per_second bf16"],
            "left": 1,
            "rows": [["a", 1.0, 2.0], ["b", 3.0, None]],
        },
        "seconds": {"columns": ["value"], "left": 0, "rows": [[0.5], [0.25]]},
    }
    by_name = tables({"import": {"seconds": 1.0}, "score": {"seconds": 2.0}})
    assert by_name["results"]["rows"] == [["import", 1.0], ["score", 2.0]]


def test_the_command_is_without_the_files_of_results(monkeypatch):
    words = ["bench/__main__.py", "--output", "x.json", "--quick", "--record=y.json", "--repeats", "3"]
    monkeypatch.setattr(sys, "argv", words)

    assert common.command() == "python -m bench --quick --repeats 3"
