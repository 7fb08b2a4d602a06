"""Seconds per training epoch on the shape of InsuranceQA, with the recommended and with the plain recipe.

    python -m bench.training [--scale 1] [--systems ap-cnn] [--updates 8] [--repeats 3] [--device cuda]
        [--set training.deterministic=true] [--record FILE]

Texts are random token ids: 12,887 questions with 18,540 relevant answers. An epoch trains on every pair once,
then scores 500,000 dev pairs. Of ``--repeats`` epochs after one warm-up, the median is printed.

The plain recipe is literally the paper's: per pair it samples 50 answers from the corpus, scores them with
the current weights (`mining_interval = 1`), and uses the best in a hinge loss. As it is slow, its epoch is
extrapolated from ``--updates`` updates before and after the epochs of the recommended recipe, and its dev
pass is theirs. ``--updates 0`` leaves the plain recipe out.
"""

import argparse
import statistics
import time
from dataclasses import replace
from types import SimpleNamespace
from typing import Any
from unittest import mock

import numpy as np
import torch
from typing_extensions import override

from aptool.config import Recipe, load_recipe
from aptool.models.build import Ranker, build_ranker
from aptool.progress import Bar
from aptool.scoring.ranker_scorer import RankerScorer
from aptool.training import loop
from aptool.training.data import IndexLists, TrainingSet
from aptool.training.loop import Training
from bench.common import benchmark_parser, record, setting
from bench.workloads import VOCABULARY, insuranceqa, system_recipe, texts

QUESTIONS, PAIRS = 12_887, 18_540
DEV_SHARE = 5 / 9  # 500,000 of test1's 900,000 pairs
WARM_UP = 2  # updates
SEED = 0


def examples(scale: float) -> TrainingSet:
    """Random questions and answers, with the number of relevant pairs of InsuranceQA V1."""
    generator = np.random.default_rng(SEED)
    count, answers = round(QUESTIONS * scale), max(500, round(24_981 * scale))
    more = generator.integers(count, size=round((PAIRS - QUESTIONS) * scale))
    owner = np.concatenate([np.arange(count), more])
    return TrainingSet(
        questions=texts(count, 7, 0.35, generator),
        answers=texts(answers, 95, 0.6, generator),
        positives=IndexLists.of(owner, generator.integers(answers, size=len(owner)), count),
        pool_negatives=IndexLists.of(np.empty(0, dtype=np.int64), np.empty(0, dtype=np.int64), count),
    )


def whole_epochs(recipe: Recipe, data: TrainingSet, options: argparse.Namespace) -> dict[str, float]:
    """Median seconds of training, of mining (a part of training) and of the dev pass."""
    dev = insuranceqa(DEV_SHARE * options.scale, seed=1)

    def measures(ranker: Ranker, measure: str, group: object) -> dict[str, float]:
        return {measure: float(RankerScorer(ranker, device=options.device).score(*dev).mean())}

    epochs = replace(recipe.training, epochs=options.repeats + 1, patience=0)
    dev_set: Any = SimpleNamespace(measures=measures)
    training = Training(new_ranker(recipe, options), data, dev_set, epochs, SEED)
    list(training.states())
    seconds = [entry["seconds"] for entry in training.history[1:]]
    return {part: statistics.median(entry[part] for entry in seconds) for part in ("train", "mining", "dev")}


def sampled_epoch(recipe: Recipe, data: TrainingSet, options: argparse.Namespace) -> float:
    """Seconds of training in an epoch, extrapolated from some updates after a warm-up."""
    size = recipe.training.minibatch
    some = first_pairs(data, (WARM_UP + options.updates) * size)
    # With one minibatch per mining round, rounds are as large as in a full epoch.
    epoch = replace(recipe.training, epochs=1, mining_interval=1)
    clock: list[float] = []
    with mock.patch.object(loop, "progress", return_value=_Clock(clock)):
        dev: Any = SimpleNamespace(measures=lambda *given: {epoch.dev_measure: 0.0})
        list(Training(new_ranker(recipe, options), some, dev, epoch, SEED).states())
    timed = len(some.pairs) - WARM_UP * size
    return (clock[-1] - clock[WARM_UP - 1]) / timed * len(data.pairs)


class _Clock(Bar):
    """Record the time of every update."""

    def __init__(self, times: list[float]) -> None:
        self._times = times

    @override
    def update(self, n: int) -> None:
        self._times.append(time.perf_counter())

    @override
    def set_postfix_str(self, s: str, refresh: bool) -> None:
        pass


def new_ranker(recipe: Recipe, options: argparse.Namespace) -> Ranker:
    """A ranker with the initial weights of the recipe."""
    torch.manual_seed(SEED)
    return build_ranker(recipe, VOCABULARY, 100).to(options.device)


def first_pairs(data: TrainingSet, pairs: int) -> TrainingSet:
    """The training set with about its first ``pairs`` pairs, and all answers."""
    positives = data.positives
    offsets = positives.offsets.clip(max=min(pairs, int(positives.offsets[-1])))
    return replace(data, positives=IndexLists(positives.values[: offsets[-1]], offsets))


def measure(system: str, data: TrainingSet, options: argparse.Namespace) -> dict[str, Any]:
    """Time the recommended recipe of a system, and samples of the plain one around it; print both."""
    recommended = load_recipe(system, ["training.negatives=corpus", *options.set])
    plain, samples = system_recipe(f"{system}-paper"), []
    if options.updates:
        samples.append(sampled_epoch(plain, data, options))
    seconds = whole_epochs(recommended, data, options)
    if options.updates:
        samples.append(sampled_epoch(plain, data, options))
    epoch = seconds["train"] + seconds["dev"]
    row: dict[str, Any] = {"system": system, "pairs": len(data.pairs), **seconds, "epoch": epoch}
    if samples:
        row["plain"] = statistics.mean(samples) + seconds["dev"]
        row["ratio"] = row["plain"] / epoch
    print(
        f"{system:<10} {epoch:8.2f} {seconds['train']:9.2f} {seconds['mining']:7.2f} {seconds['dev']:6.2f} "
        f"{row.get('plain', float('nan')):8.1f} {row.get('ratio', float('nan')):6.1f}",
        flush=True,
    )
    return row


def main() -> None:
    """Print a line per system."""
    parser = benchmark_parser(__doc__, 3, device=True)
    parser.add_argument("--scale", type=float, default=1.0, help="scale of the shape (default 1)")
    parser.add_argument("--systems", nargs="+", default=["ap-cnn"], help="presets (default ap-cnn)")
    parser.add_argument("--set", action="append", default=[], help="option of the recommended recipes")
    parser.add_argument("--updates", type=int, default=8, help="updates of a sample (default 8)")
    options = parser.parse_args()
    print(setting(options))
    print("system        epoch, s, of training, mining,   dev    plain  ratio")
    data = examples(options.scale)
    record([measure(system, data, options) for system in options.systems], options.record)


if __name__ == "__main__":
    main()
