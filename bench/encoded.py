"""Answer stores: their read speed and size, and scoring with and without stored answers.

    python -m bench.encoded [--answers 20000] [--scale 0.1] [--repeats 5] [--output encoded.json]
    python -m bench.encoded --s3 [--answers 20000] [--repeats 5]    the store on an S3 server on loopback

First, answers of about 100 tokens and 384 features are stored in each precision. A random tenth of them is
read from the page cache per repeat: as bytes with verified checksums, and as fp32 tensors. Then the pools of
InsuranceQA's test1 are scored from token ids, with stored answers and without, by a transformer of MiniLM's
size and by AP-CNN of the paper's size. Weights are random, as the speed does not depend on them. Encoding by
the transformer is timed on a sample of the answers. Times are medians.

With ``--s3``, only reading is measured, from moto's server on the same cores: the number of requests, the
bytes transferred per requested byte, and the server's share of the time, which is an upper bound of the gain
from a faster server.
"""

import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch

from aptool.config import load_recipe
from aptool.formats.location import Location, location, store_of
from aptool.models.build import build_ranker
from aptool.models.ragged import Ragged
from aptool.models.ranker import Ranker
from aptool.scoring.answer_store import PRECISIONS, AnswerStore, StoredPrecision
from aptool.scoring.encoded import text_keys
from aptool.scoring.ranker_scorer import RankerScorer
from aptool.scoring.stored_answers import StoredAnswers
from aptool.text.tokenizer import Tokens
from bench.common import benchmark_parser, write_results
from bench.object_server import Server, object_server
from bench.transformer import rankers
from bench.workloads import VOCABULARY, insuranceqa, texts

NUMBERS = 384
TRANSFORMERS, OTHERS = ("ap-minilm", "mean-minilm"), ("ap-cnn-paper",)

Encode = Callable[[Tokens], list[tuple[np.ndarray, Ragged]]]  # type of ``RankerScorer.encode``

# Number of answers to time encoding by a transformer.
SAMPLE = 100


def seconds(work: Callable[..., Any], *arguments: Any) -> float:
    """Duration of a call in seconds."""
    begun = time.perf_counter()
    work(*arguments)
    return time.perf_counter() - begun


def new_store(folder: Location, precision: StoredPrecision) -> AnswerStore:
    """An empty store."""
    if isinstance(folder, Path):
        folder.mkdir()
    return AnswerStore(folder, precision, "0" * 16)


def put(stored: StoredAnswers, answers: Tokens, encode: Encode, multiple: int = 1) -> None:
    """Encode answers into a store."""
    rows, keys = stored.new(answers)
    for begin in range(0, len(rows), 1000):
        chosen, names = rows[begin : begin + 1000], keys[begin : begin + 1000]
        some = answers.take(chosen)
        for batch, encoded in encode(some):
            stored.put(names[batch], some.take(batch), encoded, multiple)
        stored.flush(force=False)
    stored.flush()


def read(precision: StoredPrecision, number: int, repeats: int, server: Server | None) -> dict[str, Any]:
    """Store random answers on a disk or an S3 server, and time reading them."""
    generator = np.random.default_rng(0)
    answers = texts(number, 100, 0.6, generator)

    def encode(some: Tokens) -> list[tuple[np.ndarray, Ragged]]:
        return [(np.arange(len(some)), Ragged.of_sizes(torch.randn(len(some.ids), NUMBERS), some.lengths))]

    with tempfile.TemporaryDirectory(prefix="aptool-bench-") as folder:
        path = Path(folder) / "store" if server is None else location(f"{server.bucket}/{precision}")
        store = new_store(path, precision)
        stored = StoredAnswers(store)
        put(stored, answers, encode)
        objects, key = store_of(path)
        size = sum(objects.stat(f"{key}/{name}").size for name in objects.names(key))
        rates: dict[str, list[float]] = {"bytes": [], "tensors": []}
        served: list[tuple[float, float, float]] = []
        for _ in range(repeats):
            some = answers.take(generator.choice(number, number // 10, replace=False))
            size_read = store.index.parts[0].width * len(some.ids)
            entries = store.index.find(text_keys(some))
            if server is None:
                took = seconds(store.index.read, entries)
            else:
                _, took, requests = server.watched(store.index.read, entries)
                served.append((requests.number, requests.bytes / size_read, requests.seconds / took))
            rates["bytes"].append(size_read / took)
            to_tensors = seconds(stored.encoded, some, 1, torch.device("cpu"))
            rates["tensors"].append(size_read / to_tensors)
    results = {
        "precision": precision,
        "bytes_per_token": size / len(answers.ids),
        "bytes_per_second": statistics.median(rates["bytes"]),
        "to_tensors_per_second": statistics.median(rates["tensors"]),
    }
    if served:
        names = "requests", "bytes_for_one", "server_share"
        results |= dict(zip(names, map(statistics.median, zip(*served, strict=True)), strict=True))
    return results


def score(name: str, ranker: Ranker, scale: float, repeats: int) -> dict[str, Any]:
    """Time scoring of InsuranceQA's test1 with stored answers and without."""
    workload = insuranceqa(scale)
    pairs, answers = len(workload.pair_question), workload.answers
    sampled = name in TRANSFORMERS
    with tempfile.TemporaryDirectory(prefix="aptool-bench-") as folder:
        stored = StoredAnswers(new_store(Path(folder) / "store", "fp32"))
        # Random states: those of a transformer would take an hour.
        scorer = RankerScorer(ranker)
        multiple = 1 if sampled else scorer.row_multiple
        put(stored, answers, random_states(name) if sampled else scorer.encode, multiple)
        rates: dict[str, list[float]] = {"without": [], "with": []}
        for _ in range(repeats):
            scoring = seconds(RankerScorer(ranker, stored=stored).score, *workload)
            rates["with"].append(pairs / scoring)
            if sampled:
                some = answers.take(np.random.default_rng(0).choice(len(answers), SAMPLE, replace=False))
                encoding = seconds(RankerScorer(ranker).encode, some) * len(answers.ids) / len(some.ids)
                rates["without"].append(pairs / (scoring + encoding))
            else:
                rates["without"].append(pairs / seconds(RankerScorer(ranker).score, *workload))
    ratios = [a / b for a, b in zip(rates["with"], rates["without"], strict=True)]
    return {
        "system": name,
        "pairs": pairs,
        "answers": len(answers),
        **{f"pairs_per_second_{key}": statistics.median(values) for key, values in rates.items()},
        "ratio": statistics.median(ratios),
    }


def random_states(name: str) -> Encode:
    """An encoder that returns random states, or one random vector per text."""
    vectors = load_recipe(name).pooling["type"] == "mean"

    def encode(some: Tokens) -> list[tuple[np.ndarray, Ragged]]:
        counts = np.ones(len(some), dtype=np.int64) if vectors else some.lengths
        return [(np.arange(len(some)), Ragged.of_sizes(torch.randn(int(counts.sum()), NUMBERS), counts))]

    return encode


def read_all(answers: int, repeats: int, server: Server | None = None) -> list[dict[str, Any]]:
    """Print the read speed of each precision; return the results."""
    print(f"{torch.get_num_threads()} threads, torch {torch.__version__}, medians of {repeats}\n")
    more = "" if server is None else "  requests  bytes for one  server at work"
    print(f"precision  bytes/token  read, GB/s  to fp32 tensors, GB/s{more}")
    reads = []
    for precision in PRECISIONS:
        row = read(precision, answers, repeats, server)
        reads.append(row)
        speeds = row["bytes_per_second"] / 1e9, row["to_tensors_per_second"] / 1e9
        line = f"{precision:<10} {row['bytes_per_token']:>11.1f} {speeds[0]:>11.2f} {speeds[1]:>22.2f}"
        if server is not None:
            line += f" {row['requests']:>9.0f} {row['bytes_for_one']:>14.2f} {row['server_share']:>15.0%}"
        print(line, flush=True)
    return reads


def run(answers: int, scale: float, repeats: int) -> dict[str, Any]:
    """Print two tables; return the results."""
    reads = read_all(answers, repeats)
    print("\nsystem              pairs  answers   without, pairs/s   with, pairs/s  with / without")
    scores = []
    systems = rankers(None, torch.device("cpu"))
    for name in OTHERS:
        systems[name] = build_ranker(load_recipe(name), VOCABULARY, 100).eval()
    for name in (*TRANSFORMERS, *OTHERS):
        row = score(name, systems[name], scale, repeats)
        scores.append(row)
        print(
            f"{name:<14} {row['pairs']:>10,} {row['answers']:>8,} {row['pairs_per_second_without']:>18,.0f} "
            f"{row['pairs_per_second_with']:>15,.0f} {row['ratio']:>15.1f}",
            flush=True,
        )
    return {"read": reads, "score": scores}


def main() -> None:
    """Print the tables."""
    parser = benchmark_parser(__doc__, 5)
    parser.add_argument("--answers", type=int, default=20_000, help="answers in a store (default 20,000)")
    parser.add_argument("--scale", type=float, default=0.1, help="fraction of 900,000 pairs (default 0.1)")
    parser.add_argument("--s3", action="store_true", help="read from an S3 server on loopback")
    options = parser.parse_args()
    if options.s3:
        folder = tempfile.TemporaryDirectory(prefix="aptool-bench-")
        with folder as name, object_server(Path(name)) as server:
            results = {"read": read_all(options.answers, options.repeats, server)}
    else:
        results = run(options.answers, options.scale, options.repeats)
    write_results(results, options)


if __name__ == "__main__":
    main()
