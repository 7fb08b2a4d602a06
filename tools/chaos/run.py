"""Disturb commands, run them again, and compare their output with that of an undisturbed command.

The seed and the number of a trial determine it, except the scheduling of threads. A failure is printed with
the command that repeats it.
"""

import argparse
import contextlib
import importlib
import os
import random
import re
import select
import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple
from unittest import mock

from contents import hashes, names
from disturb import KILLED_IN, KILLS, SIGNALS, Disturbance, count_changes, disturb
from filesystems import PAGE, become_ordinary_user, prepared
from scenes import OUT, Scene, prepare, scenes

PATIENCE = 180  # timeout of a command in seconds
# Files with a date or a duration as text.
TIMED = re.compile(r".*\.ir-metadata\.yml|.*/table\.md")
_KINDS = (
    *("kill", "kill", "late", "kill", "late", "full", "disk", "future"),
    *("kill", "readonly", "kill", "nospace", "clock", "twice", "unwritable", "disk"),
)


class Quiet(NamedTuple):
    """The result of an undisturbed command.

    Attributes:
        names: names of all files that it writes.
        hashes: hashes of the files, except ``TIMED``.
        changes: number of changes of files.
        milliseconds: duration.
        largest: bytes of the largest file.
        pages: pages of a disk that the files take.
    """

    names: set[str]
    hashes: dict[str, str]
    changes: int
    milliseconds: int
    largest: int
    pages: int


class Child:
    """A command in a forked process, which has all modules loaded."""

    def __init__(self, scene: Scene, folder: Path, what: Disturbance, counts: Path | None = None) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._said, says = os.pipe()  # not a file: file sizes may be limited
        self._words = b""
        self.process = os.fork()
        if self.process == 0:
            _run(scene, folder, what, says, counts)
        os.close(says)

    def wait(self) -> int:
        """Wait for the exit code; a signal is negative.

        Raises:
            AssertionError: the command does not end within ``PATIENCE`` seconds.
        """
        end = time.monotonic() + PATIENCE
        while select.select([self._said], [], [], max(0.0, end - time.monotonic()))[0]:
            if not (piece := os.read(self._said, 1 << 16)):
                break
            self._words += piece
        else:
            os.kill(self.process, 9)
        os.close(self._said)
        code = os.waitstatus_to_exitcode(os.waitpid(self.process, 0)[1])
        assert time.monotonic() < end, f"did not end in {PATIENCE} s"
        return code

    def words(self) -> list[str]:
        """The printed lines, after ``wait``."""
        return self._words.decode(errors="replace").splitlines()


def _run(scene: Scene, folder: Path, what: Disturbance, says: int, counts: Path | None) -> None:
    """Run the command in the child process, and exit."""
    code: Any = 70
    try:
        os.dup2(says, 1)
        os.dup2(says, 2)
        os.close(says)
        os.chdir(folder)
        from aptool.__main__ import main

        counted = count_changes(folder) if counts is not None else lambda: 0
        if what.kind == "unwritable":
            become_ordinary_user()
        disturb(what, folder)
        sys.argv = ["aptool", *scene.arguments]
        try:
            main()
        except SystemExit as end:
            code = end.code or 0
        if counts is not None:
            counts.write_text(str(counted()))
    except BaseException:
        import traceback

        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code if isinstance(code, int) else 1)


def undisturbed(scene: Scene, base: Path) -> Quiet:
    """Run a command twice without a disturbance."""
    results = []
    for turn in ("first", "second"):
        folder, counts = base / f"quiet-{scene.name}" / turn, base / f"quiet-{scene.name}.count"
        began = time.monotonic()
        child = Child(scene, folder, Disturbance("none"), counts)
        assert child.wait() == 0, child.words()
        spent = int(1000 * (time.monotonic() - began))
        results.append((hashes(folder / OUT), names(folder / OUT), int(counts.read_text()), spent))
    (first, written, changes, _), (second, _, _, spent) = results
    same = {name: digest for name, digest in first.items() if not TIMED.fullmatch(name)}
    other = [name for name, digest in same.items() if second.get(name) != digest]
    assert same, f"{scene.name}: no file to compare"
    assert not other, f"{scene.name}: other bytes without any disturbance: {other[:3]}"
    sizes = [path.stat().st_size for path in (folder / OUT).rglob("*") if path.is_file()]
    pages = sum(-(-size // PAGE) for size in sizes)
    return Quiet(written, same, changes, spent, max(sizes), pages)


def trial(scene: Scene, quiet: Quiet, what: Disturbance, folder: Path) -> str:
    """Disturb a command, and run it again; return the exit code of the disturbed command as text.

    Raises:
        AssertionError: a file is incomplete, wrong or left over, or the error is not one line.
    """
    with prepared(what, folder, folder / OUT) as end_disturbance:
        return _disturbed(scene, quiet, what, folder, end_disturbance)


def _disturbed(
    scene: Scene, quiet: Quiet, what: Disturbance, folder: Path, end_disturbance: Callable[[], object]
) -> str:
    # Other parts of an answer store than without a disturbance.
    with mock.patch("aptool.scoring.stored_answers.PART_SECONDS", 0):
        children = [Child(scene, folder, what) for _ in range(2 if what.kind == "twice" else 1)]
    codes = [child.wait() for child in children]
    assert what.kind != "unwritable" or codes == [1], f"wrote into a read-only folder: {codes}"
    for child, code in zip(children, codes, strict=True):
        words = child.words()
        assert not any("Traceback" in line for line in words), words[-3:]
        assert code in (0, 1, 130, 143, *(-signal for signal in SIGNALS)), f"exit code {code}: {words[-3:]}"
        if code == 1 and what.kind not in KILLS:
            said = [line for line in words if line.startswith("aptool: ")]
            assert len(said) == 1, words[-5:]
            assert f"{OUT}/" in said[0], f"does not name the output: {said[0]}"
    written_files = hashes(folder / OUT) if (folder / OUT).exists() else {}
    half = [
        name
        for name, digest in quiet.hashes.items()
        if name in written_files and written_files[name] != digest
    ]
    assert not half, f"half-written: {half[:3]}"
    if what.kind == "twice":
        assert 0 in codes, f"none of two wins: {codes}"
        for child, code in zip(children, codes, strict=True):
            assert code == 0 or any("being written by process" in line for line in child.words()), (
                child.words()[-2:]
            )
    end_disturbance()
    again = Child(scene, folder, Disturbance("none"))
    assert again.wait() == 0, f"does not recover: {again.words()[-3:]}"
    results = hashes(folder / OUT)
    other = [name for name, digest in quiet.hashes.items() if results.get(name) != digest]
    assert not other, f"other bytes: {other[:3]}"
    left = names(folder / OUT) - quiet.names
    assert not left, f"left behind: {sorted(left)[:3]}"
    phases = [line.removeprefix(KILLED_IN) for line in children[0].words() if line.startswith(KILLED_IN)]
    return ", ".join([" ".join(map(str, sorted(codes))), *phases])


def sample_disturbance(random_: random.Random, quiet: Quiet, kind: str) -> Disturbance:
    """Sample a disturbance of a kind, at a point where the command still runs."""
    if kind == "late":
        at = random_.randrange(1, max(2, quiet.milliseconds))
    elif kind == "full":
        at = random_.randrange(0, quiet.largest + 1)
    elif kind == "disk":
        at = random_.randrange(1, 2 * quiet.pages + 2)  # claims and parts take pages, too
    else:
        at = random_.randrange(1, quiet.changes + 1)
    return Disturbance(kind, at, random_.choice(SIGNALS))


def main() -> int:
    """Run the trials from the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--trials", type=int, default=200)
    parser.add_argument("--first", type=int, default=0, help="Number of the first trial.")
    parser.add_argument("--only", type=int, help="Number of a single trial.")
    parser.add_argument("--scene", help="Name of the only command.")
    parser.add_argument("--kind", choices=sorted({*_KINDS}), help="The only disturbance.")
    given = parser.parse_args()
    kinds = _kinds() if given.kind is None else [given.kind]
    numbers = range(given.first, given.first + given.trials) if given.only is None else [given.only]
    totals: Counter[str] = Counter()
    kills: Counter[str] = Counter()
    failed = 0
    with tempfile.TemporaryDirectory(prefix="chaos-") as name:
        base = Path(name)
        load(base / "world")
        quiet: dict[str, Quiet] = {}
        for number in numbers:
            random_ = random.Random(f"{given.seed}/{number}")
            commands = scenes(base / "world")
            if given.scene is not None:
                commands = [scene for scene in commands if scene.name == given.scene]
            scene = random_.choice(commands)
            if scene.name not in quiet:
                quiet[scene.name] = undisturbed(scene, base)
            what = sample_disturbance(random_, quiet[scene.name], kinds[number % len(kinds)])
            folder = base / "work" / "here"
            totals[what.kind] += 1
            try:
                ended = trial(scene, quiet[scene.name], what, folder)
                print(f"{number}: {scene.name}, {what}: {ended}", flush=True)
                if what.kind in KILLS:
                    code, _, phase = ended.partition(", ")
                    kills[f"exit code {code}"] += 1
                    kills[phase or "at a time"] += 1
            except AssertionError as error:
                failed += 1
                print(f"{number}: {scene.name}, {what}: FAILED: {error}")
                chosen = {"SEED": given.seed, "SCENE": given.scene, "KIND": given.kind, "ONLY": number}
                words = (f"{key}={value}" for key, value in chosen.items() if value is not None)
                print("    make chaos", *words, flush=True)
            shutil.rmtree(base / "work", ignore_errors=True)
    tried, killed = sum(totals.values()), sum(totals[kind] for kind in KILLS)
    print(f"seed {given.seed}: {tried} trials, {killed} of them kills, {failed} failed: {dict(totals)}")
    print(f"kills: {dict(sorted(kills.items()))}")
    return int(failed > 0)


def _kinds() -> list[str]:
    """The kinds of disturbances that this user may make: only root mounts a disk."""
    return ["full" if kind == "disk" and os.geteuid() != 0 else kind for kind in _KINDS]


def load(world: Path) -> None:
    """Prepare the inputs in a separate process, and load the modules of the commands in this process."""
    process = os.fork()
    if process == 0:
        try:
            prepare(world)
            os._exit(0)
        except BaseException:
            import traceback

            traceback.print_exc()
        os._exit(1)
    assert os.waitpid(process, 0)[1] == 0, "the inputs cannot be made"
    # Loaded once, before the first fork; Arrow loads pandas.
    for name in (
        "cli.main",
        "experiments.runner",
        "library.evaluation",
        "library.scoring",
        "reporting.report",
        "training.fit",
    ):
        importlib.import_module(f"aptool.{name}")
    importlib.import_module("aptool.scoring.merge").SHARD_BYTES = 1 << 11  # several shards
    with contextlib.suppress(ImportError):
        importlib.import_module("pandas")


if __name__ == "__main__":
    sys.exit(main())
