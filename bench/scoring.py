"""Pairs per second of the scorer, from token ids to scores, compared with scoring pair by pair.

    python -m bench.scoring [--shape wikiqa] [--scale 0.2] [--repeats 5] [--device cuda] [--record FILE]
    python -m bench.scoring --systems others [...]
    python -m bench.scoring --systems transformers [--network FOLDER] [...]

``--systems`` chooses what is scored:

- paper: the paper's systems. The reference (`bench.pairwise`) encodes both texts of each pair of a sample, as
  all pairs would take hours. It and the scorer in fp32 and in bf16 are timed in turn.
- others: the systems that the paper compares with. The reference is the forward pass of each system, in
  batches of pairs; the scorer runs in fp32, on a CPU.
- transformers: the poolings over one transformer, which only the scorer scores; on answers that
  pools share, and on WikiQA's dev split, whose pools do not. Without ``--network``,
  it has MiniLM's size and random weights, as the speed does not depend on them.
  ``python -m bench.rival`` compares with another library.

The shape is that of InsuranceQA's test1, of which ``--scale`` is the fraction (default 0.2; transformers
0.02), or with ``--shape wikiqa`` that of WikiQA's dev split, times ``--scale`` (default 16). Times are
medians. "Of products" is the share of the scorer's fp32 time that its matrix products would take at the rate
of one large product. Products of recurrent layers are not counted, so the share is given only for attentive
pooling, in InsuranceQA's shape.
"""

import argparse
import statistics
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.utils.flop_counter import FlopCounterMode

from aptool.config import load_recipe
from aptool.models.build import Ranker, build_ranker
from aptool.models.device import exact_products
from aptool.models.encoders import EncoderSpec
from aptool.models.initialization import TrainingTexts, initialize
from aptool.models.ragged import Ragged
from aptool.scoring import kernels
from aptool.scoring.ranker_scorer import Precision, RankerScorer
from aptool.text.tokenizer import Tokens
from bench.common import benchmark_parser, now, record, setting
from bench.pairwise import score_pairwise
from bench.workloads import VOCABULARY, Workload, insuranceqa, system_recipe, wikiqa

PAPER = ("ap-cnn-paper", "qa-cnn-paper", "ap-bilstm-paper", "qa-bilstm-paper")
OTHERS = (
    *("feng-2015", "tan-2015", "wang-nyberg-2015", "severyn-2015"),
    *("wang-ittycheriah-2015", "yang-2015", "yin-2015"),
)
TRANSFORMERS = ("ap-minilm", "mean-minilm", "maxsim-minilm", "mean-maxsim-minilm")
PRECISIONS: tuple[Precision, ...] = ("fp32", "bf16")
SAMPLE = 256
BATCH = 32  # pairs of a forward pass
LARGE = 4096  # rows and columns of the large product
COUNTED = 0.01  # scale of the shape to count products
MINILM = {
    "model_type": "bert",
    "hidden_size": 384,
    "num_hidden_layers": 6,
    "num_attention_heads": 12,
    "intermediate_size": 1536,
    "vocab_size": 30522,
    "max_position_embeddings": 512,
    "type_vocab_size": 2,
    "pad_token_id": 0,
}
PAIR = {"before": [101], "between": [102], "after": [102], "types": [0, 0, 0, 1, 1]}


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
    exact_products()  # the reference and the large product, not in TF32
    torch.manual_seed(0)
    ranker = build_ranker(system_recipe(name), VOCABULARY, 100).eval()
    is_grouped = kernels.kernel_for(ranker.pooling).groups_by_answer(workload.pair_answer)
    flops = products(ranker) if is_grouped else 0.0
    ranker = ranker.to(device)
    scorers = {kind: RankerScorer(ranker, device=device, precision=kind) for kind in precisions}
    pairs = len(workload.pair_question)
    chosen = np.random.default_rng(0).choice(pairs, min(SAMPLE, pairs), replace=False)
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
        rates["pairwise"].append(len(chosen) / (time.perf_counter() - begun))
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
        "pairs": pairs,
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


@torch.inference_mode()
def score_by_definition(
    ranker: Ranker, questions: Tokens, answers: Tokens, pair_question: np.ndarray, pair_answer: np.ndarray
) -> np.ndarray:
    """(P,) scores of pairs by the forward pass of the system."""
    scores = []
    for start in range(0, len(pair_question), BATCH):
        some = questions.take(pair_question[start : start + BATCH])
        theirs = answers.take(pair_answer[start : start + BATCH])
        each = np.arange(len(some))
        features = ranker.features_of(some, theirs)(each, each)
        scores.append(ranker(Ragged.of(some), Ragged.of(theirs), features).numpy())
    return np.concatenate(scores)


def with_words(workload: Workload) -> Workload:
    """The workload with the word ids that pair features need."""
    questions, answers = (
        replace(texts, words=texts.ids.astype(np.int64)) for texts in (workload.questions, workload.answers)
    )
    return workload._replace(questions=questions, answers=answers)


def beside_pairs(names: Sequence[str], options: argparse.Namespace) -> list[dict[str, Any]]:
    """Print a line per system, beside its reference; return the results."""
    workload = wikiqa(options.scale or 16) if options.shape == "wikiqa" else insuranceqa(options.scale or 0.2)
    measured = partial(measure, device=options.device)
    if names is OTHERS:
        workload = with_words(workload)
        measured = partial(measured, pairwise=score_by_definition, precisions=("fp32",))
    sizes = len(workload.pair_question), len(workload.questions), len(workload.answers)
    print("{:,} pairs of {:,} questions, {:,} answers".format(*sizes))
    print("pairs per second       pairwise      fp32      bf16   fp32 / pairwise   of products   difference")
    rows = []
    for name in names:
        row = measured(name, workload, options.repeats)
        rows.append(row)
        rates, apart = row["pairs_per_second"], row["largest_difference"]
        ratio = f"{row['ratio']:.3g} ({row['ratio_min']:.3g} to {row['ratio_max']:.3g})"
        share = "" if row["share_of_products"] is None else f"{row['share_of_products']:.0%}"
        bf16 = f"{rates['bf16']:,.0f}" if "bf16" in rates else ""
        differences = ", ".join(f"{difference:.1e}" for difference in apart.values())
        print(
            f"{name:<21} {rates['pairwise']:>9,.0f} {rates['fp32']:>9,.0f} {bf16:>9}   {ratio:<17} "
            f"{share:<13} {differences}",
            flush=True,
        )
    return rows


def rankers(network: Path | None, device: torch.device) -> dict[str, Ranker]:
    """The systems by name, over one transformer, in evaluation mode."""
    made = {}
    for name in TRANSFORMERS:
        torch.manual_seed(0)
        recipe = load_recipe(name, [f"encoder.name={network or 'random'}"])
        if network is None:
            backbone = {"network": MINILM, "pair": PAIR, "prefix_length": 0, "suffix_length": 0}
            made[name] = build_ranker(recipe, *EncoderSpec(30522, 384, backbone))
        else:
            made[name] = initialize(recipe, TrainingTexts([], lambda: iter(()), 0)).ranker
        made[name].eval().to(device)
    return made


def seconds_and_share(ranker: Ranker, workload: Workload, device: torch.device) -> tuple[float, float]:
    """Seconds to score the pairs, and the share of encoding in that time."""
    scorer = RankerScorer(ranker, device=device)
    spent: dict[str, float] = defaultdict(float)

    def timed(stage: str, work: Callable[..., Any]) -> Callable[..., Any]:
        def measured(*arguments: Any) -> Any:
            begun = now(device)
            result = work(*arguments)
            spent[stage] += now(device) - begun
            return result

        return measured

    scorer._encode = timed("encode", scorer._encode)
    scorer._kernel.score_pairs = timed("score", scorer._kernel.score_pairs)  # type: ignore[method-assign]
    begun = now(device)
    scorer.score(*workload)
    return now(device) - begun, spent["encode"] / (spent["encode"] + spent["score"])


def over_transformers(options: argparse.Namespace) -> list[dict[str, Any]]:
    """Print a line per workload and system; return the results."""
    systems = rankers(options.network, options.device)
    workloads = {"insuranceqa": insuranceqa(options.scale or 0.02), "wikiqa": wikiqa()}
    rows = []
    print("workload     system                 pairs   pairs/s    encoding")
    for title, workload in workloads.items():
        measured: dict[str, list[tuple[float, float]]] = {name: [] for name in systems}
        for _ in range(options.repeats):
            for name, ranker in systems.items():
                measured[name].append(seconds_and_share(ranker, workload, options.device))
        pairs = len(workload.pair_question)
        for name, both in measured.items():
            seconds, share = (statistics.median(values) for values in zip(*both, strict=True))
            row = {"workload": title, "system": name, "pairs": pairs, "pairs_per_second": pairs / seconds}
            rows.append({**row, "encoding": share})
            print(f"{title:<12} {name:<19} {pairs:>8,} {pairs / seconds:>9,.0f} {share:>11.1%}", flush=True)
    return rows


def main() -> None:
    """Print the table."""
    parser = benchmark_parser(__doc__, 5, device=True)
    parser.add_argument("--systems", choices=["paper", "others", "transformers"], default="paper")
    parser.add_argument(
        "--shape",
        choices=["insuranceqa", "wikiqa"],
        default="insuranceqa",
        help="of the workload; transformers have both",
    )
    parser.add_argument("--scale", type=float, help="of the shape (default 0.2, 0.02 or 16)")
    parser.add_argument("--network", type=Path, help="folder of a network in the Hugging Face layout")
    options = parser.parse_args()
    print(setting(options))
    if options.systems == "transformers":
        rows = over_transformers(options)
    else:
        rows = beside_pairs(PAPER if options.systems == "paper" else OTHERS, options)
    record(rows, options.record)


if __name__ == "__main__":
    main()
