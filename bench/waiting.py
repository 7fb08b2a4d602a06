"""Training speed by the wait policy of OpenMP's threads, on an idle and on a busy machine.

python -m bench.waiting [--system qa-bilstm] [--seconds 20] [--busy 0 2] [--repeats 5]

Each measurement is a separate process, as the settings are read when torch is loaded. It trains on a
synthetic collection of InsuranceQA's shape, and counts the trained pairs per second after a warm-up. Settings
alternate, so that a slower machine affects all of them. Busy processes end after each measurement.
"""

import argparse
import contextlib
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from unittest import mock

from aptool.environment import SPIN_COUNT, USER_SETTINGS
from bench.common import benchmark_parser, write_results

# libgomp's default, set explicitly, as the package sets another count.
LIBGOMP_DEFAULT = 300_000
SPIN_COUNTS = (100, 1_000, 10_000, 30_000, 100_000)
SETTINGS = {
    "libgomp's default": {"GOMP_SPINCOUNT": str(LIBGOMP_DEFAULT)},
    "passive": {"OMP_WAIT_POLICY": "PASSIVE"},
    **{f"spin {count:,}": {"GOMP_SPINCOUNT": str(count)} for count in sorted({*SPIN_COUNTS, SPIN_COUNT})},
    "one thread": {"OMP_NUM_THREADS": "1"},
}
# Busy until it is killed or its parent ends.
BUSY = "import os; parent = os.getppid()\nwhile os.getppid() == parent: pass"
WARM_UP = 3  # updates
SEED = 0


def pairs_per_second(folder: Path, system: str, seconds: float) -> float:
    """Trained pairs per second of this process, after a warm-up."""
    import torch

    from aptool.config import load_recipe
    from aptool.formats.collection import CollectionFiles
    from aptool.models.build import build_ranker
    from aptool.progress import LogLines
    from aptool.text.tokenizer import WordTokenizer
    from aptool.training import loop
    from aptool.training.data import tokenize
    from aptool.training.loop import train
    from aptool.training.texts import read_texts

    class TimeIsUpError(Exception):
        pass

    class Clock(LogLines):
        def __init__(self) -> None:
            self.times: list[float] = []
            self.pairs: list[int] = []

        def update(self, n: int) -> None:
            self.times.append(time.perf_counter())
            self.pairs.append(n)
            if self.times[-1] - self.times[min(WARM_UP, len(self.times)) - 1] >= seconds:
                raise TimeIsUpError

        def set_postfix_str(self, s: str, refresh: bool) -> None:
            pass

    recipe = load_recipe(system)
    texts = read_texts(CollectionFiles(folder), "train")
    tokenizer = WordTokenizer.learn(texts.all())
    examples = tokenize(texts, tokenizer, recipe.text)
    torch.manual_seed(SEED)
    ranker = build_ranker(recipe, len(tokenizer), recipe.vectors.dim)
    options = replace(recipe.training, epochs=1)
    clock = Clock()
    with contextlib.suppress(TimeIsUpError), mock.patch.object(loop, "progress", return_value=clock):
        train(
            ranker, examples, options, seed=SEED, evaluate=lambda ranker: {recipe.training.dev_measure: 0.0}
        )
    return sum(clock.pairs[WARM_UP:]) / (clock.times[-1] - clock.times[WARM_UP - 1])


@contextmanager
def busy_processes(number: int) -> Iterator[None]:
    """Run processes that each keep a core busy, while the block runs."""
    processes = [subprocess.Popen([sys.executable, "-c", BUSY]) for _ in range(number)]
    try:
        yield
    finally:
        for process in processes:
            process.kill()
            process.wait()


def measure(folder: Path, system: str, seconds: float, setting: dict[str, str], busy: int) -> float:
    """Trained pairs per second of a process with a setting, next to busy processes."""
    unset = {name: value for name, value in os.environ.items() if name not in USER_SETTINGS}
    arguments = [str(folder), "--system", system, "--seconds", str(seconds)]
    with busy_processes(busy):
        finished = subprocess.run(
            [sys.executable, "-m", "bench.waiting", "--measure", *arguments],
            env={**unset, **setting},
            stdout=subprocess.PIPE,
            text=True,
            check=True,
        )
    return float(finished.stdout)


def main() -> None:
    """Print the pairs per second of each setting, and the ratio to the first setting."""
    parser = benchmark_parser(__doc__, 5)
    parser.add_argument("--system", default="qa-bilstm", help="a preset (default qa-bilstm)")
    parser.add_argument("--seconds", type=float, default=20, help="seconds per measurement (default 20)")
    parser.add_argument(
        "--busy", type=int, nargs="+", default=[0, 2], help="numbers of busy processes (default 0 2)"
    )
    parser.add_argument("--scale", type=float, default=0.2, help="scale of the collection (default 0.2)")
    parser.add_argument(
        "--settings", nargs="+", choices=SETTINGS, default=list(SETTINGS), help="(default all)"
    )
    parser.add_argument("--measure", type=Path, metavar="FOLDER", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.measure is not None:
        print(pairs_per_second(options.measure, options.system, options.seconds))
        return
    from bench.synthetic import build

    rates: dict[int, dict[str, list[float]]] = {}
    with tempfile.TemporaryDirectory() as folder:
        collection = Path(folder) / "collection"
        build(collection, like="insuranceqa", scale=options.scale, seed=SEED)
        for busy in options.busy:
            rates[busy] = {name: [] for name in options.settings}
            for _ in range(options.repeats):
                for name in options.settings:
                    rate = measure(collection, options.system, options.seconds, SETTINGS[name], busy)
                    rates[busy][name].append(rate)
    for busy, by_setting in rates.items():
        print(f"{options.system}, {busy} busy processes, pairs/s: median (min to max), ratio to the first")
        default = statistics.median(by_setting[options.settings[0]])
        for name, values in by_setting.items():
            median = statistics.median(values)
            spread = f"({min(values):.1f} to {max(values):.1f})"
            print(f"  {name:18} {median:8.1f} {spread:22} {median / default:6.2f}")
    write_results(rates, options)


if __name__ == "__main__":
    main()
