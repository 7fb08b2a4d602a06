"""Speed of the scorer for the systems that the paper compares with, against scoring pair by pair.

    python -m bench.systems [--scale 0.02] [--repeats 3] [--output systems.json]

The reference is the forward pass of each system (`aptool.models.ranker.Ranker`), in batches of pairs, which
encodes both texts of every pair; the scorer encodes each text once. Both are timed alternately, from token
ids to scores, including the features of pairs, on the shape of InsuranceQA's test1.
"""

from dataclasses import replace
from typing import Any

import numpy as np
import torch

from aptool.models.ragged import Ragged
from aptool.models.ranker import Ranker
from aptool.text.tokenizer import Tokens
from bench import scoring
from bench.common import benchmark_parser, write_results
from bench.workloads import Workload, insuranceqa

SYSTEMS = (
    "feng-2015",
    "tan-2015",
    "wang-nyberg-2015",
    "severyn-2015",
    "wang-ittycheriah-2015",
    "yang-2015",
    "yin-2015",
)
BATCH = 32


def measure(name: str, workload: Workload, repeats: int) -> dict[str, Any]:
    """Time the reference and the scorer of one system."""
    return scoring.measure(
        name, workload, repeats, torch.device("cpu"), pairwise=score_by_definition, precisions=("fp32",)
    )


def with_words(workload: Workload) -> Workload:
    """The workload with the word ids that pair features need."""
    questions, answers = (
        replace(texts, words=texts.ids.astype(np.int64)) for texts in (workload.questions, workload.answers)
    )
    return workload._replace(questions=questions, answers=answers)


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


def main() -> None:
    """Print a line per system."""
    parser = benchmark_parser(__doc__, 3)
    parser.add_argument("--scale", type=float, default=0.02, help="fraction of 900,000 pairs (default 0.02)")
    options = parser.parse_args()
    workload = with_words(insuranceqa(options.scale))
    sizes = len(workload.pair_question), len(workload.questions), len(workload.answers)
    print("{:,} pairs of {:,} questions, {:,} answers".format(*sizes))
    print(f"{torch.get_num_threads()} threads, torch {torch.__version__}, medians of {options.repeats}\n")
    print("pairs per second        pair by pair    scorer   ratio               difference")
    rows = []
    for name in SYSTEMS:
        row = measure(name, workload, options.repeats)
        rows.append(row)
        rates = row["pairs_per_second"]
        ratio = f"{row['ratio']:.1f} ({row['ratio_min']:.1f} to {row['ratio_max']:.1f})"
        print(
            f"{name:<22} {rates['pairwise']:>13,.0f} {rates['fp32']:>9,.0f}   {ratio:<19} "
            f"{row['largest_difference']['fp32']:.1e}",
            flush=True,
        )
    write_results(rows, options)


if __name__ == "__main__":
    main()
