"""Latency of ``Model.rank`` for one question over encoded answers, compared with the encoder alone.

    python -m bench.online --model FOLDER [--answers 100] [--calls 1000] [--threads 1 4] [--output FILE]

The answers are encoded before. Each call ranks all answers for a new question of eight words. The encoder
alone tokenizes and encodes the question, on one core. With one thread both alternate. Several threads first
encode and then rank at the same time; the latency is per call. Texts are random words, of the model's
vocabulary if it has one.
"""

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

import aptool
from aptool.models.checkpoints import load_any
from aptool.models.ragged import Ragged
from aptool.text.tokenizer import WordTokenizer
from bench.common import add_record, benchmark_parser, write_results

QUESTION_WORDS, ANSWER_WORDS = 8, 25
WORDS = (
    "a claim for damage to the car is paid by the insurance of its owner if another driver was not at fault"
)


def texts(words: list[str], count: int, length: int, generator: np.random.Generator) -> list[str]:
    """Texts of random words."""
    return [" ".join(generator.choice(words, length)) for _ in range(count)]


def encoder_of(folder: Path) -> Callable[[str], None]:
    """A function that only tokenizes and encodes a question."""
    loaded = load_any(folder)
    with torch.inference_mode():
        encode = loaded.ranker.inference_encoder()

    @torch.inference_mode()
    def run(question: str) -> None:
        tokens = loaded.tokenizer.encode([question], loaded.recipe.text.max_question_tokens, "question")
        ids = Ragged.of(tokens)
        encode(ids, ids.row_numbers())

    return run


def seconds(work: Callable[[str], Any], question: str) -> float:
    """Duration of a call in seconds."""
    begun = time.perf_counter()
    work(question)
    return time.perf_counter() - begun


def measure(folder: Path, answers: int, calls: int, threads: list[int]) -> list[dict[str, Any]]:
    """Two rows per number of threads: the encoder alone, and the ranking."""
    model = aptool.load(folder, device="cpu")
    tokenizer = load_any(folder).tokenizer
    words = tokenizer.words[2:] if isinstance(tokenizer, WordTokenizer) else WORDS.split()
    generator = np.random.default_rng(0)
    encoded = model.encode(texts(words, answers, ANSWER_WORDS, generator))
    questions = texts(words, calls, QUESTION_WORDS, generator)
    encode = encoder_of(folder)

    def rank(question: str) -> None:
        model.rank(question, encoded, top_k=10)

    for question in questions[:20]:
        rank(question)
        encode(question)
    rows = []
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        for number in threads:
            if number == 1:
                both = [(seconds(encode, question), seconds(rank, question)) for question in questions]
                for work, latencies in zip(("encoder", "rank"), zip(*both, strict=True), strict=True):
                    rows.append(row(work, 1, latencies, sum(latencies)))
                continue
            for work, call in (("encoder", encode), ("rank", rank)):
                with ThreadPoolExecutor(number) as pool:
                    begun = time.perf_counter()
                    taken = list(pool.map(partial(seconds, call), questions))
                    rows.append(row(work, number, taken, time.perf_counter() - begun))
    finally:
        torch.set_num_threads(before)
    return rows


def row(work: str, threads: int, latencies: Any, wall: float) -> dict[str, Any]:
    """The results of a series of calls."""
    p50, p99 = np.percentile(latencies, [50, 99]) * 1000
    return {
        "work": work,
        "threads": threads,
        "p50_ms": p50,
        "p99_ms": p99,
        "per_second": len(latencies) / wall,
    }


def main() -> None:
    """Print a line per series of calls."""
    parser = benchmark_parser(__doc__)
    parser.add_argument("--model", type=Path, required=True, help="a model folder")
    parser.add_argument("--answers", type=int, default=100, help="number of answers (default 100)")
    parser.add_argument("--calls", type=int, default=1000, help="calls per series (default 1,000)")
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 4], help="threads (default 1 4)")
    parser.add_argument("--output", type=Path, help="JSON file for the results")
    add_record(parser)
    options = parser.parse_args()
    rows = measure(options.model, options.answers, options.calls, options.threads)
    print(f"{options.answers} answers, {options.calls:,} calls, torch {torch.__version__}")
    print("work      threads   p50 ms   p99 ms   calls per second")
    for entry in rows:
        print(
            f"{entry['work']:<9} {entry['threads']:>7} {entry['p50_ms']:>8.2f} {entry['p99_ms']:>8.2f} "
            f"{entry['per_second']:>18.0f}"
        )
    for alone, ranked in zip(rows[::2], rows[1::2], strict=True):
        more = ranked["p50_ms"] - alone["p50_ms"]
        print(f"{alone['threads']} threads: p50 of rank is {more:.2f} ms over the encoder's")
    write_results(rows, options)


if __name__ == "__main__":
    main()
