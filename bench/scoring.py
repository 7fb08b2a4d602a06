"""The scorer against scoring pair by pair: throughput, ratio, and largest difference of scores.

    python -m bench.scoring [--scale 0.2] [--repeats 5] [--device cuda] [--output bench.json]

The reference and the scorer in fp32 and in bf16 are timed alternately in one run, on the shape of
InsuranceQA's test1, from token ids to scores. Figures are medians. The pairwise reference scores a sample of
the pairs, as all would take hours.
"""

import statistics
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from aptool.config import load_recipe
from aptool.models.build import build_ranker
from aptool.models.ranker import Ranker
from aptool.scoring.scorer import Precision, Scorer
from aptool.text.tokenizer import Tokens
from bench.figures import benchmark_parser, write_figures
from bench.pairwise import score_pairwise
from bench.workloads import VOCABULARY, Workload, insuranceqa

SYSTEMS = ("ap-cnn-paper", "qa-cnn-paper", "ap-bilstm-paper", "qa-bilstm-paper")
PRECISIONS: tuple[Precision, ...] = ("fp32", "bf16")
SAMPLE = 256


def measure(
    name: str,
    workload: Workload,
    repeats: int,
    device: torch.device,
    *,
    pairwise: Callable[[Ranker, Tokens, Tokens, np.ndarray, np.ndarray], np.ndarray] = score_pairwise,
    precisions: Sequence[Precision] = PRECISIONS,
) -> dict[str, Any]:
    """Times one system pair by pair, on a sample, and by the scorer in each precision."""
    torch.manual_seed(0)
    ranker = build_ranker(load_recipe(name), VOCABULARY, 100).eval().to(device)
    scorers = {kind: Scorer(ranker, device=device, precision=kind) for kind in precisions}
    chosen = np.random.default_rng(0).choice(len(workload.pair_question), SAMPLE, replace=False)
    rates: dict[str, list[float]] = {kind: [] for kind in ("pairwise", *precisions)}
    differences = dict.fromkeys(precisions, 0.0)
    for _ in range(repeats):
        begun = time.perf_counter()
        reference = pairwise(
            ranker,
            workload.questions,
            workload.answers,
            workload.pair_question[chosen],
            workload.pair_answer[chosen],
        )
        rates["pairwise"].append(SAMPLE / (time.perf_counter() - begun))
        for kind in precisions:
            begun = time.perf_counter()
            scores = scorers[kind].score(*workload)
            rates[kind].append(len(scores) / (time.perf_counter() - begun))
            differences[kind] = max(differences[kind], float(np.abs(scores[chosen] - reference).max()))
    ratios = [rate / slow for rate, slow in zip(rates["fp32"], rates["pairwise"], strict=True)]
    return {
        "system": name,
        "pairs": len(workload.pair_question),
        "pairs_per_second": {kind: statistics.median(values) for kind, values in rates.items()},
        "ratio": statistics.median(ratios),
        "ratio_min": min(ratios),
        "ratio_max": max(ratios),
        "largest_difference": differences,
    }


def run(scale: float, repeats: int, device: torch.device) -> list[dict[str, Any]]:
    """Prints a line per system; returns the figures."""
    workload = insuranceqa(scale)
    sizes = len(workload.pair_question), len(workload.questions), len(workload.answers)
    print("{:,} pairs of {:,} questions, {:,} answers".format(*sizes))
    print(f"{device}, {torch.get_num_threads()} threads, torch {torch.__version__}, medians of {repeats}\n")
    print("pairs per second  pairwise      fp32      bf16   fp32 / pairwise   difference fp32, bf16")
    rows = []
    for name in SYSTEMS:
        row = measure(name, workload, repeats, device)
        rows.append(row)
        rates, apart = row["pairs_per_second"], row["largest_difference"]
        ratio = f"{row['ratio']:.0f} ({row['ratio_min']:.0f} to {row['ratio_max']:.0f})"
        print(
            f"{name:<16} {rates['pairwise']:>9,.0f} {rates['fp32']:>9,.0f} {rates['bf16']:>9,.0f} "
            f"  {ratio:<17} {apart['fp32']:.1e}, {apart['bf16']:.1e}",
            flush=True,
        )
    return rows


def main() -> None:
    """Prints the table."""
    parser = benchmark_parser(__doc__)
    parser.add_argument("--scale", type=float, default=0.2, help="fraction of 900,000 pairs (default 0.2)")
    parser.add_argument("--repeats", type=int, default=5, help="number of repeats (default 5)")
    parser.add_argument("--device", type=torch.device, default=torch.device("cpu"), help="(default cpu)")
    parser.add_argument("--output", type=Path, help="JSON file for the figures")
    options = parser.parse_args()
    rows = run(options.scale, options.repeats, options.device)
    write_figures(rows, options.output)


if __name__ == "__main__":
    main()
