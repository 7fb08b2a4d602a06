"""Throughput of the scorer, compared with scoring pair by pair.

    python -m bench.scoring [--scale 0.2] [--repeats 5] [--device cuda] [--output bench.json]

The reference and the scorer in fp32 and in bf16 are timed alternately in one run, on the shape of
InsuranceQA's test1, from token ids to scores. Times are medians. The pairwise reference scores a sample of
the pairs, as all would take hours.

"Of products" is the share of the scorer's fp32 time that its matrix products would take at the rate of one
large product. Products of recurrent layers are not counted, so the share is given only for attentive pooling.
"""

import statistics
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch.utils.flop_counter import FlopCounterMode

from aptool.models.build import build_ranker
from aptool.models.device import set_products
from aptool.models.ranker import Ranker
from aptool.scoring import attentive
from aptool.scoring.ranker_scorer import Precision, RankerScorer
from aptool.text.tokenizer import Tokens
from bench.common import benchmark_parser, write_results
from bench.pairwise import score_pairwise
from bench.workloads import VOCABULARY, Workload, insuranceqa, system_recipe

SYSTEMS = ("ap-cnn-paper", "qa-cnn-paper", "ap-bilstm-paper", "qa-bilstm-paper")
PRECISIONS: tuple[Precision, ...] = ("fp32", "bf16")
SAMPLE = 256
LARGE = 4096  # rows and columns of the large product
COUNTED = 0.01  # scale of the shape to count products


def measure(
    name: str,
    workload: Workload,
    repeats: int,
    device: torch.device,
    *,
    pairwise: Callable[[Ranker, Tokens, Tokens, np.ndarray, np.ndarray], np.ndarray] = score_pairwise,
    precisions: Sequence[Precision] = PRECISIONS,
) -> dict[str, Any]:
    """Time one system pair by pair, on a sample, and by the scorer in each precision."""
    set_products("fp32")  # the reference and the large product, not in TF32
    torch.manual_seed(0)
    ranker = build_ranker(system_recipe(name), VOCABULARY, 100).eval()
    is_attentive = isinstance(attentive.kernel_for(ranker.pooling), attentive.AttentiveKernel)
    flops = products(ranker) if is_attentive else 0.0
    ranker = ranker.to(device)
    scorers = {kind: RankerScorer(ranker, device=device, precision=kind) for kind in precisions}
    chosen = np.random.default_rng(0).choice(len(workload.pair_question), SAMPLE, replace=False)
    kinds = ("pairwise", "products", *precisions)
    rates: dict[str, list[float]] = {kind: [] for kind in kinds}
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
        if flops:
            rates["products"].append(product_rate(device) / flops)
        for kind in precisions:
            begun = time.perf_counter()
            scores = scorers[kind].score(*workload)
            rates[kind].append(len(scores) / (time.perf_counter() - begun))
            differences[kind] = max(differences[kind], float(np.abs(scores[chosen] - reference).max()))
    ratios = [rate / slow for rate, slow in zip(rates["fp32"], rates["pairwise"], strict=True)]
    shares = [rate / alone for rate, alone in zip(rates["fp32"], rates["products"], strict=False)]
    return {
        "system": name,
        "pairs": len(workload.pair_question),
        "pairs_per_second": {kind: statistics.median(values) for kind, values in rates.items() if values},
        "share_of_products": statistics.median(shares) if shares else None,
        "ratio": statistics.median(ratios),
        "ratio_min": min(ratios),
        "ratio_max": max(ratios),
        "largest_difference": differences,
    }


def products(ranker: Ranker) -> float:
    """Floating-point operations per pair of the matrix products, counted on a CPU."""
    workload = insuranceqa(COUNTED)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # the counter sees one thread only
    with FlopCounterMode(display=False) as counter:
        RankerScorer(ranker).score(*workload)
    torch.set_num_threads(threads)
    return counter.get_total_flops() / len(workload.pair_question)


def product_rate(device: torch.device) -> float:
    """Floating-point operations per second of a large fp32 product."""
    left, right = torch.randn(LARGE, LARGE, device=device), torch.randn(LARGE, LARGE, device=device)
    begun = time.perf_counter()
    float((left @ right)[0, 0])  # waits for the device
    return 2 * LARGE**3 / (time.perf_counter() - begun)


def run(scale: float, repeats: int, device: torch.device) -> list[dict[str, Any]]:
    """Print a line per system; return the results."""
    workload = insuranceqa(scale)
    sizes = len(workload.pair_question), len(workload.questions), len(workload.answers)
    print("{:,} pairs of {:,} questions, {:,} answers".format(*sizes))
    print(f"{device}, {torch.get_num_threads()} threads, torch {torch.__version__}, medians of {repeats}\n")
    columns = "pairwise      fp32      bf16   fp32 / pairwise   of products   difference fp32, bf16"
    print(f"pairs per second  {columns}")
    rows = []
    for name in SYSTEMS:
        row = measure(name, workload, repeats, device)
        rows.append(row)
        rates, apart = row["pairs_per_second"], row["largest_difference"]
        ratio = f"{row['ratio']:.0f} ({row['ratio_min']:.0f} to {row['ratio_max']:.0f})"
        share = "" if row["share_of_products"] is None else f"{row['share_of_products']:.0%}"
        print(
            f"{name:<16} {rates['pairwise']:>9,.0f} {rates['fp32']:>9,.0f} {rates['bf16']:>9,.0f} "
            f"  {ratio:<17} {share:<13} {apart['fp32']:.1e}, {apart['bf16']:.1e}",
            flush=True,
        )
        if "fp32 batched" in rates:
            print(f"{'  batched':<16} {'':>9} {rates['fp32 batched']:>9,.0f} {rates['bf16 batched']:>9,.0f}")
    return rows


def main() -> None:
    """Print the table."""
    parser = benchmark_parser(__doc__, 5)
    parser.add_argument("--scale", type=float, default=0.2, help="fraction of 900,000 pairs (default 0.2)")
    parser.add_argument("--device", type=torch.device, default=torch.device("cpu"), help="(default cpu)")
    options = parser.parse_args()
    rows = run(options.scale, options.repeats, options.device)
    write_results(rows, options)


if __name__ == "__main__":
    main()
