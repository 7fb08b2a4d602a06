"""Seconds per epoch on a GPU, on the shape of InsuranceQA; needs only torch and numpy.

    python -m bench.gpu_training [--scale 1] [--device cuda] [--repeats 3]

An epoch trains on 18,540 pairs of 12,887 questions, then scores 500,000 dev pairs, like ``bench.training``
but without reading files and evaluating the run. The first epoch is a warm-up.
"""

import statistics
from dataclasses import replace

import numpy as np
import torch

from aptool.config import load_recipe
from aptool.models.build import build_ranker
from aptool.models.ranker import Ranker
from aptool.scoring.ranker_scorer import RankerScorer
from aptool.training.data import IndexLists, TrainingSet
from aptool.training.loop import train
from bench.common import benchmark_parser
from bench.workloads import VOCABULARY, insuranceqa, texts

QUESTIONS, PAIRS = 12_887, 18_540
SYSTEMS = ("ap-cnn", "qa-cnn", "ap-bilstm", "qa-bilstm")
DEV_SHARE = 5 / 9  # 500,000 of test1's 900,000 pairs


def examples(scale: float, seed: int = 0) -> TrainingSet:
    """Random questions and answers, with the number of relevant pairs of InsuranceQA V1."""
    generator = np.random.default_rng(seed)
    count, answers = round(QUESTIONS * scale), max(500, round(24_981 * scale))
    more = generator.integers(count, size=round((PAIRS - QUESTIONS) * scale))
    owner = np.concatenate([np.arange(count), more])
    return TrainingSet(
        questions=texts(count, 7, 0.35, generator),
        answers=texts(answers, 95, 0.6, generator),
        positives=IndexLists.of(owner, generator.integers(answers, size=len(owner)), count),
        pool_negatives=IndexLists.of(np.empty(0, dtype=np.int64), np.empty(0, dtype=np.int64), count),
    )


def measure(system: str, scale: float, repeats: int, device: torch.device) -> dict[str, float]:
    """Median seconds per epoch of training, of mining (a part of training) and of dev scoring."""
    recipe = load_recipe(system, ["training.negatives=corpus"])
    torch.manual_seed(0)
    ranker = build_ranker(recipe, VOCABULARY, 100).to(device)
    dev = insuranceqa(DEV_SHARE * scale, seed=1)

    def evaluate(ranker: Ranker) -> dict[str, float]:
        return {recipe.training.dev_measure: float(RankerScorer(ranker, device=device).score(*dev).mean())}

    options = replace(recipe.training, epochs=repeats + 1, patience=0)
    result = train(ranker, examples(scale), options, seed=0, evaluate=evaluate)
    assert result is not None
    seconds = [entry["seconds"] for entry in result.history[1:]]
    return {part: statistics.median(entry[part] for entry in seconds) for part in ("train", "mining", "dev")}


def run(scale: float, repeats: int, device: torch.device) -> list[dict[str, object]]:
    """Print a line per system; return the results."""
    print(f"\nseconds per epoch, {device}, torch {torch.__version__}, medians of {repeats}")
    rows: list[dict[str, object]] = []
    for system in SYSTEMS:
        parts = measure(system, scale, repeats, device)
        rows.append({"system": system, **parts, "epoch": parts["train"] + parts["dev"]})
        print(
            f"{system:<12} {parts['train'] + parts['dev']:8.2f}: {parts['train']:.2f} of training "
            f"({parts['mining']:.2f} of it mining), {parts['dev']:.2f} of dev",
            flush=True,
        )
    return rows


def main() -> None:
    """Print the table."""
    parser = benchmark_parser(__doc__)
    parser.add_argument("--scale", type=float, default=1.0, help="scale of the shape (default 1)")
    parser.add_argument("--repeats", type=int, default=3, help="epochs that are measured (default 3)")
    parser.add_argument("--device", type=torch.device, default=torch.device("cuda"), help="(default cuda)")
    options = parser.parse_args()
    run(options.scale, options.repeats, options.device)


if __name__ == "__main__":
    main()
