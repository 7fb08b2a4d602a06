"""Fuzz test: thousands of damaged inputs, in supervised processes.

The seed and the number of an input determine it. A failure is printed with the command that repeats it.
"""

import argparse
import contextlib
import multiprocessing
import os
import random
import shutil
import sys
import tempfile
import time
import traceback
from collections import Counter
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

SECONDS = 10  # limit of CPU time per input
MEGABYTES = 600  # limit of memory per input; with about 400 for the libraries, a command stays below 1 GB
CUDA_MEGABYTES = 350  # more memory that PyTorch takes when it is built with CUDA
MEMORY = Path("/dev/shm")  # where flushing and deleting files costs nothing
# A silent process is killed after this CPU time, or this time: a busy machine runs it slowly.
BUSY_SECONDS = 4 * SECONDS
PATIENCE = 600

for setting in ("OMP_NUM_THREADS", "POLARS_MAX_THREADS", "RAYON_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
    os.environ[setting] = "1"
os.environ["TOKENIZERS_PARALLELISM"] = "false"
for setting in [name for name in os.environ if name.startswith(("AWS_", "GOOGLE_", "AZURE_"))]:
    del os.environ[setting]  # without credentials, no request reaches an object store


def attempt(world: Any, seed: int, number: int, folder: Path) -> tuple[str, str, str]:
    """Run an input; return its surface, the exit code, and the failure or an empty text."""
    import torch
    from case import SURFACES, Case
    from surfaces import schedule
    from world import inside

    order = schedule()
    name = order[number % len(order)]
    case = Case(world, random.Random(f"{seed}/{number}"))
    began, failure = time.process_time(), ""
    printed = os.fstat(2).st_size
    before = _memory("VmRSS")
    Path("/proc/self/clear_refs").write_text("5")  # reset the peak
    try:
        with inside(folder):
            SURFACES[name][1](case)
    except BaseException as error:
        if isinstance(error, KeyboardInterrupt):
            raise
        last = traceback.extract_tb(error.__traceback__)[-1]
        failure = f"{type(error).__name__}: {str(error)[:300]} ({Path(last.filename).name}:{last.lineno})"
    seconds = time.process_time() - began
    size = _memory("VmHWM") - before
    if not failure and seconds > SECONDS:
        failure = f"took {seconds:.0f} s"
    if not failure and size > MEGABYTES + (CUDA_MEGABYTES if torch.version.cuda else 0):
        failure = f"took {size} MB"
    if not failure and os.fstat(2).st_size > printed:
        failure = "a library wrote to stderr"
    return name, case.ended, failure


def _memory(field: str) -> int:
    """A figure of the process in /proc, in MB."""
    status = Path("/proc/self/status").read_text()
    return int(next(line.split()[1] for line in status.splitlines() if line.startswith(field))) >> 10


def _cpu_seconds(process: int) -> float:
    """CPU time of a process; 0 if it has ended."""
    try:
        fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def work(base: str, seed: int, numbers: range, share: Connection) -> None:
    """Run inputs one after another; send a message before and after each."""
    import torch
    from world import World

    torch.set_num_threads(1)
    words = Path(base) / f"stderr-{os.getpid()}"
    os.dup2(os.open(words, os.O_WRONLY | os.O_CREAT | os.O_APPEND), 2)
    world = World(Path(base) / "world")
    for number in numbers:
        share.send((number, None))
        outcome = attempt(world, seed, number, Path(base) / f"work-{os.getpid()}" / "here")
        share.send((number, outcome))
    share.close()


def temporary_folder() -> tempfile.TemporaryDirectory[str]:
    """A temporary folder, in memory if the system has a gigabyte for it."""
    has_room = MEMORY.is_dir() and shutil.disk_usage(MEMORY).free > 1 << 30
    return tempfile.TemporaryDirectory(prefix="campaign-", dir=MEMORY if has_room else None)


class Campaign:
    """Inputs divided among processes. A process that dies or hangs is replaced; its input has failed."""

    def __init__(self, seed: int, inputs: range, processes: int) -> None:
        self.seed = seed
        self.inputs = inputs
        self.processes = processes
        self.totals: Counter[tuple[str, str]] = Counter()
        self.failures: list[tuple[int, str, str]] = []

    def run(self) -> None:
        from surfaces import schedule
        from world import World

        with temporary_folder() as base:
            World(Path(base) / "world")
            self._order = schedule()
            shares = {}
            for first in range(self.processes):
                numbers = self.inputs[first :: self.processes]
                self._start(base, numbers, shares)
            while shares:
                now = time.monotonic()
                for share in wait(list(shares), timeout=1):
                    self._hear(share, shares, base)
                for entry in list(shares.values()):
                    spent = _cpu_seconds(entry["process"].pid) - entry["spent"]
                    if now - entry["heard"] > PATIENCE or spent > BUSY_SECONDS:
                        entry["process"].kill()
                        entry["heard"] = now

    def _start(self, base: str, numbers: range, shares: dict[Any, Any]) -> None:
        if not numbers:
            return
        receiver, sender = multiprocessing.Pipe(duplex=False)
        context = multiprocessing.get_context("spawn")
        process = context.Process(target=work, args=(base, self.seed, numbers, sender), daemon=True)
        process.start()
        sender.close()
        shares[receiver] = {
            "process": process,
            "numbers": numbers,
            "at": None,
            "heard": time.monotonic(),
            "spent": 0.0,
        }

    def _hear(self, share: Any, shares: dict[Any, Any], base: str) -> None:
        try:
            number, outcome = share.recv()
        except EOFError:
            self._ended(shares.pop(share), shares, base)
            return
        entry = shares[share]
        entry["heard"] = time.monotonic()
        entry["spent"] = _cpu_seconds(entry["process"].pid)
        entry["at"], entry["finished"] = number, outcome is not None
        if outcome is not None:
            self._count(number, outcome)

    def _ended(self, entry: dict[str, Any], shares: dict[Any, Any], base: str) -> None:
        """Start another process for the remaining inputs of a process that has ended."""
        entry["process"].join()
        numbers, done, code = entry["numbers"], entry["at"], entry["process"].exitcode
        if done is None:  # the next process would fail in the same way
            raise SystemExit(f"a process ended with {code} before its first input")
        if not entry["finished"]:
            name = self._order[done % len(self._order)]
            self._count(done, (name, "dead", f"the process ended with {code}"))
        self._start(base, numbers[numbers.index(done) + 1 :], shares)

    def _count(self, number: int, outcome: tuple[str, str, str]) -> None:
        name, ended, failure = outcome
        self.totals[name, "failed" if failure else ended] += 1
        if (tried := sum(self.totals.values())) % 5_000 == 0:
            print(f"{tried:,} inputs, {len(self.failures)} failed", flush=True)
        if failure:
            self.failures.append((number, name, failure))
            print(f"{name}: {failure}\n    make campaign SEED={self.seed} ONLY={number}", flush=True)

    def table(self) -> str:
        """The totals by surface."""
        kinds = ("0", "1", "2", "-", "failed")
        titles = ("exit 0", "exit 1", "exit 2", "none", "failed")
        lines = [f"{'surface':<14}" + "".join(f"{title:>9}" for title in titles)]
        for name in sorted({name for name, _ in self.totals}):
            lines.append(f"{name:<14}" + "".join(f"{self.totals[name, kind]:>9,}" for kind in kinds))
        return "\n".join(lines)


def main() -> int:
    """Run a campaign from the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--inputs", type=int, default=100_000)
    parser.add_argument("--first", type=int, default=0, help="Number of the first input.")
    parser.add_argument("--only", type=int, help="The number of one input, run in this process.")
    parser.add_argument("--processes", type=int, default=2)
    given = parser.parse_args()
    if given.only is not None:
        from world import World

        with temporary_folder() as base:
            name, ended, failure = attempt(
                World(Path(base) / "world"), given.seed, given.only, Path(base) / "here"
            )
        print(f"input {given.only} of seed {given.seed}, {name}: exit {ended} {failure}")
        return int(bool(failure))
    began = time.monotonic()
    campaign = Campaign(given.seed, range(given.first, given.first + given.inputs), given.processes)
    with contextlib.suppress(KeyboardInterrupt):  # shows the totals until then
        campaign.run()
    print(campaign.table())
    minutes = (time.monotonic() - began) / 60
    tried = sum(campaign.totals.values())
    print(f"seed {given.seed}: {tried:,} inputs, {len(campaign.failures)} failed, {minutes:.1f} minutes")
    return int(bool(campaign.failures) or tried < given.inputs)


if __name__ == "__main__":
    sys.exit(main())
