"""The comparison with a script on sentence-transformers."""

import numpy as np
import pytest
from networks import write_network

from bench import rival


@pytest.mark.parametrize("distinct", [15])
def test_the_command_and_the_script_write_the_same_scores(tmp_path, distinct):
    pytest.importorskip("sentence_transformers", reason="compares with sentence-transformers")
    network = write_network(tmp_path / "network")
    rival.write_workload(tmp_path / "x.pools.parquet", ["where", "river", "market"], 4, distinct)

    for start in rival.commands(network, tmp_path / "x.pools.parquet", tmp_path).values():
        start()

    runs = []
    for name in ("aptool", "script"):
        lines = (line.split() for line in (tmp_path / f"{name}.run").read_text().splitlines())
        runs.append({(line[0], line[2]): float(line[4]) for line in lines})
    assert len(runs[0]) == 40
    assert runs[0] == {pair: pytest.approx(score, abs=1e-5) for pair, score in runs[1].items()}


def test_texts_are_distinct_and_have_the_requested_lengths():
    texts = rival.texts(["a", "b"], 500, 25, 0.5, 0)

    assert len(set(texts)) == 500
    assert np.mean([len(text.split()) - 1 for text in texts]) == pytest.approx(25, rel=0.1)
