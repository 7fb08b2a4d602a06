"""Scoring on a simulated GPU: the CPU's scores, one device, few waits and launches, bounded memory."""

import numpy as np
import pytest
from published import published_ranker, with_words
from simulated_gpu import SimulatedGpu
from tiny import OVER_STATES, SYSTEMS, pooled, ranker, tokens

from aptool.models import ragged
from aptool.scoring import kernels
from aptool.scoring.ranker_scorer import RankerScorer


def workload(questions, answers, pool, seed=0, longest=40):
    generator = np.random.default_rng(seed)
    texts = [
        tokens(*([*generator.integers(2, 300, size=generator.integers(1, most))] for _ in range(count)))
        for count, most in ((questions, 12), (answers, longest))
    ]
    candidates = [generator.choice(answers, pool, replace=False) for _ in range(questions)]
    return *texts, np.repeat(np.arange(questions), pool), np.concatenate(candidates)


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
@pytest.mark.parametrize("name", SYSTEMS)
def test_scores_are_those_of_a_cpu_and_the_host_waits_once(name, precision):
    system = ranker(name, words=300, dim=12, size=16)
    work = workload(20, 60, 30)
    expected = RankerScorer(system, precision=precision).score(*work)

    with SimulatedGpu() as gpu:
        scorer = RankerScorer(system.to("cuda"), device="cuda", precision=precision, cache_bytes=1 << 20)
        gpu.reset()
        keys = np.arange(60)
        first, again = scorer.score(*work, keys), scorer.score(*work, keys)

    assert gpu.waits.total() == 2, gpu.waits  # for the scores of each call
    np.testing.assert_allclose(first, expected, atol=1e-5 if precision == "fp32" else 0.02, rtol=0)
    np.testing.assert_allclose(again, first, atol=1e-6, rtol=0)


@pytest.mark.parametrize("pooling", OVER_STATES)
def test_launches_do_not_grow_with_pairs_answers_or_precision(pooling):
    counts = {}
    for precision in ("fp32", "bf16"):
        for times in (1, 4):
            work = workload(10 * times, 50 * times, 20)
            with SimulatedGpu() as gpu:
                system = pooled(pooling, words=300, dim=12, size=16).to("cuda")
                scorer = RankerScorer(system, device="cuda", precision=precision)
                gpu.reset()
                scorer.score(*work)
            assert gpu.waits.total() == 1, gpu.waits
            counts[precision, times] = gpu.launches

    assert max(counts.values()) <= 120, counts
    assert max(counts.values()) <= min(counts.values()) + 6, counts


def test_a_window_has_few_launches_and_copies(monkeypatch):
    monkeypatch.setattr(ragged, "HOST_INDICES", 0)  # as in windows of many tokens
    counts = []
    work = workload(60, 400, 100)
    for tokens_per_batch in (4000, 2000):
        windows = []
        with SimulatedGpu() as gpu:
            system = ranker("ap-cnn", words=300, dim=12, size=16).to("cuda")
            scorer = RankerScorer(system, device="cuda", tokens_per_batch=tokens_per_batch)
            gpu.reset()
            scorer.score(*work, progress=windows.append)
        counts.append(np.array([len(windows), gpu.launches, len(gpu.sent)]))

    windows, launches, sent = counts[1] - counts[0]
    assert windows >= 2
    assert launches / windows <= 122
    assert sent / windows <= 7
    # The tokens of answers; and of each pair its question, the offsets of its tokens and its answer.
    assert sum(gpu.sent) <= 4 * len(work[1].ids) + 24 * len(work[2]), gpu.sent


@pytest.mark.parametrize(("name", "most"), [("tan-2015", 135), ("yin-2015", 155)])
def test_thousands_of_pairs_share_the_launches_of_a_general_pooling(name, most):
    questions, answers, *pairs = workload(60, 200, 80)
    with SimulatedGpu() as gpu:
        scorer = RankerScorer(published_ranker(name, words=300).eval().to("cuda"), device="cuda")
        gpu.reset()
        scorer.score(with_words(questions), with_words(answers), *pairs)

    assert gpu.launches <= most, gpu.waits
    assert not any("models/papers" in line for _, line in gpu.waits), gpu.waits


@pytest.mark.parametrize("pooling", ["attentive", "maxsim", "mean-maxsim"])
def test_memory_does_not_grow_with_the_number_of_pairs(pooling, monkeypatch):
    # Answers as short as questions: not the products, but states of questions and vectors are largest.
    monkeypatch.setattr(kernels, "ELEMENTS", 1 << 14)
    peaks = []
    for pool in (8, 30):
        work = workload(30, 30, pool, longest=5)
        with SimulatedGpu() as gpu:
            system = pooled(pooling, words=300, dim=12, size=32).to("cuda")
            scorer = RankerScorer(system, device="cuda", tokens_per_batch=300)
            gpu.reset()
            scorer.score(*work)
        peaks.append(gpu.peak_bytes)
    assert peaks[1] <= 1.05 * peaks[0]
