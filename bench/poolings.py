"""Accuracy and bytes per answer of each pooling, over one pretrained network without fine-tuning.

    python -m bench.poolings --network FOLDER --output FOLDER COLLECTION...

The network encodes every text of the train and dev splits once. Each pooling scores all pairs from the same
states, with its initial weights. Per pooling, the output folder gets a run file, and a line is printed: the
measures, the difference in MAP to mean pooling with its permutation test, and the bytes per answer.
COLLECTION.svg in that folder shows accuracy against bytes and against time.
"""

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import torch

from aptool.config import load_recipe
from aptool.evaluation.measures import evaluate
from aptool.evaluation.significance import compare_paired
from aptool.formats.collection import CollectionFiles
from aptool.formats.pools import list_units, read_answers, read_pools
from aptool.formats.runs import write_run
from aptool.formats.trec import read_qrels
from aptool.models.build import POOLINGS, build_ranker, initialize
from aptool.models.initialization import TrainingTexts
from aptool.models.pooling import StateOptions
from aptool.models.ragged import Ragged
from aptool.reporting.plots import plot_costs, svg
from aptool.scoring.encoded import EncodedAnswers, Pairs, PoolTokenizer, TokenizedPools
from aptool.scoring.kernels import pair_scorer_for
from aptool.scoring.ranker_scorer import group_by_answer
from bench.common import add_record, benchmark_parser, write_results

MEASURES = ("MAP", "MRR", "P@1")
# Initial attention is nearly uniform, as in the preset ap-minilm.
OPTIONS = {"attentive": ["pooling.init=identity", "pooling.scale=0.05", "pooling.sharpness=5.0"]}
TOKENS_PER_BATCH = 4096
COSTS = {"bytes_per_answer": "bytes per answer", "pairs_per_second": "pairs scored per second"}


def poolings() -> list[str]:
    """Names of the poolings of token states, mean pooling first."""
    names = [name for name, pooling in POOLINGS.items() if issubclass(pooling.Options, StateOptions)]
    return ["mean", *(name for name in names if name != "mean")]


def encoded(encode: Any, tokens: Any) -> Ragged:
    """The states of texts, in batches of texts of similar length."""
    order = np.argsort(tokens.lengths, kind="stable")
    ends = np.cumsum(tokens.lengths[order])
    parts = []
    for block in np.split(order, np.flatnonzero(np.diff((ends - 1) // TOKENS_PER_BATCH)) + 1):
        some = Ragged.of(tokens.take(block))
        parts.append(Ragged.of_sizes(encode(some, some.row_numbers()), some.sizes))
    return Ragged.concatenate(parts).select(np.argsort(order, kind="stable"))


def scored(
    kernel: Any, questions: Ragged, answers: Ragged, pools: TokenizedPools
) -> tuple[np.ndarray, int, float]:
    """The score of each pair, the bytes of the encoded answers, and the seconds to score the pairs."""
    rows, counts = kernel.select_states(answers)
    kept = kernel.cache_answers(Ragged.of_sizes(answers.values[rows], counts))
    present, order, starts = group_by_answer(answers.sizes, pools.pair_answer)
    ends = np.cumsum(kept.sizes)
    parts = EncodedAnswers(
        [kept.values],
        np.zeros(len(present), dtype=np.int64),
        (ends - kept.sizes)[present],
        kept.sizes[present],
        answers.sizes[present],
    )
    pairs = Pairs(pools.pair_question[order], np.diff(starts))
    scores = np.empty(len(order), dtype=np.float32)
    prepared = kernel.prepare_questions(questions)
    begun = time.perf_counter()
    scores[order] = kernel.score_pairs(prepared, parts, pairs).numpy()
    return scores, kept.values.numel() * kept.values.element_size(), time.perf_counter() - begun


def units(
    collection: CollectionFiles, tokenizer: PoolTokenizer
) -> Iterator[tuple[pl.DataFrame, TokenizedPools]]:
    """Yield the ids of the pairs, and the tokens, of each row group of train and dev."""
    shared = read_answers(collection.answers) if collection.answers else None
    for split in ("train", "dev"):
        for unit in list_units([collection.pools(split)]):
            pools = read_pools(unit, shared)
            ids = {
                "question_id": pl.Series(pools.question_ids).gather(pools.pair_question),
                "answer_id": pl.Series(pools.answer_ids),
            }
            yield pl.DataFrame(ids), tokenizer.tokenize(pools)


@torch.inference_mode()
def measure(network: str, collection: CollectionFiles, output: Path) -> list[dict[str, Any]]:
    """Write the runs and print a line for each pooling; return the results."""
    kernels: dict[str, Any] = {}
    for name in poolings():
        options = [f"encoder.name={network}", f"pooling.type={name}", *OPTIONS.get(name, [])]
        recipe = load_recipe("mean-minilm", options)
        torch.manual_seed(0)
        initial = initialize(recipe, TrainingTexts([], lambda: iter(()), 0))
        if name == "mean":
            ranker = build_ranker(recipe, *initial.spec).eval()
            initial.load_weights(ranker)
        pooling = POOLINGS[name](
            ranker.encoder.size,
            POOLINGS[name].Options(**{k: v for k, v in recipe.pooling.items() if k != "type"}),
        )
        if hasattr(pooling, "similarity"):
            pooling.similarity = ranker.pooling.similarity
        kernels[name] = pair_scorer_for(pooling)
    encode = ranker.inference_encoder()
    tokenizer = PoolTokenizer(initial.tokenizer, recipe.text)
    frames: dict[str, list[pl.DataFrame]] = {name: [] for name in kernels}
    kept, seconds = dict.fromkeys(kernels, 0), dict.fromkeys(kernels, 0.0)
    answer_tokens = answers_read = 0
    for ids, pools in units(collection, tokenizer):
        Q, A = encoded(encode, pools.questions), encoded(encode, pools.answers)
        answer_tokens, answers_read = answer_tokens + int(A.sizes.sum()), answers_read + len(A.sizes)
        for name, kernel in kernels.items():
            scores, size, spent = scored(kernel, Q, A, pools)
            seconds[name] += spent
            kept[name] += size
            frames[name].append(ids.with_columns(score=scores))
    qrels = pl.concat([read_qrels(collection.qrels(split)) for split in ("train", "dev")])
    rows: list[dict[str, Any]] = []
    values: dict[str, np.ndarray] = {}
    for name in kernels:
        run = pl.concat(frames[name])
        write_run(output / f"{collection.name}-{name}.run", run, name)
        evaluation = evaluate(qrels, run, list(MEASURES))
        values[name] = evaluation.per_question.sort("question_id")["MAP"].to_numpy()
        paired = compare_paired(values["mean"], values[name])
        row = {
            "collection": collection.name,
            "pooling": name,
            "questions": len(values[name]),
            **evaluation.means,
            "difference": paired.difference,
            "p": paired.permutation.p,
            "bytes_per_answer": kept[name] / answers_read,
            "tokens_per_answer": answer_tokens / answers_read,
            "pairs_per_second": len(run) / seconds[name],
        }
        rows.append(row)
        print(
            f"{collection.name:<8} {name:<17} {row['questions']:>5} "
            + " ".join(f"{row[measure]:.4f}" for measure in MEASURES)
            + f" {row['difference']:+.4f} p {row['p']:.4f} {row['bytes_per_answer']:>8,.0f} bytes",
            flush=True,
        )
    return rows


def main() -> None:
    """Print the table."""
    parser = benchmark_parser(__doc__)
    parser.add_argument("--network", required=True, help="folder of a network in the Hugging Face layout")
    parser.add_argument(
        "--output", type=Path, required=True, help="output folder for run files and figures.json"
    )
    add_record(parser)
    parser.add_argument("collections", nargs="+", type=Path, help="collection with the splits train and dev")
    options = parser.parse_args()
    options.output.mkdir(parents=True, exist_ok=True)
    rows = []
    for folder in options.collections:
        collection = CollectionFiles(folder)
        measured = measure(options.network, collection, options.output)
        data = pl.DataFrame(measured).rename({"pooling": "system"})
        picture = options.output / f"{collection.name}.svg"
        picture.write_text(svg(plot_costs(data, MEASURES[0], COSTS)), encoding="utf-8")
        rows += measured
    write_results(rows, options, options.output / "figures.json")


if __name__ == "__main__":
    main()
