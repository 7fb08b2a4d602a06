"""Settings of the process in a user's program: no result changes, and the settings are restored."""

import contextlib
import functools
import shutil
import subprocess
import sys
from pathlib import Path

from case import Case, content, surface
from mutators import mutate_bytes
from process_settings import SETTINGS, state
from world import small_options

PAIRS = [("where is the river", "the river near the window"), ("where", "")]


@surface(6)
def defaults(case: Case) -> None:
    shutil.copytree(case.world.model, "m")
    is_damaged = case.random.random() < 0.3  # errors restore the settings, too
    if is_damaged:
        path = case.random.choice(sorted(path for path in Path("m").iterdir() if path.is_file()))
        path.write_bytes(mutate_bytes(case.random, path.read_bytes()))
    act = case.random.choice((_score, _encode, _load, _train))
    settings = case.random.sample([*SETTINGS], case.random.randint(1, 3))
    settings.sort(key="device block".__eq__)  # PyTorch allows no default device to be set within it
    with contextlib.ExitStack() as stack:
        for setting in settings:
            stack.enter_context(SETTINGS[setting]())
        before = state()
        act(case, is_damaged)
        changed = [(old, new) for old, new in zip(before, state(), strict=True) if old != new]
        assert not changed, f"changed a setting: {str(changed)[:200]}"


def _score(case: Case, is_damaged: bool, *more: str) -> None:
    pools = case.world.collection / "test.pools.parquet"
    given = ("score", pools, "--model", "m", "--output", "x.run", *more)
    if case.run(*given, outputs=("x.run", "x.run.parts", "x.run.ir-metadata.yml")) is not None:
        assert is_damaged or Path("x.run").read_bytes() == content(case.world.run), "another run"


def _encode(case: Case, is_damaged: bool) -> None:
    pools = case.world.collection / "test.pools.parquet"
    if case.run("encode", pools, "--model", "m", "--output", "s", outputs=("s",)) is not None:
        _score(case, is_damaged, "--encoded", "s")


def _load(case: Case, is_damaged: bool) -> None:
    import aptool
    from aptool.errors import AptoolError

    try:
        scores = aptool.load("m", device="cpu").score(PAIRS)
    except AptoolError:
        assert is_damaged, "refused a sound model"
        return
    assert is_damaged or scores.tolist() == _scores(case.world.model), "other scores"


@functools.cache
def _scores(model: Path) -> list[float]:
    """Scores of a model with PyTorch's own settings, from another process."""
    program = f"import aptool; print(*aptool.load({str(model)!r}, device='cpu').score({PAIRS!r}).tolist())"
    printed = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True, text=True)
    return [float(score) for score in printed.stdout.split()]


def _train(case: Case, is_damaged: bool) -> None:
    given = ("train", case.world.collection, "--output", "t", *small_options())
    assert case.run(*given, outputs=("t", "t.training")) is not None, "refused a sound training"
    trained = content(case.world.trained / "model.safetensors")
    assert Path("t/model.safetensors").read_bytes() == trained, "other weights"
