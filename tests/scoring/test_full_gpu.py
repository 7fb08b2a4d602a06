"""Commands on a simulated GPU of any size: the result, or one line with a remedy; never a traceback."""

import re

import pytest
from simulated_gpu import SimulatedGpu

REMEDY = re.compile(r"aptool: .*(out of memory|GiB free).*; expected .*(--device cpu|cuda:\d)")
FRACTIONS = (0.0, 0.02, 0.1, 0.3, 0.5, 0.7, 0.9, 0.97)


@pytest.mark.parametrize("command", ["score", "train", "explain"])
def test_a_full_gpu_is_one_line(command, aptool, model_folder, collection_folder, tmp_path):
    arguments = {
        "score": (collection_folder / "test.pools.parquet", "--model", model_folder),
        "train": (collection_folder, "--preset", "ap-cnn", "--set", "training.epochs=1"),
        "explain": ("--model", model_folder, "--question", "where is it", "--answer", "near the bridge"),
    }[command]

    def run(name, memory):
        output = () if command == "explain" else ("--output", tmp_path / name)
        with SimulatedGpu(memory) as gpu:
            return aptool(command, *arguments, "--device", "cuda", *output), gpu

    done, gpu = run("whole", None)
    assert done.code == 0, done.err
    outcomes = []
    for fraction in FRACTIONS:
        done, limited = run(f"at-{fraction}", int(fraction * gpu.peak_bytes))
        outcomes.append((done.code, limited.refused))
        assert done.code == 0 or (done.code == 1 and REMEDY.match(done.err[-1])), (fraction, done.err)

    assert (0, 0) not in outcomes
