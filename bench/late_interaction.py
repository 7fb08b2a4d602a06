"""Pairs per second of the poolings with encoded answers, compared with attentive pooling.

    python -m bench.late_interaction [--scale 0.1] [--features 384] [--repeats 5] [--output late.json]
        [--runs runs/late --picture late.svg]

States are random, as the speed does not depend on them. The timed part is one call of the kernel for all
pairs, after the answers are encoded. There are two workloads: InsuranceQA's test1, whose pools share answers,
and WikiQA's dev split, whose pools do not. The poolings alternate in every repeat; times are medians.

With the folder of a matrix whose systems have the names of poolings, a plot shows their accuracy against the
bytes per answer of the matrix, and against the pairs per second of the first workload.
"""

import statistics
import time
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import torch

from aptool.models.build import POOLINGS
from aptool.models.ragged import Ragged
from aptool.models.similarity import Cosine
from aptool.reporting.charts import COSTS, cost_table
from aptool.reporting.plots import plot_costs, save_plot
from aptool.reporting.runs import read_runs
from aptool.scoring.encoded import EncodedAnswers, Pairs
from aptool.scoring.kernels import pair_scorer_for
from aptool.scoring.kernels.pair_scorer import PairScorer
from aptool.scoring.ranker_scorer import group_by_answer
from bench import workloads
from bench.common import benchmark_parser, write_results
from bench.poolings import poolings

BASE = "attentive"


def kernels(features: int) -> dict[str, PairScorer]:
    """The kernel of each pooling, with newly initialized weights."""
    made = {}
    for name in poolings():
        torch.manual_seed(0)
        pooling = POOLINGS[name](features, POOLINGS[name].Options())
        if hasattr(pooling, "similarity"):
            pooling.similarity = Cosine(features, Cosine.Options())
        made[name] = pair_scorer_for(pooling)
    return made


def states(lengths: np.ndarray, features: int) -> Ragged:
    """Random states of texts."""
    return Ragged.of_sizes(torch.randn(int(lengths.sum()), features), lengths)


def encoded(kernel: PairScorer, answers: Ragged, present: np.ndarray) -> tuple[EncodedAnswers, float]:
    """Encode answers; return them and their bytes per answer."""
    rows, counts = kernel.select_states(answers)
    kept = kernel.cache_answers(Ragged.of_sizes(answers.values[rows], counts))
    starts = (np.cumsum(kept.sizes) - kept.sizes)[present]
    batch = np.zeros(len(present), dtype=np.int64)
    encoded_answers = EncodedAnswers(
        [kept.values], batch, starts, kept.sizes[present], answers.sizes[present]
    )
    return encoded_answers, kept.values.numel() * kept.values.element_size() / len(answers.sizes)


@torch.inference_mode()
def run(scale: float, features: int, repeats: int) -> list[dict[str, Any]]:
    """Print a line for each workload and pooling; return the results."""
    print(f"{torch.get_num_threads()} threads, torch {torch.__version__}, medians of {repeats}\n")
    print("workload     pooling              pairs      pairs/s  / attentive  bytes/answer")
    rows = []
    for title, workload in (("insuranceqa", workloads.insuranceqa(scale)), ("wikiqa", workloads.wikiqa())):
        present, order, starts = group_by_answer(workload.answers.lengths, workload.pair_answer)
        pairs = Pairs(workload.pair_question[order], np.diff(starts))
        questions = states(workload.questions.lengths, features)
        answers = states(workload.answers.lengths, features)
        scorers = kernels(features)
        rates: dict[str, list[float]] = {name: [] for name in scorers}
        sizes = {}
        for _ in range(repeats + 1):  # the first repeat is a warm-up
            for name, kernel in scorers.items():
                kept, sizes[name] = encoded(kernel, answers, present)
                begun = time.perf_counter()
                kernel.score_pairs(kernel.prepare_questions(questions), kept, pairs)
                rates[name].append(len(order) / (time.perf_counter() - begun))
        for name in scorers:
            ratios = [rate / base for rate, base in zip(rates[name][1:], rates[BASE][1:], strict=True)]
            row = {
                "workload": title,
                "pooling": name,
                "pairs": len(order),
                "pairs_per_second": statistics.median(rates[name][1:]),
                "to_attentive": statistics.median(ratios),
                "bytes_per_answer": sizes[name],
            }
            rows.append(row)
            print(
                f"{title:<12} {name:<17} {row['pairs']:>8,} {row['pairs_per_second']:>12,.0f} "
                f"{row['to_attentive']:>12.2f} {row['bytes_per_answer']:>13,.0f}",
                flush=True,
            )
    return rows


def draw(rows: list[dict[str, Any]], runs: Path, picture: Path) -> None:
    """Draw a matrix's first collection: its main measure against bytes per answer and pairs per second."""
    matrix = read_runs(runs)
    measure = matrix.measures[0]
    accuracy = cost_table(matrix, measure).drop("pairs_per_second", "train_seconds")
    first = accuracy.filter(collection=accuracy["collection"][0])
    shared = pl.DataFrame(rows).filter(workload="insuranceqa")
    data = first.join(shared.select("pooling", "pairs_per_second"), left_on="system", right_on="pooling")
    titles = {**COSTS, "pairs_per_second": "pairs scored per second, with encoded answers shared by pools"}
    save_plot(plot_costs(data, measure, titles), data, picture)


def main() -> None:
    """Print the table."""
    parser = benchmark_parser(__doc__, 5)
    parser.add_argument(
        "--scale", type=float, default=0.1, help="fraction of InsuranceQA's test1 (default 0.1)"
    )
    parser.add_argument("--features", type=int, default=384, help="features per state (default 384)")
    parser.add_argument("--runs", type=Path, help="folder of a matrix, for the picture")
    parser.add_argument("--picture", type=Path, help=".svg or .png file of accuracy against costs")
    options = parser.parse_args()
    if (options.runs is None) != (options.picture is None):
        parser.error("--runs and --picture belong together")
    rows = run(options.scale, options.features, options.repeats)
    write_results(rows, options)
    if options.picture is not None:
        draw(rows, options.runs, options.picture)


if __name__ == "__main__":
    main()
