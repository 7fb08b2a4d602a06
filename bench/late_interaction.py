"""Pairs per second of the poolings with encoded answers, compared with attentive pooling and maxsim-cpu.

    python -m bench.late_interaction [--scale 0.1] [--features 384] [--threads 2] [--cpu-time] [--repeats 5]
        [--device cuda] [--poolings maxsim attentive] [--record FILE]

States are random, as the speed does not depend on them. The timed part is the preparation of the questions
and the kernel for all pairs, in windows as in scoring, after the answers are encoded. The workloads are:

- insuranceqa: InsuranceQA's test1, whose pools share answers;
- wikiqa: WikiQA's dev split, whose pools do not;
- one-long, one-95, one-25: a question of 32 tokens and 1,000 answers of 128 to 1,536, 95 or 25 tokens, with
  128 features.

The systems alternate in every repeat; times are medians. ``--cpu-time`` measures the processor time of the
process, for a machine with other work. maxsim-cpu takes part where it is installed, with one call per
question; the share of its scores that equal those of ``maxsim`` within 2e-6 is printed.
"""

import importlib.util
import math
import os
import statistics
import time
from collections.abc import Callable, Collection
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from aptool.models.build import POOLINGS
from aptool.models.device import batch_sizes, exact_products
from aptool.models.pooling import Cosine, StateOptions, unit
from aptool.models.ragged import Ragged
from aptool.scoring.kernels import EncodedAnswers, Kernel, Pairs, kernel_for
from aptool.scoring.ranker_scorer import (
    BATCHES_PER_WINDOW,
    TOKENS_PER_WINDOW,
    blocks_of,
    even_window,
    for_each,
    group_by_answer,
)
from bench import workloads
from bench.common import alternate, benchmark_parser, record, speed_of

BASE, RIVAL = "attentive", "maxsim-cpu"


def poolings() -> list[str]:
    """Names of the poolings of token states."""
    return [name for name, pooling in POOLINGS.items() if issubclass(pooling.Options, StateOptions)]


def kernels(features: int, names: Collection[str], device: torch.device) -> dict[str, Kernel]:
    """The kernels of poolings, with newly initialized weights."""
    made = {}
    for name in names:
        torch.manual_seed(0)
        pooling = POOLINGS[name](features, POOLINGS[name].Options())
        if hasattr(pooling, "similarity"):
            pooling.similarity = Cosine(features, Cosine.Options())
        made[name] = kernel_for(pooling.to(device))
    return made


def states(lengths: np.ndarray, features: int, device: torch.device) -> Ragged:
    """Random states of texts."""
    return Ragged.of_sizes(torch.randn(int(lengths.sum()), features, device=device), lengths)


class Workload(NamedTuple):
    """Lengths of questions and answers, the pairs, and the features per state."""

    question_lengths: np.ndarray
    answer_lengths: np.ndarray
    pair_question: np.ndarray
    pair_answer: np.ndarray
    features: int


def all_workloads(scale: float, features: int) -> dict[str, Workload]:
    """The workloads by name."""
    made = {}
    for name, some in (("insuranceqa", workloads.insuranceqa(scale)), ("wikiqa", workloads.wikiqa())):
        lengths = some.questions.lengths, some.answers.lengths
        made[name] = Workload(*lengths, some.pair_question, some.pair_answer, features)
    answers = np.arange(1000)
    long = np.random.default_rng(0).integers(128, 1537, len(answers))
    for name, sizes in (("long", long), ("95", np.full_like(answers, 95)), ("25", np.full_like(answers, 25))):
        made[f"one-{name}"] = Workload(np.array([32]), sizes, np.zeros_like(answers), answers, 128)
    return made


def encoded(kernel: Kernel, answers: Ragged, present: np.ndarray) -> tuple[EncodedAnswers, float]:
    """Encode answers; return them and their bytes per answer."""
    rows, counts = kernel.select_states(answers)
    kept = kernel.cache_answers(Ragged.of_sizes(answers.values[rows], counts))
    starts = (np.cumsum(kept.sizes) - kept.sizes)[present]
    batch = np.zeros(len(present), dtype=np.int64)
    encoded_answers = EncodedAnswers(
        [kept.values], batch, starts, kept.sizes[present], answers.sizes[present]
    )
    return encoded_answers, kept.values.numel() * kept.values.element_size() / len(answers.sizes)


def scored(kernel: Kernel, questions: Ragged, answers: EncodedAnswers, pairs: Pairs) -> Tensor:
    """Scores of pairs on the host, with the windows of ``RankerScorer``."""
    device = questions.values.device
    tokens = BATCHES_PER_WINDOW * batch_sizes(device).encoder
    if device.type == "cpu":
        tokens = min(tokens, even_window(answers.lengths, TOKENS_PER_WINDOW))
    windows = blocks_of(answers.lengths, tokens)
    bounds = np.concatenate([np.zeros(1, dtype=np.int64), np.cumsum(pairs.counts)])

    def score_window(window: np.ndarray) -> Tensor:
        first, last = window[0], window[-1] + 1
        some = Pairs(
            pairs.questions[bounds[first] : bounds[last]],
            pairs.counts[first:last],
            by_answer=pairs.by_answer,
        )
        return kernel.score_pairs(prepared, answers.select(window), some)

    prepared = kernel.prepare_questions(questions)
    return torch.cat(list(for_each(device, score_window, windows))).cpu()


def maxsim_cpu(workload: Workload, questions: Ragged, answers: Ragged) -> Callable[[], np.ndarray]:
    """A function that scores the pairs of a workload with maxsim-cpu, question by question."""
    from maxsim_cpu import maxsim_scores_variable  # type: ignore[import-not-found, unused-ignore]

    Q, A = (
        [text.numpy() for text in unit(some.values).cpu().split(some.sizes.tolist())]
        for some in (questions, answers)
    )
    starts = np.flatnonzero(np.diff(workload.pair_question, prepend=-1))  # the pairs are sorted by question
    pools = [[A[answer] for answer in pool] for pool in np.split(workload.pair_answer, starts[1:])]
    present = workload.pair_question[starts]

    def score() -> np.ndarray:
        sums = [maxsim_scores_variable(Q[q], pool) for q, pool in zip(present, pools, strict=True)]
        return np.concatenate(sums) / questions.sizes[workload.pair_question]

    return score


@torch.inference_mode()
def run(
    workloads_by_name: dict[str, Workload],
    names: Collection[str],
    repeats: int,
    clock: Callable[[], float],
    device: torch.device,
) -> list[dict[str, Any]]:
    """Print a line for each workload and pooling; return the results."""
    exact_products()
    has_rival = importlib.util.find_spec("maxsim_cpu") is not None
    threads, instructions = torch.get_num_threads(), torch.backends.cpu.get_cpu_capability()
    print(f"{device}, {threads} threads, {instructions}, torch {torch.__version__}, medians of {repeats}\n")
    print("workload     system               pairs      pairs/s  / attentive  / maxsim-cpu  bytes/answer")
    rows = []
    for title, workload in workloads_by_name.items():
        present, order, starts = group_by_answer(workload.answer_lengths, workload.pair_answer)
        questions = states(workload.question_lengths, workload.features, device)
        answers = states(workload.answer_lengths, workload.features, device)
        systems: dict[str, Callable[[], Any]] = {}
        sizes: dict[str, float | None] = {}
        for name, kernel in kernels(workload.features, names, device).items():
            by_answer = kernel.groups_by_answer(workload.pair_answer)
            pairs = Pairs(workload.pair_question[order], np.diff(starts), by_answer=by_answer)
            kept, sizes[name] = encoded(kernel, answers, present)
            systems[name] = partial(scored, kernel, questions, kept, pairs)
        if has_rival:
            systems[RIVAL], sizes[RIVAL] = maxsim_cpu(workload, questions, answers), None
        seconds, results = alternate(systems, repeats, 1, clock)
        if has_rival and "maxsim" in results:
            # maxsim-cpu 0.1.0 has wrong scores for some numbers of question tokens, such as 11.
            differences = np.abs(results["maxsim"].numpy() - results[RIVAL][order])
            print(f"{title:<12} {RIVAL}: {np.mean(differences <= 2e-6):.1%} of the scores equal")
        for name in systems:
            row = {
                "workload": title,
                "pooling": name,
                "pairs": len(order),
                "pairs_per_second": len(order) / statistics.median(seconds[name]),
                "to_attentive": speed_of(seconds, name, BASE)["speed"] if BASE in seconds else None,
                "to_maxsim_cpu": speed_of(seconds, name, RIVAL)["speed"] if has_rival else None,
                "bytes_per_answer": sizes[name],
            }
            rows.append(row)
            ratios = [f"{row[key] or math.nan:12.2f}" for key in ("to_attentive", "to_maxsim_cpu")]
            print(
                f"{title:<12} {name:<17} {row['pairs']:>8,} {row['pairs_per_second']:>12,.0f} "
                f"{' '.join(ratios)} {row['bytes_per_answer'] or math.nan:>14,.0f}",
                flush=True,
            )
    return rows


def main() -> None:
    """Print the table."""
    parser = benchmark_parser(__doc__, 5, device=True)
    parser.add_argument(
        "--scale", type=float, default=0.1, help="fraction of InsuranceQA's test1 (default 0.1)"
    )
    parser.add_argument("--features", type=int, default=384, help="features per state (default 384)")
    parser.add_argument("--threads", type=int, help="number of threads (default: torch's)")
    parser.add_argument("--cpu-time", action="store_true", help="measure processor time")
    parser.add_argument("--poolings", nargs="+", default=poolings(), help="poolings (default: all)")
    parser.add_argument("--workloads", nargs="+", help="workloads (default: all)")
    options = parser.parse_args()
    if options.threads is not None:
        torch.set_num_threads(options.threads)
    os.environ["RAYON_NUM_THREADS"] = str(torch.get_num_threads())  # of maxsim-cpu
    every = all_workloads(options.scale, options.features)
    chosen = {name: every[name] for name in options.workloads or every}
    clock = time.process_time if options.cpu_time else time.perf_counter
    rows = run(chosen, options.poolings, options.repeats, clock, options.device)
    record(rows, options.record)


if __name__ == "__main__":
    main()
