"""Learned fusion: weights by another fit, no question fused by its own labels."""

import numpy as np
import polars as pl
import pytest
from scipy.optimize import minimize

from aptool.errors import AptoolError
from aptool.evaluation.fusion import learn_fusion


def run_of(rankings):
    rows = [(q, a, float(s)) for q, scores in rankings.items() for a, s in scores.items()]
    return pl.DataFrame(rows, schema=["question_id", "answer_id", "score"], orient="row")


def simulated(questions, seed=0, prefix="q"):
    """Two runs of eight candidates: the first tells the relevant one with noise, the second not at all."""
    generator = np.random.default_rng(seed)
    good, bad, labels = {}, {}, []
    for number in range(questions):
        question = f"{prefix}{number}"
        relevant = int(generator.integers(8))
        noise = generator.normal(size=8)
        good[question] = {f"a{i}": 100 + 10 * (noise[i] + 2 * (i == relevant)) for i in range(8)}
        bad[question] = {f"a{i}": generator.normal() for i in range(8)}
        labels.append((question, f"a{relevant}", 1))
    return (
        run_of(good),
        run_of(bad),
        pl.DataFrame(labels, ["question_id", "answer_id", "relevance"], orient="row"),
    )


def standardized(rankings):
    """Question id and answer id -> standardized score; by the definition, in plain Python."""
    result = {}
    for question, scores in rankings.items():
        mean = sum(scores.values()) / len(scores)
        deviation = (sum((score - mean) ** 2 for score in scores.values()) / len(scores)) ** 0.5
        result |= {(question, answer): (score - mean) / deviation for answer, score in scores.items()}
    return result


def test_weights_equal_those_of_another_logistic_regression_solver():
    good, bad, qrels = simulated(40)
    runs = [{}, {}]
    for run, frame in zip(runs, (good, bad), strict=True):
        for question, answer, score in frame.rows():
            run.setdefault(question, {})[answer] = score
    # The second run lacks a candidate, which gets its lowest score, and a question, of which all get 0.
    del runs[1]["q0"]["a0"], runs[1]["q1"]
    first, second = map(standardized, runs)
    lowest = min(score for (question, _), score in second.items() if question == "q0")
    x = np.array([(first[pair], second.get(pair, lowest if pair[0] == "q0" else 0.0)) for pair in first])
    relevant = {row[:2] for row in qrels.rows()}
    y = np.array([pair in relevant for pair in first])

    fused = learn_fusion(runs, qrels, train_runs=runs)

    def loss(w):  # the ridge of scikit-learn's default C = 1; the intercept is free
        return np.logaddexp(0, -(2 * y - 1) * (x @ w[:2] + w[2])).sum() + (w[:2] ** 2).sum() / 2

    expected = minimize(loss, np.zeros(3), tol=1e-10).x
    weights = [mean for mean, _ in fused.weights]
    np.testing.assert_allclose(weights, expected[:2], atol=1e-3)
    assert weights[0] > 1 > abs(weights[1])
    assert fused.questions == 40


@pytest.mark.parametrize("scale", [2.0**-1000, 2.0**600, 2.0**1010])
def test_scores_of_any_size_have_the_weights_of_ordinary_scores(scale):
    """Squares or differences of these scores overflow or vanish; standardized scores do not change."""
    good, bad, qrels = simulated(10)
    scaled = [frame.with_columns(pl.col("score") * scale) for frame in (good, bad)]

    ordinary, fused = (learn_fusion(runs, qrels, train_runs=runs) for runs in ((good, bad), scaled))

    assert fused.weights == ordinary.weights
    assert fused.run.frame.equals(ordinary.run.frame)


def test_new_questions_follow_the_run_that_was_right_in_training():
    good, bad, qrels = simulated(300)
    new_good, new_bad, new_qrels = simulated(40, seed=5, prefix="new")

    fused = learn_fusion([new_good, new_bad], qrels, train_runs=[good, bad])

    result = firsts(fused.run.frame, new_qrels)
    assert result > firsts(new_bad, new_qrels) + 0.2
    assert result >= firsts(new_good, new_qrels) - 0.1
    assert fused.run.frame.height == new_good.height
    again = learn_fusion([new_good, new_bad], qrels, train_runs=[good, bad])
    assert fused.run.frame.equals(again.run.frame)


def firsts(run, qrels):
    best = run.sort("score").group_by("question_id", maintain_order=True).last()
    return best.join(qrels, on=["question_id", "answer_id"]).height / best.height


def test_no_question_is_fused_by_its_own_labels():
    good, bad, qrels = simulated(20)
    before = learn_fusion([good, bad], qrels, folds=4)
    of_question = before.run.frame.filter(pl.col("question_id") == "q3")
    # The relevant answer of q3 is another one now: its own scores stay, others' change.
    moved = qrels.with_columns(
        pl.when(pl.col("question_id") == "q3").then(pl.lit("a0")).otherwise("answer_id").alias("answer_id")
    )
    assert not moved.equals(qrels)

    after = learn_fusion([good, bad], moved, folds=4)

    assert after.run.frame.filter(pl.col("question_id") == "q3").equals(of_question)
    assert not after.run.frame.equals(before.run.frame)
    assert len(before.weights) == 2
    assert all(deviation > 0 for _, deviation in before.weights)


def test_unjudged_questions_are_fused_by_a_model_of_all_judged_questions():
    good, bad, qrels = simulated(20)
    judged = qrels.filter(pl.col("question_id") != "q3")

    folds = learn_fusion([good, bad], judged, folds=3)
    whole = learn_fusion([good, bad], judged, train_runs=[good, bad])

    def of_q3(fusion):
        return fusion.run.frame.filter(pl.col("question_id") == "q3")

    assert of_q3(folds).equals(of_q3(whole))
    assert folds.run.frame.height == good.height


def test_runs_that_cannot_be_fitted_are_refused():
    good, bad, qrels = simulated(5)

    with pytest.raises(AptoolError, match="no candidate is judged relevant in 5 questions"):
        learn_fusion([good, bad], qrels.with_columns(relevance=pl.lit(0)), train_runs=[good, bad])
    moved = qrels.with_columns(question_id="x" + pl.col("question_id"))
    with pytest.raises(AptoolError, match="no candidate is judged relevant in 0 questions"):
        learn_fusion([good, bad], moved, train_runs=[good, bad])
    with pytest.raises(AptoolError, match="5 judged questions are too few for 6 folds"):
        learn_fusion([good, bad], qrels, folds=6)
