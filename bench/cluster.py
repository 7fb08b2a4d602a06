"""``aptool score --cluster`` beside plain Ray Data and beside one process, at equal cores.

    python -m bench.cluster [--pools 1800] [--scale 1] [--repeats 3] [--record FILE]

The input has the shape of InsuranceQA's test1: pools of 500 of 24,981 shared answers. The commands are timed
in turn, each from start to end. The cluster runs already: a head node without cores, and one-core nodes.

Plain Ray Data is a script of `read_parquet`, `map_batches` with an actor per core, and a run file written by
the driver. Its actors load the same model, and encode each distinct answer of a batch once.
"""

import hashlib
import logging
import os
import secrets
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import polars as pl

from aptool.data.runs import read_run
from bench.common import alternate, benchmark_parser, record, setting, speed_of
from bench.end_to_end import write_input

OBJECT_STORE = 100 << 20  # bytes per node

SCRIPT = """
import sys
import numpy as np
import polars as pl
import ray
from ray.data import ActorPoolStrategy, DataContext
from aptool.models.model import load_model
from aptool.scoring.ranker_scorer import RankerScorer

folder, cores, run = sys.argv[1], int(sys.argv[2]), sys.argv[3]

class Scorer:
    def __init__(self):
        answers = pl.read_parquet(f"{folder}/answers.parquet")
        self.texts = dict(zip(answers["answer_id"], answers["text"]))
        self.model = load_model(f"{folder}/model", "cpu")
        self.scorer = RankerScorer(self.model.ranker)

    def __call__(self, batch):
        pools = pl.from_arrow(batch)
        pairs = pools.with_row_index().explode("candidates").unnest("candidates")
        names = pairs["answer_id"].unique(maintain_order=True)
        rows = {name: row for row, name in enumerate(names)}
        encode, text = self.model.tokenizer.encode, self.model.recipe.text
        questions = encode(pools["question"].to_list(), text.max_question_tokens)
        answers = encode([self.texts[name] for name in names], text.max_answer_tokens)
        of = np.array([rows[name] for name in pairs["answer_id"]])
        scores = self.scorer.score(questions, answers, pairs["index"].to_numpy().astype(np.int64), of)
        return pairs.select("question_id", "answer_id", score=pl.Series(scores)).to_arrow()

ray.init(logging_level="ERROR")
DataContext.get_current().enable_progress_bars = False
pools = ray.data.read_parquet(f"{folder}/test.pools.parquet", override_num_blocks=4 * cores)
# Actors that reserve all cores would keep the tasks that list and read files from starting.
scored = pools.map_batches(
    Scorer, batch_format="pyarrow", batch_size=100, num_cpus=0, compute=ActorPoolStrategy(size=cores)
)
with open(run, "w") as file:
    for batch in scored.iter_batches(batch_format="pyarrow", batch_size=None):
        ranked = pl.from_arrow(batch).sort("question_id", "score", descending=[False, True])
        for rank, (question, answer, score) in enumerate(ranked.iter_rows(), 1):
            file.write(f"{question} Q0 {answer} {rank} {score:.9g} script\\n")
"""


def commands(folder: Path, cores: int, address: str) -> dict[str, list[str]]:
    """Arguments of Python for each way; each writes a run file of its name to the folder."""
    (folder / "script.py").write_text(SCRIPT, encoding="utf-8")
    score = ["-m", "aptool", "score", str(folder / "test.pools.parquet"), "--model", str(folder / "model")]
    score += ["--answers", str(folder / "answers.parquet"), "--overwrite", "--output"]
    return {
        "one process": [*score, str(folder / "one process.run")],
        "cluster": [*score, str(folder / "cluster.run"), "--cluster", address, "--workers", str(cores)],
        "Ray Data": [
            *(str(folder / "script.py"), str(folder), str(cores)),
            str(folder / "Ray Data.run"),
        ],
    }


def start(arguments: list[str], address: str, cores: int) -> None:
    """Run Python with all cores; plain Ray Data finds the cluster by the variable RAY_ADDRESS."""
    threads = {"OMP_NUM_THREADS": str(cores), "RAYON_NUM_THREADS": str(cores)}
    if "--cluster" not in arguments:
        threads["RAY_ADDRESS"] = address
    # Finished work of the command before would be used again.
    run = next(argument for argument in arguments if argument.endswith(".run"))
    Path(run).unlink(missing_ok=True)
    ended = subprocess.run(
        [sys.executable, *arguments], env={**os.environ, **threads}, capture_output=True, text=True
    )
    if ended.returncode:
        sys.exit(ended.stderr)


def measure(folder: Path, pools: int, scale: float, repeats: int, cores: int) -> dict[str, Any]:
    """Time the ways in turn; print and return the results."""
    write_input(folder, scale, pools)
    with nodes(folder, cores) as cluster:
        address = str(cluster.address)
        ways = {
            name: partial(start, arguments, address, cores)
            for name, arguments in commands(folder, cores, address).items()
        }
        seconds, _ = alternate(ways, repeats, warm_up=1)
    one, cluster_run, plain = (read_sorted(folder / f"{name}.run") for name in ways)
    if sha256(folder / "one process.run") != sha256(folder / "cluster.run"):
        sys.exit("the run file of the cluster differs from that of one process")
    difference = float((one["score"] - plain["score"]).abs().max())  # type: ignore[arg-type]
    rows = []
    print(
        f"{cluster_run.height:,} pairs, {cores} cores; Ray Data's scores differ by {difference:.1e} at most"
    )
    for name, values in seconds.items():
        speed = speed_of(seconds, name, "Ray Data")
        rows.append({"way": name, "seconds": statistics.median(values), **speed})
        print(
            f"{name:<12} {rows[-1]['seconds']:7.1f} s, {speed['speed']:.2f} times the speed of Ray Data "
            f"({speed['speed_min']:.2f} to {speed['speed_max']:.2f})"
        )
    return {"pairs": cluster_run.height, "cores": cores, "largest_difference": difference, "ways": rows}


def read_sorted(run: Path) -> pl.DataFrame:
    """The lines of a run file, sorted by their ids."""
    return read_run(run).frame.sort("question_id", "answer_id")


@contextmanager
def nodes(folder: Path, cores: int) -> Iterator[Any]:
    """A cluster of one-core nodes on this machine's loopback interface, with token authentication."""
    home = folder / "home"
    home.mkdir()
    root = str(Path(__file__).parent.parent)  # workers import bench
    os.environ.update(
        HOME=str(home),
        PYTHONPATH=os.pathsep.join(filter(None, (root, os.environ.get("PYTHONPATH")))),
        RAY_AUTH_MODE="token",
        RAY_AUTH_TOKEN=secrets.token_hex(16),
        RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER="0",
        RAY_USAGE_STATS_ENABLED="0",
    )
    from ray.cluster_utils import Cluster

    logging.getLogger("ray").setLevel(logging.ERROR)
    head = {"num_cpus": 0, "object_store_memory": OBJECT_STORE, "include_dashboard": False}
    started = Cluster(initialize_head=True, head_node_args=head)
    try:
        for _ in range(cores):
            started.add_node(num_cpus=1, object_store_memory=OBJECT_STORE)
        yield started
    finally:
        started.shutdown()


def sha256(path: Path) -> str:
    """The SHA-256 hash of a file."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


def main() -> None:
    """Print the results."""
    parser = benchmark_parser(__doc__, 3)
    parser.add_argument("--pools", type=int, default=1800, help="number of pools of 500 (default 1800)")
    parser.add_argument("--scale", type=float, default=1.0, help="fraction of 24,981 answers (default 1)")
    parser.add_argument("--cores", type=int, default=os.cpu_count() or 1, help="(default all)")
    options = parser.parse_args()
    print(setting(options))
    with tempfile.TemporaryDirectory() as name:
        results = measure(Path(name), options.pools, options.scale, options.repeats, options.cores)
    record(results, options.record)


if __name__ == "__main__":
    main()
