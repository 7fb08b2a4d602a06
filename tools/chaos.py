"""Kill commands at random moments and repeat them: ``make chaos [TRIALS=60] [SEED=1] [ONLY=NUMBER]``.

A trial starts `train`, `score` or `matrix`, kills it one to three times by SIGKILL or SIGTERM, and repeats
the same command until it ends. The outputs must have the bytes of an uninterrupted run, a file under its
final name must never be incomplete, and files of the user in the output folder must stay. The seed and the
number of a trial determine the command, the signals and their times.
"""

import argparse
import hashlib
import importlib
import json
import os
import random
import select
import signal
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

OUTPUT = "out"  # output folder, in the working folder of a command
TIMEOUT = 180.0  # seconds of one command
SIGNALS = (signal.SIGKILL, signal.SIGTERM)
EXIT_CODES = (0, 143, -signal.SIGKILL, -signal.SIGTERM)
FOREIGN = "notes.txt"  # a file of the user, in each folder of the output
# Loaded once, before the first fork.
MODULES = ("aptool.cli.main", "aptool.training.fit", "aptool.experiments.runner")
# Files and entries of JSON with dates or durations.
DATED = (".run.json", "table.md")
DURATIONS = {"seconds", "train_seconds", "score_seconds", "pairs_per_second"}
MATRIX = """
measures = ["MAP", "P@1"]
[collections.tiny]
path = "{collection}"
split = "test"
[systems.random]
baseline = "random"
[systems.bm25]
baseline = "bm25"
[systems.fused]
fuse = ["random", "bm25"]
[systems.ap-cnn]
preset = "ap-cnn"
set = {options}
[[rows]]
collection = "tiny"
systems = ["random", "bm25", "fused", "ap-cnn"]
seeds = [1, 2]
"""


class Ended(NamedTuple):
    """Exit code of a process (a negative signal), its printed lines, and its duration."""

    code: int
    lines: list[str]
    seconds: float


class Quiet(NamedTuple):
    """The result of an uninterrupted command: hashes by path in the output folder, and duration."""

    hashes: dict[str, str]
    seconds: float


def sample_kills(seed: int, number: int) -> list[tuple[signal.Signals, float]]:
    """Sample the kills of a trial: signals, and moments as shares of the uninterrupted duration."""
    generator = random.Random(f"{seed}/{number}")
    return [(generator.choice(SIGNALS), generator.random()) for _ in range(generator.randint(1, 3))]


def commands(inputs: Path) -> dict[str, list[str]]:
    """The arguments of each command, with the files of ``write_inputs``."""
    from tiny import options

    settings = [word for option in options("ap-cnn") for word in ("--set", option)]
    score = ["score", str(inputs / "test.parquet"), "--model", str(inputs / "model"), "--output"]
    train = ["train", str(inputs / "collection"), *settings, "--seed", "3", "--output"]
    return {
        "train": [*train, f"{OUTPUT}/model"],
        "score": [*score, f"{OUTPUT}/test.run"],
        "score to Parquet": [*score, f"{OUTPUT}/test.parquet/"],
        "matrix": ["matrix", str(inputs / "matrix.toml"), "--output", f"{OUTPUT}/matrix"],
    }


def write_inputs(inputs: Path) -> None:
    """Write a collection, pools in many row groups, a model, and the table of a matrix."""
    from tiny import labelled_pools, options, recipe, row, write_pools

    from aptool.data.collection import Collection
    from aptool.data.writing import write_collection
    from aptool.training.fit import fit

    splits = {
        split: labelled_pools(split, size) for split, size in (("train", 40), ("dev", 20), ("test", 20))
    }
    write_collection(inputs / "collection", splits, name="tiny", source="made for tests")
    pools = [
        row(pool.question_id, pool.question, list(zip(pool.answer_ids, pool.texts, strict=True)))
        for pool in labelled_pools("test", 200)
    ]
    write_pools(inputs / "test.parquet", *(pools[start : start + 5] for start in range(0, 200, 5)))
    fit(Collection(inputs / "collection"), recipe("ap-cnn"), inputs / "model", seed=1)
    table = MATRIX.format(collection=inputs / "collection", options=[*options("ap-cnn")])
    (inputs / "matrix.toml").write_text(table, encoding="utf-8")


def aptool(arguments: list[str]) -> None:
    """Run a command in this process."""
    from aptool.__main__ import main

    sys.argv = ["aptool", *arguments]
    main()


def forked(
    function: Callable[[], None], folder: Path, kill: tuple[signal.Signals, float] | None = None
) -> Ended:
    """Call a function in a forked process; ``kill`` is a signal and the seconds before it."""
    start = time.monotonic()
    output, writable = os.pipe()
    process = os.fork()
    if process == 0:
        os.dup2(writable, 1)
        os.dup2(writable, 2)
        os.close(writable)
        os.chdir(folder)
        code = exit_code(function)
        sys.stdout.flush()
        os._exit(code)
    os.close(writable)
    text, pending = b"", [*([kill] if kill else []), (signal.SIGKILL, TIMEOUT)]
    while True:
        number, seconds = pending[0]
        wait = max(0.0, start + seconds - time.monotonic())
        if not select.select([output], [], [], wait)[0]:
            os.kill(process, number)
            pending = pending[1:] or pending
        elif piece := os.read(output, 1 << 16):
            text += piece
        else:
            break
    os.close(output)
    code = os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])
    seconds = time.monotonic() - start
    assert seconds < TIMEOUT, f"no end after {TIMEOUT:g} s"
    return Ended(code, text.decode(errors="replace").splitlines(), seconds)


def exit_code(function: Callable[[], None]) -> int:
    """Call a function; return the exit code of its process."""
    try:
        function()
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:
        traceback.print_exc()
        return 70
    return 0


def is_visible(path: Path, folder: Path) -> bool:
    """Whether no part of a path in a folder begins with a dot."""
    return not any(part.startswith(".") for part in path.relative_to(folder).parts)


def hashes(folder: Path) -> dict[str, str]:
    """SHA-256 of each visible file in a folder and its subfolders, without dates and durations."""
    files = (path for path in sorted(folder.rglob("*")) if path.is_file() and path.name != FOREIGN)
    return {
        str(path.relative_to(folder)): hashlib.sha256(comparable(path)).hexdigest()
        for path in files
        if is_visible(path, folder) and not path.name.endswith(DATED)
    }


def comparable(path: Path) -> bytes:
    """The bytes of a file; of JSON, without durations."""
    data = path.read_bytes()
    if path.suffix not in (".json", ".jsonl"):
        return data
    lines = data.splitlines() if path.suffix == ".jsonl" else [data]
    try:
        return b"\n".join(json.dumps(without_durations(json.loads(line))).encode() for line in lines)
    except ValueError:  # incomplete
        return data


def without_durations(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: without_durations(entry) for key, entry in value.items() if key not in DURATIONS}
    return [without_durations(entry) for entry in value] if isinstance(value, list) else value


def run_trial(
    command: Callable[[], None], kills: list[tuple[signal.Signals, float]], quiet: Quiet, folder: Path
) -> list[int]:
    """Run a trial; return the exit codes of its command.

    An AssertionError says which file is incomplete, wrong, left behind or lost.
    """
    (folder / OUTPUT).mkdir(parents=True)
    foreign = write_foreign(folder / OUTPUT)
    codes = []
    for number, share in kills:
        ended = forked(command, folder, (number, share * quiet.seconds))
        codes.append(ended.code)
        assert ended.code in EXIT_CODES, f"exit code {ended.code}: {ended.lines[-3:]}"
        check(ended, quiet, folder / OUTPUT, foreign)
        foreign |= write_foreign(folder / OUTPUT)
    ended = forked(command, folder)
    codes.append(ended.code)
    assert ended.code == 0, f"does not recover: {ended.lines[-3:]}"
    check(ended, quiet, folder / OUTPUT, foreign)
    result = hashes(folder / OUTPUT)
    assert result.keys() == quiet.hashes.keys(), f"other files: {sorted(result.keys() ^ quiet.hashes.keys())}"
    return codes


def write_foreign(output: Path) -> set[Path]:
    """Write a file of the user into each visible folder, except parts of a table, which are alone."""
    folders = [path for path in (output, *output.rglob("*")) if path.is_dir() and is_visible(path, output)]
    files = {folder / FOREIGN for folder in folders if folder.suffix != ".parquet"}
    for file in files:
        file.write_text("keep", encoding="utf-8")
    return files


def check(ended: Ended, quiet: Quiet, output: Path, foreign: set[Path]) -> None:
    """Check the folder of outputs after a command."""
    assert not any("Traceback" in line for line in ended.lines), ended.lines[-3:]
    written = hashes(output)
    wrong = [name for name, value in quiet.hashes.items() if written.get(name, value) != value]
    assert not wrong, f"other bytes: {wrong[:3]}"
    lost = [str(path.relative_to(output)) for path in sorted(foreign) if not path.exists()]
    assert not lost, f"lost files of the user: {lost[:3]}"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--trials", type=int, default=60)
    parser.add_argument("--only", type=int, help="number of a single trial, from 0")
    parser.add_argument("--record", type=Path, help="JSON file for the result: docs/results/chaos.json")
    options = parser.parse_args()
    for name in MODULES:
        importlib.import_module(name)
    numbers = range(options.trials) if options.only is None else [options.only]
    ends = Counter[tuple[str, int]]()  # by command and exit code
    trials, failed = Counter[str](), Counter[str]()
    with tempfile.TemporaryDirectory(prefix="chaos-") as temporary:
        base = Path(temporary)
        (base / "inputs").mkdir()
        made = forked(partial(write_inputs, base / "inputs"), base)
        assert made.code == 0, made.lines
        scenes = commands(base / "inputs")
        quiet: dict[str, Quiet] = {}
        for number in numbers:
            name = list(scenes)[number % len(scenes)]
            command = partial(aptool, scenes[name])
            if name not in quiet:
                (base / name).mkdir()
                ended = forked(command, base / name)
                assert ended.code == 0, ended.lines
                quiet[name] = Quiet(hashes(base / name / OUTPUT), ended.seconds)
            trials[name] += 1
            try:
                kills = sample_kills(options.seed, number)
                codes = run_trial(command, kills, quiet[name], base / str(number))
                ends.update((name, code) for code in codes[:-1])
                print(f"{number}: {name}: exit codes {' '.join(map(str, codes))}", flush=True)
            except AssertionError as error:
                failed[name] += 1
                print(f"{number}: {name}: FAILED: {error}")
                print(f"    make chaos SEED={options.seed} ONLY={number}", flush=True)
    columns = ["command", "trials", "SIGKILL", "SIGTERM", "ended before the signal", "failed trials"]
    rows = []
    for name in trials:
        by_signal = [ends[name, -signal.SIGKILL], ends[name, 143] + ends[name, -signal.SIGTERM]]
        rows.append([f"`{name}`", trials[name], *by_signal, ends[name, 0], failed[name]])
    print(*(" | ".join(map(str, row)) for row in (columns, *rows)), sep="\n")
    if options.record:
        from bench.record import result_document, write_result

        tables = {"kills": {"columns": columns, "rows": rows, "left": 1}}
        line = f"make chaos SEED={options.seed} TRIALS={options.trials}"
        write_result(options.record, result_document("Commands killed and repeated", line, tables=tables))
    sys.exit(bool(failed))


if __name__ == "__main__":
    main()
