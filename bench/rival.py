"""Seconds of ``aptool score`` with a sentence encoder, compared with a script on sentence-transformers.

    python -m bench.rival --network FOLDER [--pools 243] [--repeats 7]

Both are whole commands in processes of their own, run alternately: they load the same checkpoint, read the
same pools and write a run. The script encodes each question of the pools and each candidate. There are two
workloads, with texts of WikiQA's lengths: pools whose candidates are all distinct, and pools that share them,
as in a FAQ. FOLDER is a checkpoint such as all-MiniLM-L6-v2. Needs ``sentence-transformers``.
"""

import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import torch

from aptool.data.runs import read_run
from bench.common import benchmark_parser, record

POOLS = 243  # of WikiQA's test split
CANDIDATES = 10
SHARED = 150  # distinct candidates of pools that share them
WORKLOADS = {"shared": SHARED, "not shared": None}

SCRIPT = """
import sys
import polars as pl
from sentence_transformers import SentenceTransformer
pools, network, run = sys.argv[1:]
pairs = pl.read_parquet(pools).explode("candidates").unnest("candidates")
model = SentenceTransformer(network, device="cpu", local_files_only=True)
questions = pairs.unique("question_id", maintain_order=True)
encoded = model.encode_query(questions["question"].to_list(), convert_to_tensor=True)
numbers = {name: number for number, name in enumerate(questions["question_id"])}
answers = model.encode_document(pairs["text"].to_list(), convert_to_tensor=True)
scores = model.similarity_pairwise(encoded[[numbers[name] for name in pairs["question_id"]]], answers)
scored = pairs.with_columns(score=pl.Series(scores.tolist()))
ranked = scored.sort("question_id", "score", descending=[False, True])
with open(run, "w") as file:
    rows = ranked.select("question_id", "answer_id", "score").rows()
    for rank, (question, answer, score) in enumerate(rows, 1):
        file.write(f"{question} Q0 {answer} {rank} {score} script\\n")
"""


def texts(words: list[str], count: int, mean: float, spread: float, seed: int) -> list[str]:
    """Distinct texts of random words, of log-normal length."""
    generator = np.random.default_rng(seed)
    lengths = generator.lognormal(np.log(mean) - spread**2 / 2, spread, count).round().clip(1, 200)
    return [" ".join([str(number), *generator.choice(words, int(n))]) for number, n in enumerate(lengths)]


def write_workload(path: Path, words: list[str], pools: int, distinct: int | None) -> None:
    """Write pools whose candidates are ``distinct`` texts, or all distinct."""
    questions = texts(words, pools, 7, 0.35, 0)
    answers = texts(words, distinct or pools * CANDIDATES, 25, 0.5, 1)
    generator = np.random.default_rng(2)
    rows = []
    for number, question in enumerate(questions):
        first = number * CANDIDATES
        chosen = range(first, first + CANDIDATES)
        if distinct is not None:
            chosen = generator.permutation(distinct)[:CANDIDATES].tolist()
        candidates = [{"answer_id": f"a{answer}", "text": answers[answer]} for answer in chosen]
        rows.append({"question_id": f"q{number}", "question": question, "candidates": candidates})
    pl.DataFrame(rows).write_parquet(path)


def commands(network: Path, pools: Path, folder: Path) -> dict[str, Callable[[], Any]]:
    """Functions that run the commands; each writes a run to a folder."""
    (folder / "script.py").write_text(SCRIPT, encoding="utf-8")
    score = ["-m", "aptool", "score", pools, "--model", network, "--device", "cpu", "--overwrite", "--output"]
    arguments: dict[str, list[Any]] = {"aptool": score, "script": [folder / "script.py", pools, network]}
    run = partial(subprocess.run, check=True, capture_output=True)
    return {
        name: partial(run, [sys.executable, *map(str, some), str(folder / f"{name}.run")])
        for name, some in arguments.items()
    }


def run(network: Path, pools: int, repeats: int) -> list[dict[str, Any]]:
    """Print a line per workload; return the results."""
    words = _whole_words(network)
    print(f"{pools} pools, {torch.get_num_threads()} threads, medians of {repeats}\n")
    print("workload       aptool, s   script, s   script / aptool (min to max)   difference of scores")
    rows = []
    for title, distinct in WORKLOADS.items():
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            write_workload(folder / "x.pools.parquet", words, pools, distinct)
            made = commands(network, folder / "x.pools.parquet", folder)
            seconds: dict[str, list[float]] = {command: [] for command in made}
            for _ in range(repeats):
                for command, start in made.items():
                    # Unfinished or finished work of the command before would be used again.
                    (folder / f"{command}.run").unlink(missing_ok=True)
                    begun = time.perf_counter()
                    start()
                    seconds[command].append(time.perf_counter() - begun)
            frames = [
                read_run(folder / f"{command}.run").frame.sort("question_id", "answer_id") for command in made
            ]
        ratios = [there / here for here, there in zip(seconds["aptool"], seconds["script"], strict=True)]
        row = {
            "workload": title,
            **{command: statistics.median(measured) for command, measured in seconds.items()},
            "ratio": statistics.median(ratios),
            "ratio_min": min(ratios),
            "ratio_max": max(ratios),
            "largest_difference": float((frames[0]["score"] - frames[1]["score"]).abs().max()),  # type: ignore[arg-type]
        }
        rows.append(row)
        ratio = f"{row['ratio']:.2f} ({row['ratio_min']:.2f} to {row['ratio_max']:.2f})"
        print(
            f"{title:<14} {row['aptool']:>9.2f} {row['script']:>11.2f}   {ratio:<28} "
            f"{row['largest_difference']:>12.1e}",
            flush=True,
        )
    return rows


def _whole_words(network: Path) -> list[str]:
    """Words that the network's tokenizer does not split."""
    from transformers import AutoTokenizer

    vocabulary = AutoTokenizer.from_pretrained(network, local_files_only=True).get_vocab()
    return sorted(word for word in vocabulary if word.isascii() and word.isalpha() and word.islower())


def main() -> None:
    """Print the table."""
    parser = benchmark_parser(__doc__, 7)
    parser.add_argument("--network", type=Path, required=True, help="folder of a sentence encoder")
    parser.add_argument("--pools", type=int, default=POOLS, help=f"number of pools (default {POOLS})")
    options = parser.parse_args()
    record(run(options.network, options.pools, options.repeats), options.record)


if __name__ == "__main__":
    main()
