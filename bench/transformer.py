"""Speed of poolings over a transformer.

    python -m bench.transformer [--network FOLDER] [--scale 0.02] [--repeats 5] [--device cuda]

There are two workloads: InsuranceQA's test1, whose pools share answers, and WikiQA's dev split, whose pools
do not. Systems alternate; times are medians, from token ids to scores. Without --network, the network has
MiniLM's size and random weights, as the speed does not depend on them. `python -m bench.rival` compares
`mean-minilm` with sentence-transformers.
"""

import statistics
import time
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from aptool.config import load_recipe
from aptool.models.build import build_ranker, initialize
from aptool.models.initialization import EncoderSpec, TrainingTexts
from aptool.models.ranker import Ranker
from aptool.scoring.ranker_scorer import RankerScorer
from bench import workloads
from bench.common import benchmark_parser, write_results

SYSTEMS = ("ap-minilm", "mean-minilm", "maxsim-minilm", "mean-maxsim-minilm")
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


def rankers(network: Path | None, device: torch.device) -> dict[str, Ranker]:
    """The systems by name, over one network, in evaluation mode."""
    made = {}
    for name in SYSTEMS:
        torch.manual_seed(0)
        recipe = load_recipe(name, [f"encoder.name={network or 'random'}"])
        if network is None:
            backbone = {"network": MINILM, "pair": PAIR, "prefix_length": 0, "suffix_length": 0}
            made[name] = build_ranker(recipe, *EncoderSpec(30522, 384, backbone))
        else:
            initial = initialize(recipe, TrainingTexts([], lambda: iter(()), 0))
            made[name] = build_ranker(recipe, *initial.spec)
            initial.load_weights(made[name])
        made[name].eval().to(device)
    return made


def measure(ranker: Ranker, workload: workloads.Workload, device: torch.device) -> tuple[float, float]:
    """Seconds to score the pairs, and the share of encoding in that time."""
    scorer = RankerScorer(ranker, device=device)
    spent: dict[str, float] = defaultdict(float)

    def timed(stage: str, work: Callable[..., Any]) -> Callable[..., Any]:
        def measured(*arguments: Any) -> Any:
            begun = _now(device)
            result = work(*arguments)
            spent[stage] += _now(device) - begun
            return result

        return measured

    scorer._encode = timed("encode", scorer._encode)
    scorer._kernel.score_pairs = timed("score", scorer._kernel.score_pairs)  # type: ignore[method-assign]
    begun = _now(device)
    scorer.score(
        workload.questions,
        workload.answers,
        workload.pair_question,
        workload.pair_answer,
    )
    return _now(device) - begun, spent["encode"] / (spent["encode"] + spent["score"])


def _now(device: torch.device) -> float:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return time.perf_counter()


def run(network: Path | None, scale: float, repeats: int, device: torch.device) -> list[dict[str, Any]]:
    """Print a line per workload and system; return the results."""
    systems = rankers(network, device)
    rows = []
    print(f"{device}, {torch.get_num_threads()} threads, torch {torch.__version__}, medians of {repeats}\n")
    print("workload     system                 pairs   pairs/s    encoding")
    for title, workload in (("insuranceqa", workloads.insuranceqa(scale)), ("wikiqa", workloads.wikiqa())):
        pairs = len(workload.pair_question)
        rates: dict[str, list[float]] = {name: [] for name in SYSTEMS}
        shares: dict[str, list[float]] = {name: [] for name in SYSTEMS}
        for _ in range(repeats):
            for name, ranker in systems.items():
                seconds, share = measure(ranker, workload, device)
                rates[name].append(pairs / seconds)
                shares[name].append(share)
        for name in SYSTEMS:
            row = {
                "workload": title,
                "system": name,
                "pairs": pairs,
                "pairs_per_second": statistics.median(rates[name]),
                "encoding": statistics.median(shares[name]),
            }
            rows.append(row)
            print(
                f"{title:<12} {name:<19} {row['pairs']:>8,} {row['pairs_per_second']:>9,.0f} "
                f"{row['encoding']:>11.1%}",
                flush=True,
            )
    return rows


def main() -> None:
    """Print the table."""
    parser = benchmark_parser(__doc__, 5)
    parser.add_argument("--network", type=Path, help="folder of a network in the Hugging Face layout")
    parser.add_argument("--scale", type=float, default=0.02, help="fraction of 900,000 pairs (default 0.02)")
    parser.add_argument("--device", type=torch.device, default=torch.device("cpu"), help="(default cpu)")
    options = parser.parse_args()
    rows = run(options.network, options.scale, options.repeats, options.device)
    write_results(rows, options)


if __name__ == "__main__":
    main()
