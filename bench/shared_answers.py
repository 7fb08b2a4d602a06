"""Import and scoring of questions with the same candidates: a table, BEIR's layout, a plain loop.

    python -m bench.shared_answers [--questions 1249] [--answers 719] [--model FOLDER] [--output shared.json]

The table, in JSON Lines, repeats every answer for every question. Questions and answers are random words by
Zipf's law. The default model is AP-CNN of the paper's size with random weights. The loop reads the table,
encodes every distinct text once with the same model, and scores all pairs. Each step is a process.
"""

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import torch

from aptool.config import load_recipe
from aptool.models.build import build_ranker
from aptool.models.model import save_model
from aptool.text.tokenizer import WordTokenizer
from bench.common import add_record, benchmark_parser, write_results

_WORDS = np.array([f"w{number}" for number in range(20_000)], dtype=object)
_LENGTH = 70

_LOOP = """
import json, sys
import numpy as np
from aptool.models.model import load_model
from aptool.scoring.ranker_scorer import RankerScorer
model = load_model(sys.argv[2], "cpu")
text, rows, questions, pairs = model.recipe.text, {}, [], []
for line in open(sys.argv[1]):
    row = json.loads(line)
    if questions[-1:] != [row["question"]]:
        questions.append(row["question"])
        pairs.append([])
    pairs[-1].append(rows.setdefault(row["answer"], len(rows)))
answers = model.tokenizer.encode(list(rows), text.max_answer_tokens)
questions = model.tokenizer.encode(questions, text.max_question_tokens)
of = np.repeat(np.arange(len(pairs)), [len(pool) for pool in pairs])
print(RankerScorer(model.ranker).score(questions, answers, of, np.concatenate(pairs)).shape)
"""


def write_files(folder: Path, questions: int, answers: int) -> None:
    """Write the same data as a table and in BEIR's layout, with a run file of all pairs."""
    draw = np.random.default_rng(0)
    share = 1 / np.arange(1, len(_WORDS) + 1)
    below = np.cumsum(share / share.sum())
    lengths = draw.poisson(_LENGTH, answers) + 1
    words = _WORDS[np.searchsorted(below, draw.random(lengths.sum())).clip(max=len(_WORDS) - 1)]
    texts = [" ".join(some) for some in np.split(words, np.cumsum(lengths)[:-1])]
    (folder / "qrels").mkdir()
    corpus = [json.dumps({"_id": f"d{i}", "title": "", "text": text}) for i, text in enumerate(texts)]
    (folder / "corpus.jsonl").write_text("\n".join(corpus))
    with (
        (folder / "faq.jsonl").open("w") as table,
        (folder / "queries.jsonl").open("w") as queries,
        (folder / "qrels" / "test.tsv").open("w") as qrels,
        (folder / "all.run").open("w") as run,
    ):
        qrels.write("query-id\tcorpus-id\tscore\n")
        for number in range(questions):
            relevant = int(draw.integers(answers))
            question = f"{' '.join(draw.choice(texts[relevant].split(), 8))} {number}"
            for index, text in enumerate(texts):
                row = {"question": question, "answer": text, "label": int(index == relevant)}
                table.write(json.dumps(row) + "\n")
            queries.write(json.dumps({"_id": f"q{number}", "text": question}) + "\n")
            qrels.write(f"q{number}\td{relevant}\t1\n")
            run.writelines(f"q{number} Q0 d{i} {i + 1} {-i} all\n" for i in range(answers))


def write_model(folder: Path) -> None:
    """Write AP-CNN with random weights."""
    torch.manual_seed(0)
    recipe = load_recipe("ap-cnn-paper", ["text.max_answer_tokens=400"])
    ranker = build_ranker(recipe, len(_WORDS) + 2, 100).eval()
    metadata = {"collection": "bench", "fingerprint": "bench", "seed": 0, "best_epoch": 0, "dev": {}}
    save_model(folder, ranker, WordTokenizer.from_words(_WORDS.tolist()), recipe, metadata, [])


def cpu_seconds(folder: Path, *arguments: str) -> float:
    """CPU seconds of a Python process."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    path = os.pathsep.join([str(Path.cwd()), os.environ.get("PYTHONPATH", "")])
    environment = {**os.environ, "PYTHONPATH": path}
    subprocess.run(
        [sys.executable, *arguments], check=True, cwd=folder, env=environment, stdout=subprocess.DEVNULL
    )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def run(folder: Path, options: argparse.Namespace) -> dict[str, dict[str, float]]:
    """CPU seconds of each step by layout."""
    write_files(folder, options.questions, options.answers)
    if options.model is None:
        write_model(folder / "model")
    model = str(options.model.absolute() if options.model is not None else folder / "model")
    depth = ["--depth", str(options.answers)]
    imports = {
        "table": ["table", "test=faq.jsonl"],
        "beir": ["retrieval", ".", "--run", "test=all.run", *depth],
    }
    seconds: dict[str, dict[str, float]] = {}
    for name, source in imports.items():
        scored = ["score", f"{name}/test.pools.parquet", "--model", model, "--output", f"{name}.run"]
        seconds[name] = {
            "import": cpu_seconds(folder, "-m", "aptool", "data", "import", *source, "--output", name),
            "score": cpu_seconds(folder, "-m", "aptool", *scored),
        }
    seconds["loop"] = {"score": cpu_seconds(folder, "-c", _LOOP, "faq.jsonl", model)}
    return seconds


def main() -> None:
    """Print a line per layout."""
    parser = benchmark_parser(__doc__)
    parser.add_argument("--questions", type=int, default=1249, help="(default 1249)")
    parser.add_argument("--answers", type=int, default=719, help="(default 719)")
    parser.add_argument("--model", type=Path, help="model folder")
    parser.add_argument("--output", type=Path, help="JSON file for the results")
    add_record(parser)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        seconds = run(Path(name), options)
    total = {name: sum(steps.values()) for name, steps in seconds.items()}
    print(f"{options.questions:,} questions, {options.answers:,} answers: CPU seconds")
    for name, steps in seconds.items():
        parts = ", ".join(f"{step} {spent:.1f}" for step, spent in steps.items())
        print(f"{name:<11} {total[name]:>7.1f}  {total['table'] / total[name]:.2f}  ({parts})")
    write_results(seconds, options)


if __name__ == "__main__":
    main()
