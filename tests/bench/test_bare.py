"""Benchmarks of a GPU without the packages for files, measures and clusters."""

import subprocess
import sys

PROGRAM = """
import sys

missing = "ray polars click rich pytrec_eval jsonschema tqdm fsspec transformers matplotlib"
sys.modules |= dict.fromkeys(missing.split())  # importing None raises ModuleNotFoundError
import torch
import bench.__main__
from bench import gpu_training, scoring, systems
from bench.workloads import wikiqa
gpu_training.measure("ap-cnn", 0.001, 1, torch.device("cpu"))
scoring.measure("ap-cnn-paper", wikiqa(), 1, torch.device("cpu"))
systems.measure("severyn-2015", systems.with_words(wikiqa()), 1)
"""


def test_gpu_benchmarks_need_only_torch_and_numpy():
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=False)

    assert done.returncode == 0, done.stderr[-2000:]
