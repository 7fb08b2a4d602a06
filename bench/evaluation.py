"""Evaluation of a run of 900,000 lines, compared with the trec_eval program if it is on the PATH.

    python -m bench.evaluation [--repeats 5] [--trec-eval PROGRAM] [--record FILE]

Both read the same two files and report MAP, MRR and P@1. The time to start the interpreter and to import
modules is not counted.
"""

import shutil
import statistics
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from aptool.data.runs import Qrels, Run, read_run
from aptool.data.trec import read_qrels
from aptool.evaluation.measures import evaluate_frames
from bench.common import benchmark_parser, record

MEASURES = {"MAP": "map", "MRR": "recip_rank", "P@1": "P.1"}  # and their names in trec_eval


def write_files(folder: Path, questions: int = 1800, candidates: int = 500) -> tuple[Path, Path]:
    """A run with random scores and qrels with one relevant answer per question, as in InsuranceQA."""
    generator = np.random.default_rng(0)
    pair_question = np.repeat(np.arange(questions), candidates)
    answers = np.concatenate([generator.choice(25_000, candidates, replace=False) for _ in range(questions)])
    run = pl.DataFrame(
        {
            "question_id": pl.Series(pair_question).cast(pl.String).str.replace("^", "q"),
            "answer_id": pl.Series(answers).cast(pl.String).str.replace("^", "a"),
            "score": generator.standard_normal(len(pair_question)).astype(np.float32),
        }
    )
    Run(run, "bench").save(folder / "bench.run")
    relevant = run.filter(pl.Series(np.arange(len(pair_question)) % candidates == 0))
    Qrels(relevant.with_columns(relevance=pl.lit(1))).save(folder / "bench.qrels")
    return folder / "bench.run", folder / "bench.qrels"


def run(repeats: int, program: str | None) -> dict[str, Any]:
    """Measure and print; return the results."""
    with tempfile.TemporaryDirectory() as name:
        run_path, qrels_path = write_files(Path(name))
        ours, theirs = [], []
        for _ in range(repeats):
            begun = time.perf_counter()
            means = evaluate_frames(read_qrels(qrels_path), read_run(run_path).frame, MEASURES).means
            ours.append(time.perf_counter() - begun)
            if program is not None:
                begun = time.perf_counter()
                command = [program, "-c", *(f"-m{name}" for name in MEASURES.values())]
                finished = subprocess.run(
                    [*command, str(qrels_path), str(run_path)], capture_output=True, text=True, check=True
                )
                theirs.append(time.perf_counter() - begun)
                printed = [float(line.split()[2]) for line in finished.stdout.splitlines()]
                assert np.allclose(printed, [means[measure] for measure in MEASURES], atol=1e-4)
    line = f"evaluation of 900,000 lines: {statistics.median(ours):.2f} s"
    if theirs:
        ratio = statistics.median(mine / other for mine, other in zip(ours, theirs, strict=True))
        line += f", trec_eval {statistics.median(theirs):.2f} s, ratio {ratio:.2f}"
    else:
        line += " (trec_eval is not on the PATH)"
    print(line, flush=True)
    return {"seconds": ours, "trec_eval_seconds": theirs}


def main() -> None:
    """Print the results."""
    parser = benchmark_parser(__doc__, 5)
    parser.add_argument("--trec-eval", default=shutil.which("trec_eval"), help="path of trec_eval")
    options = parser.parse_args()
    record(run(options.repeats, options.trec_eval), options.record)


if __name__ == "__main__":
    main()
