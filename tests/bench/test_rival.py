"""The comparison with a script on sentence-transformers."""

import runpy
import sys

import pytest
from networks import write_network

from bench import rival


def test_the_command_and_the_script_write_the_same_scores(tmp_path, aptool, monkeypatch):
    pytest.importorskip("sentence_transformers", reason="compares with sentence-transformers")
    network = write_network(tmp_path / "network")
    rival.write_workload(tmp_path / "x.pools.parquet", ["where", "river", "market"], 4, 15)

    def in_this_process(command, **more):
        if command[1:3] == ["-m", "aptool"]:
            assert aptool(*command[3:]).code == 0
        else:
            monkeypatch.setattr(sys, "argv", command[1:])
            runpy.run_path(command[1], run_name="__main__")

    monkeypatch.setattr("bench.rival.subprocess.run", in_this_process)
    for start in rival.commands(network, tmp_path / "x.pools.parquet", tmp_path).values():
        start()

    runs = []
    for name in ("aptool", "script"):
        lines = (line.split() for line in (tmp_path / f"{name}.run").read_text().splitlines())
        runs.append({(line[0], line[2]): float(line[4]) for line in lines})
    assert len(runs[0]) == 40
    assert runs[0] == {pair: pytest.approx(score, abs=1e-5) for pair, score in runs[1].items()}
