"""The call path of a command is short: frames of aptool from the command to its innermost work."""

import re
import sys
import traceback
from pathlib import Path

import pytest

import aptool
from aptool import __main__ as command_line

PACKAGE = Path(aptool.__file__).parent


class ReachedError(Exception):
    """Raised in the innermost work."""


def reach(*arguments, **more):
    raise ReachedError


def files_of_the_page(title):
    """The files of a table of docs/architecture.md, in order."""
    page = (PACKAGE.parent / "docs" / "architecture.md").read_text(encoding="utf-8")
    return re.findall(r"^\| `([\w/]+\.py)` \|", page.partition(f"### {title}")[2].partition("\n#")[0], re.M)


def frames_of(arguments, monkeypatch):
    """(file, function) of each frame of aptool, from the command line to ``reach``."""
    monkeypatch.setattr(sys, "argv", ["aptool", *map(str, arguments)])
    monkeypatch.setattr("signal.signal", lambda *arguments: None)
    for hook in ("excepthook", "unraisablehook"):
        monkeypatch.setattr(sys, hook, getattr(sys, hook))  # restored after the test
    with pytest.raises(ReachedError) as error:
        command_line.main()
    calls = traceback.extract_tb(error.value.__traceback__)
    assert calls[-1].name == "reach"
    return [
        (Path(call.filename).relative_to(PACKAGE).as_posix(), call.name)
        for call in calls
        if PACKAGE in Path(call.filename).parents
    ]


def test_a_pair_is_scored_in_seven_frames(collection_folder, model_folder, tmp_path, monkeypatch):
    monkeypatch.setattr("aptool.scoring.kernels.cosines", reach)
    pools, output = collection_folder / "dev.pools.parquet", tmp_path / "dev.run"

    frames = frames_of(["score", pools, "--model", model_folder, "--output", output], monkeypatch)

    kernel = frames.index(("scoring/kernels.py", "score_pairs"))
    frames = frames[frames.index(("cli/score.py", "score")) : kernel + 1]
    assert len(frames) <= 7, frames
    assert list(dict.fromkeys(file for file, _ in frames)) == files_of_the_page("`aptool score`")


def test_an_optimizer_step_is_taken_in_seven_frames(collection_folder, tmp_path, monkeypatch):
    monkeypatch.setattr("torch.optim.Adam.step", reach)
    arguments = [
        "train",
        collection_folder,
        "--output",
        tmp_path / "model",
        "--set",
        "training.optimizer=adam",
    ]

    frames = frames_of([*arguments, "--set", "vectors.source=random"], monkeypatch)

    frames = frames[frames.index(("cli/train.py", "train")) :]
    assert len(frames) <= 7, frames
    assert list(dict.fromkeys(file for file, _ in frames)) == files_of_the_page("`aptool train`")
