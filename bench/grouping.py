"""Attentive pooling on one core, with pairs grouped by answer and by question.

    OMP_NUM_THREADS=1 python -m bench.grouping [--repeats 4]

The product of the pairs is the same; the number of pairs per answer decides which groups are faster.
"""

import statistics
import time
from typing import Any

import numpy as np
import torch

from aptool.config import load_recipe
from aptool.models.build import build_ranker
from aptool.scoring import attentive
from aptool.scoring.ranker_scorer import RankerScorer
from bench.common import benchmark_parser, write_results
from bench.workloads import VOCABULARY, texts

PAIRS_PER_ANSWER = (1, 2, 3, 4, 6, 10)
NO_LIMIT = 1 << 40


def main() -> None:
    """Print microseconds per pair."""
    options = benchmark_parser(__doc__, 4).parse_args()
    torch.manual_seed(0)
    recipe = load_recipe("ap-cnn-paper", ["text.max_answer_tokens=400"])
    scorer = RankerScorer(build_ranker(recipe, VOCABULARY, 100).eval())
    generator = np.random.default_rng(0)
    print(f"{'tokens':>6} {'pool':>5} {'per answer':>10} {'by answer':>10} {'by question':>11}  µs per pair")
    rows = []
    for tokens in (10, 25, 95):
        for pool in (10, 100, 500):
            for shared in PAIRS_PER_ANSWER:
                row = _measured(scorer, tokens, pool, shared, options.repeats, generator)
                print(f"{tokens:6} {pool:5} {shared:10} {row['by_answer']:10.1f} {row['by_question']:11.1f}")
                rows.append(row)
    write_results({"rows": rows}, options)


def _measured(
    scorer: RankerScorer, tokens: int, pool: int, shared: int, repeats: int, generator: np.random.Generator
) -> dict[str, Any]:
    """Score pools of which ``shared`` have each answer, in both ways."""
    count = max(shared, 150_000 // tokens // pool)
    # Each round uses all answers once.
    answers = count * pool // shared
    order = np.concatenate([generator.permutation(answers) for _ in range(shared)])
    pair_question = np.repeat(np.arange(count), pool)[: len(order)]
    questions = texts(count, 7, 0.35, generator)
    candidates = texts(answers, tokens, 0.6, generator)
    row: dict[str, Any] = {"tokens": tokens, "pool": pool, "shared": shared}
    for name, limit in (("by_answer", 0), ("by_question", NO_LIMIT)):
        vars(attentive)["SHARED"] = limit
        seconds = []
        for _ in range(repeats):
            begun = time.perf_counter()
            scorer.score(questions, candidates, pair_question, order)
            seconds.append(time.perf_counter() - begun)
        row[name] = statistics.median(seconds) / len(order) * 1e6
    return row


if __name__ == "__main__":
    main()
