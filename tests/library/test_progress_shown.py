"""Progress of long work: bars in a notebook, nothing in a script, lines if logging is configured."""

import logging
import os

import forked
import pytest
from tiny import options

import aptool

OPTIONS = list(options("ap-cnn"))


def script(folder, configures):
    """Train and score, as a script in a process of its own does."""
    os.chdir(folder)
    if configures:
        logging.basicConfig(level="INFO", format="%(message)s")
    data = aptool.Collection("data/wikiqa")
    model = aptool.train(data, set=OPTIONS)
    model.run(data.pools("dev")).save("dev.run")
    aptool.score(data.pools("test"), model=model, output="test.run")


@pytest.mark.parametrize("configures", [False, True])
def test_a_script_is_silent_unless_it_configures_logging(configures, folder, tmp_path):
    finished = forked.run(tmp_path / "process", script, str(folder), configures)

    assert (finished.code, finished.out) == (0, "")
    epochs = [line.split(":")[0] for line in finished.err.splitlines() if line.startswith("epoch")]
    assert epochs == [f"epoch {number}" for number in (1, 2, 3, 4)] * configures
    assert configures or finished.err == ""
    assert len((folder / "test.run").read_text().splitlines()) == 120
