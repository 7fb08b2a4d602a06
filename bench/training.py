"""Training: seconds for an epoch of InsuranceQA's shape, as recommended and by the plain recipe.

    python -m bench.training [--scale 1] [--system ap-cnn] [--updates 8] [--repeats 3] [--output FILE.json]

The collection is `aptool data synthetic --like insuranceqa`: 12,887 questions with 18,540 right answers, and
a dev split of 500,000 pairs. An epoch is every pair once and then dev, scored and evaluated. The plain recipe
is the paper's letter: for each pair 50 answers drawn from the corpus and scored with the weights of that
moment (`mining_interval = 1`), the best of them in a hinge loss. As it takes long, samples of ``--updates``
updates are measured before and after the recommended epoch, and what they take is multiplied. The recommended
recipe is run in full. Both have the same dev pass, which is timed in the full epoch.
"""

import argparse
import json
import statistics
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import torch

from aptool.config import Recipe, load_recipe
from aptool.datasets.synthetic import build
from aptool.formats.collection import Collection
from aptool.models.ranker import Ranker, build_ranker
from aptool.progress import Progress, Update, use_progress
from aptool.text.tokenizer import WordTokenizer
from aptool.training.data import IndexLists, TrainingSet, read_texts, tokenize
from aptool.training.dev import DevSet
from aptool.training.loop import train

SEED = 0
WARM_UP = 2  # updates


class Shape(NamedTuple):
    """What both recipes train on."""

    examples: TrainingSet
    dev: DevSet
    words: int


def prepared(folder: Path, scale: float) -> Shape:
    """Makes the collection and reads it; not part of what is timed."""
    path = folder / "collection"
    build(path, like="insuranceqa", scale=scale, seed=SEED)
    collection = Collection(path)
    texts = read_texts(collection, "train")
    options = load_recipe("ap-cnn").text
    tokenizer = WordTokenizer.learn(texts.all())
    dev = DevSet(collection, "dev", tokenizer, options)
    return Shape(tokenize(texts, tokenizer, options), dev, len(tokenizer))


def full_epoch(recipe: Recipe, shape: Shape) -> dict[str, float]:
    """Seconds of the first epoch of a recipe: training, of it finding negatives, and dev."""
    result = train(
        _ranker(recipe, shape),
        shape.examples,
        replace(recipe.training, epochs=1),
        seed=SEED,
        evaluate=lambda ranker: shape.dev.measures(ranker, "map"),
    )
    return dict(result.history[0]["seconds"])


def sampled_epoch(recipe: Recipe, shape: Shape, updates: int) -> float:
    """Seconds that training would take for an epoch at the rate of some updates after a warm-up."""
    size = recipe.training.minibatch
    pairs = len(shape.examples.pairs)
    some = _first_pairs(shape.examples, (WARM_UP + updates) * size)
    # Rounds are what they are in a whole epoch only if each holds one minibatch.
    options = replace(recipe.training, epochs=1, mining_interval=1)
    clock: list[float] = []
    with use_progress(_Clock(clock)):
        train(
            _ranker(recipe, shape),
            some,
            options,
            seed=SEED,
            evaluate=lambda ranker: {options.dev_measure: 0.0},
        )
    timed = len(some.pairs) - WARM_UP * size
    return (clock[-1] - clock[WARM_UP - 1]) / timed * pairs


class _Clock(Progress):
    """Notes the time of every update."""

    def __init__(self, times: list[float]) -> None:
        self._times = times

    @contextmanager
    def task(self, name: str) -> Iterator[Update]:
        """See ``Progress.task``."""
        yield lambda done, total, detail="": self._times.append(time.perf_counter())


def _ranker(recipe: Recipe, shape: Shape) -> Ranker:
    torch.manual_seed(SEED)
    return build_ranker(recipe, shape.words, 100)


def _first_pairs(examples: TrainingSet, pairs: int) -> TrainingSet:
    """The training set with right answers left to the first questions only; its answers are all there."""
    right = examples.positives
    offsets = right.offsets.clip(max=min(pairs, int(right.offsets[-1])))
    return replace(examples, positives=IndexLists(right.values[: offsets[-1]], offsets))


def measure(system: str, shape: Shape, updates: int, repeats: int) -> dict[str, Any]:
    """Times the recommended recipe once in full and the plain one by samples on either side of it."""
    recommended, plain = load_recipe(system), load_recipe(f"{system}-paper")
    samples = [sampled_epoch(plain, shape, updates) for _ in range(repeats)]
    seconds = full_epoch(recommended, shape)
    samples += [sampled_epoch(plain, shape, updates) for _ in range(repeats)]
    epoch = seconds["train"] + seconds["dev"]
    plain_epochs = [sample + seconds["dev"] for sample in samples]
    return {
        "system": system,
        "pairs": len(shape.examples.pairs),
        "questions": len(shape.examples.questions),
        "threads": torch.get_num_threads(),
        "recommended": {**seconds, "epoch": epoch},
        "plain": {
            "epoch": statistics.median(plain_epochs),
            "least": min(plain_epochs),
            "most": max(plain_epochs),
            "samples": len(plain_epochs),
            "updates_in_a_sample": updates,
        },
        "ratio": statistics.median(plain_epochs) / epoch,
    }


def main() -> None:
    """Prints the seconds of both and their ratio."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--scale", type=float, default=1.0, help="of the collection (default 1)")
    parser.add_argument("--system", default="ap-cnn", help="a recommended preset (default ap-cnn)")
    parser.add_argument("--updates", type=int, default=8, help="of the plain recipe in a sample (default 8)")
    parser.add_argument("--repeats", type=int, default=3, help="samples on either side (default 3)")
    parser.add_argument("--output", type=Path, help="write the figures as JSON")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        shape = prepared(Path(folder), options.scale)
        row = measure(options.system, shape, options.updates, options.repeats)
    print(
        f"{row['pairs']:,} pairs of {row['questions']:,} questions, {row['threads']} threads, {row['system']}"
    )
    ours, plain = row["recommended"], row["plain"]
    print(
        f"recommended  {ours['epoch']:8.1f} s an epoch, whole: {ours['train']:.1f} s of training "
        f"({ours['mining']:.1f} s of it to find negatives), {ours['dev']:.1f} s of dev"
    )
    print(
        f"plain        {plain['epoch']:8.1f} s an epoch ({plain['least']:.1f} to {plain['most']:.1f}), "
        f"from {plain['samples']} samples of {plain['updates_in_a_sample']} updates"
    )
    print(f"ratio        {row['ratio']:8.1f}")
    if options.output is not None:
        options.output.write_text(json.dumps(row, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
