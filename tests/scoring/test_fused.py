"""The fused kernel in Triton's interpreter against the definition, and compiled for a GPU."""

import json
import os
import platform
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from aptool.models.attention import AttentivePooling
from aptool.models.ragged import Ragged
from aptool.scoring.encoded import EncodedAnswers, Pairs
from aptool.scoring.kernels import attentive_fused
from aptool.scoring.kernels.attentive_fused import score_fused, tile_of

if sys.platform != "linux" or platform.machine() != "x86_64":
    pytest.skip("there is no wheel of Triton for this machine", allow_module_level=True)


def interpreted(programs, inputs, options):
    """Run the program on CPU tensors; the interpreter multiplies fp32 only."""
    from aptool.scoring.kernels.attentive_triton import join

    join[(programs,)](*inputs, inputs[0].shape[1], **options | {"CAST": True, "PRECISION": "ieee"})


@pytest.fixture(autouse=True)
def interpreter(monkeypatch):
    monkeypatch.setattr(attentive_fused, "_launch", interpreted)


@st.composite
def cases(draw):
    lengths = (
        st.lists(st.integers(1, 20), min_size=1, max_size=4),
        st.lists(st.integers(1, 70), min_size=1, max_size=4),
    )
    questions, answers = (np.array(draw(sizes)) for sizes in lengths)
    pair = st.tuples(st.integers(0, len(answers) - 1), st.integers(0, len(questions) - 1))
    return questions, answers, np.array(sorted(draw(st.lists(pair, min_size=1, max_size=40))))


def states(sizes, c, generator):
    return Ragged.of_sizes(torch.randn(int(sizes.sum()), c, generator=generator), sizes)


def both(questions, answers, pairs, c, sharpness, dtype=torch.float32):
    """Return the scores of the kernel and of the definition."""
    generator = torch.Generator().manual_seed(0)
    options = AttentivePooling.Options(scale=c**-0.5, sharpness=sharpness)
    torch.manual_seed(0)
    pooling = AttentivePooling(c, options)
    Q, A = states(questions, c, generator), states(answers, c, generator)
    present, counts = np.unique(pairs[:, 0], return_counts=True)
    # The answers are in two batches, in reverse.
    turned = A.select(np.arange(len(answers))[::-1].copy())
    last = Ragged.of_sizes(turned.values[: answers[-1]], answers[-1:])
    reversed_answers = Ragged.of_sizes(turned.values[answers[-1] :], answers[:-1][::-1])
    starts = np.concatenate([(np.cumsum(reversed_answers.sizes) - reversed_answers.sizes)[::-1], [0]])
    batch = np.array([*[1] * (len(answers) - 1), 0])
    encoded = EncodedAnswers(
        [last.values.to(dtype), reversed_answers.values.to(dtype)], batch, starts, answers, answers
    )
    with torch.inference_mode():
        actual = score_fused(
            Q, Q.values @ pooling.U, encoded.select(present), Pairs(pairs[:, 1], counts), sharpness
        )
        expected = pooling.score_pairs(Q.select(pairs[:, 1]), A.select(pairs[:, 0]))
    return actual.numpy(), expected.numpy()


@settings(max_examples=25)
@given(
    case=cases(),
    c=st.sampled_from([3, 33, 80]),
    sharpness=st.sampled_from([1.0, 5.0]),
)
def test_scores_are_those_of_the_definition(case, c, sharpness):
    actual, expected = both(*case, c, sharpness)

    np.testing.assert_allclose(actual, expected, atol=1e-5, rtol=0)


def test_pairs_that_fit_no_tile_are_scored():
    # 40 question tokens take 64 slots: with 300 answer tokens no tile of registers holds sixteen such pairs.
    assert tile_of(64, 512, torch.float32) is None
    questions, answers = np.array([3, 40]), np.array([300, 2, 50])
    pairs = np.array([[0, 0], [0, 1], [1, 1], [2, 0], [2, 1]])

    actual, expected = both(questions, answers, pairs, 24, 2.0)

    np.testing.assert_allclose(actual, expected, atol=1e-5, rtol=0)


def test_an_answer_may_have_more_pairs_than_a_program():
    pairs = np.array([[0, 0]] * 3 + [[1, question % 3] for question in range(150)])

    actual, expected = both(np.array([5, 2, 8]), np.array([7, 30]), pairs, 16, 1.0)

    np.testing.assert_allclose(actual, expected, atol=1e-5, rtol=0)


def test_scores_in_bf16_are_close_and_not_equal():
    pairs = np.array([[0, 0], [0, 1], [1, 0], [1, 1]])

    actual, expected = both(np.array([5, 9]), np.array([20, 33]), pairs, 32, 1.0, torch.bfloat16)

    assert 1e-6 < np.abs(actual - expected).max() < 0.01  # eight bits of each number


@pytest.fixture(scope="module")
def compiled():
    """Resources of the compiled program for the common tile and the largest tiles, compute capability 9.0."""
    script = Path(__file__).with_name("compile_fused.py")
    environment = {**os.environ, "TRITON_INTERPRET": "0", "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, script], env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return json.loads(done.stdout)


def test_the_compiled_kernel_spills_nothing_and_uses_tensor_cores(compiled):
    assert len(compiled) == 3
    for tile, usage in compiled.items():
        assert usage["spilled"] == 0, tile
        assert usage["registers"] <= 255, tile
        assert usage["tensor_core_instructions"] > 0, tile
        assert usage["shared_bytes"] <= 227 * 1024, tile
