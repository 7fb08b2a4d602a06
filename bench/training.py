"""Seconds per training epoch on the shape of InsuranceQA, with the recommended and with the plain recipe.

    python -m bench.training [--scale 1 | --collection FOLDER] [--system ap-cnn] [--updates 8] [--repeats 3]
        [--set encoder.precision=bf16] [--output FILE.json]

The collection is that of `python -m bench.synthetic --like insuranceqa`: 12,887 questions, 18,540 relevant
answers and a dev split of 500,000 pairs. An epoch trains on every pair once, then scores and evaluates dev.
The plain recipe is literally the paper's: per pair it samples 50 answers from the corpus, scores them with
the current weights (`mining_interval = 1`), and uses the best in a hinge loss. As it is slow, its epoch is
extrapolated from ``--updates`` updates before and after a full epoch of the recommended recipe. The dev pass
is the same for both recipes and is timed in the full epoch. ``--repeats 0`` leaves the plain recipe out.
"""

import statistics
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple
from unittest import mock

import torch
from typing_extensions import override

from aptool.config import Recipe, load_recipe
from aptool.data.collection import Collection
from aptool.models.build import build_ranker
from aptool.models.ranker import Ranker
from aptool.progress import LogLines
from aptool.text.tokenizer import WordTokenizer
from aptool.training import loop
from aptool.training.data import IndexLists, TrainingSet, tokenize
from aptool.training.dev import DevSet
from aptool.training.loop import train
from aptool.training.texts import read_training_texts
from bench.common import benchmark_parser, write_results
from bench.synthetic import build
from bench.workloads import system_recipe

SEED = 0
WARM_UP = 2  # updates


class Inputs(NamedTuple):
    """Training and dev data."""

    examples: TrainingSet
    dev: DevSet
    words: int


def prepare(folder: Path, recipe: Recipe) -> Inputs:
    """Read a collection."""
    collection = Collection(folder)
    texts = read_training_texts(collection, recipe)
    tokenizer = WordTokenizer.learn(texts.all())
    dev = DevSet(collection, "dev", tokenizer, recipe.text)
    return Inputs(tokenize(texts, tokenizer, recipe.text), dev, len(tokenizer))


def full_epoch(recipe: Recipe, inputs: Inputs) -> dict[str, float]:
    """Seconds of the first epoch of a recipe: training, mining (a part of training), dev, and CPU time."""
    started = time.process_time()
    result = train(
        _ranker(recipe, inputs),
        inputs.examples,
        replace(recipe.training, epochs=1),
        seed=SEED,
        evaluate=lambda ranker: inputs.dev.measures(ranker, "MAP"),
    )
    assert result is not None
    return {**result.history[0]["seconds"], "cpu": time.process_time() - started}


def sampled_epoch(recipe: Recipe, inputs: Inputs, updates: int) -> float:
    """Seconds of training in an epoch, extrapolated from some updates after a warm-up."""
    size = recipe.training.minibatch
    pairs = len(inputs.examples.pairs)
    some = _first_pairs(inputs.examples, (WARM_UP + updates) * size)
    # With one minibatch per mining round, rounds are as large as in a full epoch.
    options = replace(recipe.training, epochs=1, mining_interval=1)
    clock: list[float] = []
    with mock.patch.object(loop, "progress", return_value=_Clock(clock)):
        train(
            _ranker(recipe, inputs),
            some,
            options,
            seed=SEED,
            evaluate=lambda ranker: {options.dev_measure: 0.0},
        )
    timed = len(some.pairs) - WARM_UP * size
    return (clock[-1] - clock[WARM_UP - 1]) / timed * pairs


class _Clock(LogLines):
    """Record the time of every update."""

    def __init__(self, times: list[float]) -> None:
        self._times = times

    @override
    def update(self, n: int) -> None:
        self._times.append(time.perf_counter())

    @override
    def set_postfix_str(self, s: str, refresh: bool) -> None:
        pass


def _ranker(recipe: Recipe, inputs: Inputs) -> Ranker:
    torch.manual_seed(SEED)
    return build_ranker(recipe, inputs.words, 100)


def _first_pairs(examples: TrainingSet, pairs: int) -> TrainingSet:
    """The training set with about its first ``pairs`` pairs, and all answers."""
    positives = examples.positives
    offsets = positives.offsets.clip(max=min(pairs, int(positives.offsets[-1])))
    return replace(examples, positives=IndexLists(positives.values[: offsets[-1]], offsets))


def measure(system: str, recommended: Recipe, inputs: Inputs, updates: int, repeats: int) -> dict[str, Any]:
    """Time one full epoch of the recommended recipe, and samples of the plain one before and after it."""
    plain = system_recipe(f"{system}-paper") if repeats else recommended
    samples = [sampled_epoch(plain, inputs, updates) for _ in range(repeats)]
    seconds = full_epoch(recommended, inputs)
    samples += [sampled_epoch(plain, inputs, updates) for _ in range(repeats)]
    epoch = seconds["train"] + seconds["dev"]
    row: dict[str, Any] = {
        "system": system,
        "pairs": len(inputs.examples.pairs),
        "questions": len(inputs.examples.questions),
        "threads": torch.get_num_threads(),
        "recommended": {**seconds, "epoch": epoch},
    }
    if not samples:
        return row
    plain_epochs = [sample + seconds["dev"] for sample in samples]
    row["plain"] = {
        "epoch": statistics.median(plain_epochs),
        "least": min(plain_epochs),
        "most": max(plain_epochs),
        "samples": len(plain_epochs),
        "updates_in_a_sample": updates,
    }
    row["ratio"] = row["plain"]["epoch"] / epoch
    return row


def main() -> None:
    """Print the seconds of both recipes and their ratio."""
    parser = benchmark_parser(__doc__, 3)
    parser.add_argument("--scale", type=float, default=1.0, help="scale of the collection (default 1)")
    parser.add_argument(
        "--system", default="ap-cnn", help="preset of the recommended recipe (default ap-cnn)"
    )
    parser.add_argument(
        "--set", action="append", default=[], help="option of the recommended recipe; may be repeated"
    )
    parser.add_argument(
        "--updates", type=int, default=8, help="updates in a sample of the plain recipe (default 8)"
    )
    parser.add_argument("--collection", type=Path, help="collection with train and dev (default: generated)")
    options = parser.parse_args()
    recipe = load_recipe(options.system, options.set)
    with tempfile.TemporaryDirectory() as temporary:
        folder = options.collection
        if folder is None:
            folder = Path(temporary) / "collection"
            build(folder, like="insuranceqa", scale=options.scale, seed=SEED)
        inputs = prepare(folder, recipe)
        row = measure(options.system, recipe, inputs, options.updates, options.repeats)
    print(
        f"{row['pairs']:,} pairs of {row['questions']:,} questions, {row['threads']} threads, {row['system']}"
    )
    ours = row["recommended"]
    print(
        f"recommended  {ours['epoch']:8.1f} s per epoch, measured in full: {ours['train']:.1f} s of training "
        f"({ours['mining']:.1f} s of it mining), {ours['dev']:.1f} s of dev; {ours['cpu']:.1f} s of CPU time"
    )
    if "plain" in row:
        plain = row["plain"]
        print(
            f"plain        {plain['epoch']:8.1f} s per epoch ({plain['least']:.1f} to {plain['most']:.1f}), "
            f"from {plain['samples']} samples of {plain['updates_in_a_sample']} updates"
        )
        print(f"ratio        {row['ratio']:8.1f}")
    write_results(row, options)


if __name__ == "__main__":
    main()
