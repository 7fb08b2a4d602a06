"""The scorer against scoring pair by pair: pairs per second, ratio, and how far the scores are apart.

    python -m bench.scoring [--scale 0.2] [--repeats 5] [--output bench.json]

Both are measured in one run, in turn, on the shape of InsuranceQA's test1; figures are medians. The pairwise
reference scores a sample of the pairs, as it would take hours for all.
"""

import argparse
import json
import statistics
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch

from aptool.config import load_recipe
from aptool.models.ranker import Ranker, build_ranker
from aptool.scoring.scorer import Scorer
from bench.pairwise import score_pairwise
from bench.shapes import VOCABULARY, Shape, insuranceqa

SYSTEMS = ("ap-cnn-paper", "qa-cnn-paper", "ap-bilstm-paper", "qa-bilstm-paper")
SAMPLE = 256


def measure(name: str, shape: Shape, repeats: int) -> dict[str, Any]:
    """Times one system both ways."""
    torch.manual_seed(0)
    ranker = build_ranker(load_recipe(name), VOCABULARY, 100).eval()
    chosen = np.random.default_rng(0).choice(len(shape.pair_question), SAMPLE, replace=False)
    pairwise_rates, rates = [], []
    difference = 0.0
    for _ in range(repeats):
        seconds, reference = _timed_pairwise(ranker, shape, chosen)
        pairwise_rates.append(SAMPLE / seconds)
        begun = time.perf_counter()
        scores = Scorer(ranker).score(*shape)
        rates.append(len(scores) / (time.perf_counter() - begun))
        difference = max(difference, float(np.abs(scores[chosen] - reference).max()))
    ratios = [rate / pairwise for rate, pairwise in zip(rates, pairwise_rates, strict=True)]
    return {
        "system": name,
        "pairs": len(shape.pair_question),
        "pairwise_pairs_per_second": statistics.median(pairwise_rates),
        "pairs_per_second": statistics.median(rates),
        "ratio": statistics.median(ratios),
        "ratio_min": min(ratios),
        "ratio_max": max(ratios),
        "largest_difference": difference,
    }


def _timed_pairwise(ranker: Ranker, shape: Shape, chosen: np.ndarray) -> tuple[float, np.ndarray]:
    begun = time.perf_counter()
    questions, answers = shape.pair_question[chosen], shape.pair_answer[chosen]
    scores = score_pairwise(ranker, shape.questions, shape.answers, questions, answers)
    return time.perf_counter() - begun, scores


def main() -> None:
    """Prints a line a system."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--scale", type=float, default=0.2, help="share of 900,000 pairs (default 0.2)")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--output", type=Path, help="write the figures as JSON")
    options = parser.parse_args()
    shape = insuranceqa(options.scale)
    sizes = len(shape.pair_question), len(shape.questions), len(shape.answers)
    print("{:,} pairs of {:,} questions, {:,} answers".format(*sizes))
    print(f"{torch.get_num_threads()} threads, torch {torch.__version__}, medians of {options.repeats}\n")
    print("system           pairwise/s   scorer/s   ratio  (min to max)     difference")
    rows = []
    for name in SYSTEMS:
        row = measure(name, shape, options.repeats)
        rows.append(row)
        spread = f"({row['ratio_min']:.0f} to {row['ratio_max']:.0f})"
        print(
            f"{name:<16} {row['pairwise_pairs_per_second']:>10,.0f} {row['pairs_per_second']:>10,.0f} "
            f"{row['ratio']:>7.0f}  {spread:<16} {row['largest_difference']:>10.1e}",
            flush=True,
        )
    if options.output is not None:
        options.output.write_text(json.dumps(rows, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
