"""`--record` of the benchmarks."""

import sys

from bench import evaluation
from bench.common import tables
from bench.record import read_result


def test_a_benchmark_records_its_values_and_tables(tmp_path, monkeypatch, capsys):
    record = tmp_path / "evaluation.json"
    arguments = ["/somewhere/bench/evaluation.py", "--repeats", "1", "--record", str(record)]
    monkeypatch.setattr(sys, "argv", arguments)
    # The files have 900,000 lines; 20 questions are enough here.
    monkeypatch.setattr(evaluation.write_files, "__defaults__", (20, 500))

    evaluation.main()

    written = read_result(record)
    assert written["command"] == "python -m bench.evaluation --repeats 1"
    assert written["fingerprint"] is None
    [seconds] = written["values"]["seconds"]
    assert written["tables"]["seconds"]["rows"] == [[seconds]]
    assert "evaluation of" in capsys.readouterr().out


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
