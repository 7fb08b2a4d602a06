"""Speed of a sentence encoder on pools: ``mean-minilm`` compared with ``sentence-transformers``.

    python -m bench.rival --network FOLDER [--pairs 2351] [--repeats 3] [--device cuda]

Both use the same network and the same texts, with the lengths of WikiQA, and are timed alternately from texts
to scores. sentence-transformers gets each distinct text once, and makes its own batches. FOLDER is a network
such as all-MiniLM-L6-v2. Needs ``sentence-transformers``.

On a CPU with the extra ``openvino``, ``--engine openvino`` and the same model of the library are timed too.
Processors without native bf16 skip it, as it would take minutes.
"""

import statistics
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import torch

from aptool.config import load_recipe
from aptool.environment import is_native, version_of
from aptool.formats.pools import UNSHARED, PoolBatch
from aptool.models.build import build_ranker, initialize
from aptool.models.initialization import TrainingTexts
from aptool.scoring import library_system
from aptool.scoring.ranker_scorer import RankerScorer
from bench.common import alternate, benchmark_parser, speed_of, write_results

PAIRS = 2351  # of WikiQA's test split, over 243 questions
PAIRS_PER_POOL = 9.7

# Number of answers that calibrate int8.
CALIBRATION = 300

LIBRARY = "sentence-transformers"


def texts(words: list[str], count: int, mean: float, spread: float, seed: int) -> list[str]:
    """Distinct texts of random words, of log-normal length."""
    generator = np.random.default_rng(seed)
    lengths = generator.lognormal(np.log(mean) - spread**2 / 2, spread, count).round().clip(1, 200)
    return [" ".join([str(number), *generator.choice(words, int(n))]) for number, n in enumerate(lengths)]


def systems(
    network: Path, questions: list[str], answers: list[str], pair_question: np.ndarray, device: torch.device
) -> dict[str, Callable[[], np.ndarray]]:
    """Functions that score the pairs from texts; pair i is question ``pair_question[i]`` with answer i."""
    from sentence_transformers import SentenceTransformer

    recipe = load_recipe("mean-minilm", [f"encoder.name={network}"])
    initial = initialize(recipe, TrainingTexts([], lambda: iter(()), 0))
    ranker = build_ranker(initial.recipe, *initial.spec)
    initial.load_weights(ranker)
    ranker.eval().to(device)

    def aptool_scores(precision: Any) -> Callable[[], np.ndarray]:
        def score() -> np.ndarray:
            question_tokens = initial.tokenizer.encode(questions, recipe.text.max_question_tokens, "question")
            answer_tokens = initial.tokenizer.encode(answers, recipe.text.max_answer_tokens)
            scorer = RankerScorer(ranker, device=device, precision=precision)
            return scorer.score(question_tokens, answer_tokens, pair_question, np.arange(len(answers)))

        return score

    def library_scores(model: Any) -> Callable[[], np.ndarray]:
        def score() -> np.ndarray:
            q, a = (
                model.encode(some, convert_to_tensor=True, normalize_embeddings=True).float()
                for some in (questions, answers)
            )
            scores: np.ndarray = (q[torch.from_numpy(pair_question).to(device)] * a).sum(1).cpu().numpy()
            return scores

        return score

    def in_torch(precision: str) -> Any:
        kind = {"fp32": torch.float32, "bf16": torch.bfloat16}[precision]
        return SentenceTransformer(
            str(network), device=str(device), local_files_only=True, model_kwargs={"dtype": kind}
        )

    precisions = ["fp32", "bf16"] if device.type == "cuda" or is_native("bf16") else ["fp32"]
    made = {f"aptool {precision}": aptool_scores(precision) for precision in precisions}
    made |= {f"{LIBRARY} {precision}": library_scores(in_torch(precision)) for precision in precisions}
    if device.type == "cuda" or version_of("optimum-intel") is None:
        return made
    pools = pool_batch(questions, answers, pair_question)
    for precision in (*precisions, "int8"):
        texts = tuple(answers[:CALIBRATION]) if precision == "int8" else ()
        settings: Any = {"precision": precision, "engine": "openvino", "texts": texts}
        system = library_system.LibrarySystem(str(network), "cpu", **settings)
        model = library_system.load_library_model(system)
        scorer = library_system.LibraryScorer(system, model, "cpu")
        made[f"aptool, OpenVINO {precision}"] = partial(scorer.score, pools)
        made[f"{LIBRARY}, OpenVINO {precision}"] = library_scores(model)
    return made


def pool_batch(questions: list[str], answers: list[str], pair_question: np.ndarray) -> PoolBatch:
    """The pairs as pools of one row group; pair i is question ``pair_question[i]`` with answer i."""
    sizes = np.bincount(pair_question, minlength=len(questions))
    return PoolBatch(
        question_ids=pa.array([str(number) for number in range(len(questions))]),
        questions=pa.array(questions),
        offsets=np.concatenate([[0], np.cumsum(sizes)]),
        answer_ids=pa.array([str(number) for number in range(len(answers))]),
        answers=pa.array(answers),
        pair_answer=np.arange(len(answers)),
        shared=None,
        shared_rows=np.full(len(answers), UNSHARED),
    )


def run(network: Path, pairs: int, repeats: int, device: torch.device) -> list[dict[str, Any]]:
    """Print a line per system; return the results."""
    words = _whole_words(network)
    pools = max(1, round(pairs / PAIRS_PER_POOL))
    pair_question = np.sort(np.arange(pairs) % pools)
    questions, answers = texts(words, pools, 7, 0.35, 0), texts(words, pairs, 25, 0.5, 1)
    made = systems(network, questions, answers, pair_question, device)
    seconds, scores = alternate(made, repeats)
    base = f"{LIBRARY} fp32"
    if device.type == "cpu" and not is_native("bf16"):
        print("bf16 is skipped: this processor does not compute in it")
    print(
        f"{pairs:,} pairs, {device}, {torch.get_num_threads()} threads, torch {torch.__version__}, "
        f"medians of {repeats}"
    )
    print(
        "system                                      seconds   speed (min to max)      difference of scores"
    )
    rows = []
    for name, measured in seconds.items():
        row = {
            "system": name,
            "pairs": pairs,
            "seconds": statistics.median(measured),
            **speed_of(seconds, name, base),
            "largest_difference": float(np.abs(scores[name] - scores[base]).max()),
        }
        rows.append(row)
        speed = f"{row['speed']:.2f} ({row['speed_min']:.2f} to {row['speed_max']:.2f})"
        print(f"{name:<42} {row['seconds']:>8.2f}   {speed:<22}  {row['largest_difference']:.1e}", flush=True)
    return rows


def _whole_words(network: Path) -> list[str]:
    """Words that the network's tokenizer does not split."""
    from transformers import AutoTokenizer

    vocabulary = AutoTokenizer.from_pretrained(network, local_files_only=True).get_vocab()
    return sorted(word for word in vocabulary if word.isascii() and word.isalpha() and word.islower())


def main() -> None:
    """Print the table."""
    parser = benchmark_parser(__doc__, 3)
    parser.add_argument("--network", type=Path, required=True, help="folder in the Hugging Face layout")
    parser.add_argument("--pairs", type=int, default=PAIRS, help=f"number of pairs (default {PAIRS})")
    parser.add_argument("--device", type=torch.device, default=torch.device("cpu"), help="(default cpu)")
    options = parser.parse_args()
    write_results(run(options.network, options.pairs, options.repeats, options.device), options)


if __name__ == "__main__":
    main()
