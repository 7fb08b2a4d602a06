"""Progress of long work: bars in a notebook, nothing in a script, lines if logging is configured."""

import logging
import os

import forked
from tiny import options

import aptool

OPTIONS = list(options("ap-cnn"))


def script(folder):
    """Train and score, without logging and then with it, as a script in a process of its own does."""
    os.chdir(folder)
    data = aptool.Collection("data/wikiqa")
    for name in ("silent.run", "logged.run"):
        model = aptool.train(data, set=OPTIONS)
        model.run(data.pools("dev")).save(f"dev.{name}")
        aptool.score(data.pools("test"), model=model, output=name)
        logging.basicConfig(level="INFO", format="%(message)s")
        logging.getLogger().info("configured")


def test_a_script_is_silent_unless_it_configures_logging(folder, tmp_path):
    finished = forked.run(tmp_path / "process", script, str(folder))

    assert (finished.code, finished.out) == (0, "")
    first, *lines = finished.err.splitlines()
    assert first == "configured"
    epochs = [line.split(":")[0] for line in lines if line.startswith("epoch")]
    assert epochs == [f"epoch {number}" for number in (1, 2, 3, 4)]
    assert len((folder / "logged.run").read_text().splitlines()) == 120
