"""``aptool score`` from Parquet to run file: throughput, time per stage, memory, threads.

    python -m bench.end_to_end [--scale 1] [--repeats 3] [--device cuda] [--record FILE]

The input has the shape of InsuranceQA's test1 (1,800 pools of 500 of 24,981 shared answers); the model is
AP-CNN of the paper's size with random weights. Every measurement runs in a separate process.
"""

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch

from aptool.config import load_recipe
from aptool.data.parquet import arrow_schema, write_tables
from aptool.data.pools import PoolRecord, list_units, pool_tables, write_answers
from aptool.models.build import build_ranker
from aptool.models.model import load_model, save_model
from aptool.scoring import run as scoring
from aptool.scoring.kernels import AttentiveKernel
from aptool.scoring.model_system import ModelScorer, ModelSystem
from aptool.scoring.ranker_scorer import RankerScorer
from aptool.text.tokenizer import Tokens, WordTokenizer
from bench.common import benchmark_parser, record
from bench.workloads import VOCABULARY, insuranceqa

# Peak memory is measured with few answers, so that all of them fit in the cache.
MEMORY_SCALE = 0.1
PEAK = "peak_memory_bytes"
WORDS = [f"w{number}" for number in range(VOCABULARY - 2)]


def write_input(folder: Path, scale: float, pools: int | None = None) -> None:
    """Write shared answers, a model and ``pools`` pools (default: the number of the shape)."""
    workload = insuranceqa(scale)
    generator = np.random.default_rng(1)
    answers = _texts(workload.answers)
    write_answers(folder / "answers.parquet", ((f"a{i}", text) for i, text in enumerate(answers)))
    questions = _texts(workload.questions)
    records = (
        PoolRecord(
            f"q{number}",
            questions[number % len(questions)],
            [f"a{i}" for i in generator.choice(len(answers), 500, replace=False)],
            None,
        )
        for number in range(len(questions) if pools is None else pools)
    )
    write_tables(folder / "test.pools.parquet", arrow_schema("pools"), pool_tables(records))
    torch.manual_seed(0)
    recipe = load_recipe("ap-cnn-paper", ["text.max_answer_tokens=400"])
    ranker = build_ranker(recipe, VOCABULARY, 100).eval()
    metadata = {"collection": "bench", "fingerprint": "bench", "seed": 0, "best_epoch": 0, "dev": {}}
    save_model(folder / "model", ranker, WordTokenizer.from_words(WORDS), recipe, metadata, [])


def _texts(tokens: Tokens) -> list[str]:
    words = np.array(["", "", *WORDS])[tokens.ids]
    return [" ".join(words[a:b]) for a, b in zip(tokens.offsets[:-1], tokens.offsets[1:], strict=True)]


def score(folder: Path, threads: int, device: str) -> dict[str, Any]:
    """Score the input in a folder in this process; measure the core seconds of each stage."""
    torch.set_num_threads(threads)
    spent: dict[str, float] = defaultdict(float)

    def timed(stage: str, work: Callable[..., Any]) -> Callable[..., Any]:
        def measured(*arguments: Any, **more: Any) -> Any:
            begun = time.thread_time()
            try:
                return work(*arguments, **more)
            finally:
                spent[stage] += time.thread_time() - begun

        return measured

    begun = time.perf_counter()
    system = ModelSystem("model", device, "fp32", model=load_model(folder / "model", device))
    units = list_units([folder / "test.pools.parquet"])
    loaded = time.perf_counter() - begun
    owners: tuple[tuple[Any, str, str], ...] = (
        (scoring, "read_pools", "read"),
        (ModelScorer, "prepare", "tokenize"),
        (RankerScorer, "_encode_answers", "encode"),
        (AttentiveKernel, "score_pairs", "score"),
        (scoring, "write", "write"),
        (scoring, "join_parts", "merge"),
    )
    for owner, function, stage in owners:
        setattr(owner, function, timed(stage, getattr(owner, function)))
    answers = folder / "answers.parquet"
    output = folder / f"{os.getpid()}.run"  # a run that is complete would be left as it is
    scored = scoring.score_files(units, system, output, tag="bench", answers=answers)
    seconds = time.perf_counter() - begun
    return {
        "pairs": scored.pairs,
        "seconds": seconds,
        "pairs_per_second": scored.pairs / seconds,
        "threads": threads,
        "load_seconds": loaded,
        "core_seconds": dict(spent),
        "process_core_seconds": time.process_time(),
        PEAK: _peak_memory(),
    }


def _peak_memory() -> int:
    """Peak memory in bytes, without the parent process, which ``getrusage`` includes."""
    status = Path("/proc/self/status")
    if not status.exists():
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    (line,) = (line for line in status.read_text().splitlines() if line.startswith("VmHWM"))
    return int(line.split()[1]) * 1024


def measured(folder: Path, threads: int, device: str = "cpu") -> dict[str, Any]:
    """Run ``score`` in a separate process."""
    command = [sys.executable, "-m", "bench.end_to_end", "--folder", str(folder), "--threads", str(threads)]
    command += ["--device", device]
    environment = {**os.environ, "OMP_NUM_THREADS": str(threads), "RAYON_NUM_THREADS": str(threads)}
    finished = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    result: dict[str, Any] = json.loads(finished.stdout)
    return result


def main() -> None:
    """Print the results."""
    parser = benchmark_parser(__doc__, 3, device=True)
    parser.add_argument("--scale", type=float, default=1.0, help="fraction of 900,000 pairs (default 1)")
    parser.add_argument(
        "--pools",
        type=int,
        default=2100,
        help="number of pools of the smaller input for peak memory (default 2100)",
    )
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    options = parser.parse_args()
    if options.folder is not None:
        print(json.dumps(score(options.folder, options.threads, str(options.device))))
        return
    results = run(options.scale, options.pools, options.repeats, options.threads, str(options.device))
    record(results, options.record)


def run(scale: float, pools: int, repeats: int, threads: int, device: str = "cpu") -> dict[str, Any]:
    """Measure and print; return the results."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_input(folder, scale)
        rows = [measured(folder, threads, device) for _ in range(repeats)]
        single = [measured(folder, 1, device) for _ in range(repeats)] if threads > 1 else rows
    rate, alone = (statistics.median(row["pairs_per_second"] for row in some) for some in (rows, single))
    middle = sorted(rows, key=lambda row: row["seconds"])[len(rows) // 2]
    stages = ", ".join(f"{stage} {spent:.2f}" for stage, spent in middle["core_seconds"].items())
    print(f"end to end on {device}, {middle['pairs']:,} pairs: {rate:,.0f} pairs/s with {threads} threads")
    print(f"    core seconds: {stages}; of the whole process {middle['process_core_seconds']:.2f}")
    print(f"    one thread: {alone:,.0f} pairs/s; with {threads} threads {rate / alone:.2f} times that")
    peaks = []
    for times in (1, 10):
        with tempfile.TemporaryDirectory() as name:
            write_input(Path(name), MEMORY_SCALE, pools * times)
            large = [measured(Path(name), threads, device) for _ in range(repeats)]
        peaks.append([row[PEAK] for row in large])
        speed, peak = (statistics.median(row[key] for row in large) for key in ("pairs_per_second", PEAK))
        print(
            f"    {large[0]['pairs']:,} pairs: {speed:,.0f} pairs/s, peak memory {peak / 1e6:,.0f} MB",
            flush=True,
        )
    growth = statistics.median(peaks[1]) / statistics.median(peaks[0])
    print(f"    with ten times the pools {growth:.3f} times the memory", flush=True)
    return {"runs": rows, "one_thread": single, PEAK: peaks}


if __name__ == "__main__":
    main()
