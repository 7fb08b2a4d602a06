"""A teacher: losses by hand, no gradient for equal scores, and invalid runs."""

import math
from dataclasses import replace

import numpy as np
import polars as pl
import pytest
import torch
from small_training import SGD, always, made
from tiny import recipe, training_set

from aptool.config import TeacherOptions, TrainingOptions
from aptool.errors import InputError
from aptool.formats.collection import CollectionFiles
from aptool.formats.pools import list_units, read_pools
from aptool.formats.runs import write_run
from aptool.models.build import check_recipe
from aptool.models.model import load_model
from aptool.models.start import training_recipe
from aptool.scoring.score import score_files
from aptool.scoring.systems import RandomScores
from aptool.training.data import Teacher
from aptool.training.fit import fit
from aptool.training.loop import train
from aptool.training.losses import batch_losses, distillation_loss, listwise_kl, margin_mse, score_batch
from aptool.training.texts import read_teacher

NONE, UNKNOWN = -math.inf, math.nan


def test_margins_by_hand():
    # Margins .5 - .1 = .4 and .5 - .3 = .2 against 1 and 0: (.36 + .04) / 2. Unknown scores do not count.
    scores = torch.tensor([[0.5, 0.1, 0.3], [0.5, 0.1, 0.3], [0.5, NONE, 0.3], [0.5, 0.1, 0.3]])
    taught = torch.tensor([[2.0, 1, 2], [2, UNKNOWN, 2], [2, 1, 2], [UNKNOWN, 1, 2]])

    assert margin_mse(scores, taught).tolist() == pytest.approx([0.2, 0.04, 0.04, 0], abs=1e-6)


def test_divergence_by_hand():
    # Teacher 3/4 and 1/4, student even: 3/4 ln(3/2) + 1/4 ln(1/2) = .304099 - .173287.
    scores = torch.tensor([[1.0, 1, 5], [1, 1, NONE], [1, 1, 1]])
    taught = torch.tensor([[math.log(3), 0, UNKNOWN], [math.log(3), 0, 7], [UNKNOWN, UNKNOWN, UNKNOWN]])

    assert listwise_kl(scores, taught).tolist() == pytest.approx([0.130812, 0.130812, 0], abs=1e-6)


@pytest.mark.parametrize("kind", ["margin-mse", "kl"])
def test_no_gradient_where_the_student_equals_the_teacher(kind):
    scores = torch.tensor([[0.5, 0.1, NONE, 0.3], [0.2, 0.9, 0.4, 0.1]], requires_grad=True)
    options = TeacherOptions("run", kind, weight=1.0)

    losses = distillation_loss(torch.ones(2), scores, scores.detach(), 0.05, options)
    losses.sum().backward()

    assert losses.tolist() == pytest.approx([0, 0], abs=1e-6)
    assert scores.grad.abs().max() < 1e-5


def test_weight_and_scale():
    scores, taught = torch.tensor([[0.5, 0.1]]), torch.tensor([[20.0, 10.0]])
    options = TeacherOptions("run", "margin-mse", 0.25, scale=0.1)

    losses = distillation_loss(torch.tensor([8.0]), scores, taught, 0.05, options)

    assert losses.tolist() == pytest.approx([0.75 * 8 + 0.25 * (0.4 - 1) ** 2])


@pytest.mark.parametrize("in_batch", [False, True])
@pytest.mark.parametrize("kind", ["margin-mse", "kl"])
def test_a_system_with_its_own_scores_as_teacher_does_not_change(kind, in_batch):
    examples = training_set([[0], [1], [2]], answers=6)
    system = made("qa-cnn")
    every = [(q, a) for q in range(3) for a in range(6)]
    with torch.inference_mode():
        own_scores = [float(batch_scores(system, examples, q, a)) for q, a in every]
    keys = np.array([q * 6 + a for q, a in every])
    teacher = Teacher(
        keys, np.array(own_scores, dtype=np.float32), 6, TeacherOptions("run", kind, weight=1.0)
    )
    before = {name: weight.clone() for name, weight in system.state_dict().items()}
    options = replace(SGD, negatives="pool", in_batch=in_batch, loss="softmax", sampled_negatives=3)

    train(system, replace(examples, teacher=teacher), options, seed=0, evaluate=always(0.5))

    for name, weight in system.state_dict().items():
        torch.testing.assert_close(weight, before[name], atol=1e-5, rtol=0)


def batch_scores(system, examples, question, answer):
    return score_batch(system, examples, np.array([[question, answer]]), in_batch=False)[0, 0].detach()


def test_a_start_model_does_not_add_its_teacher(collection, tmp_path):
    """The teacher has scores for other questions, possibly with equal ids."""
    frame = pairs(collection, "train").with_columns(score=pl.lit(1.0))
    write_run(tmp_path / "teacher.run", frame, "teacher")
    fit(collection, taught(tmp_path / "teacher.run", "teacher.weight=0.25"), tmp_path / "model")

    again = training_recipe(None, [], start=str(tmp_path / "model"))
    with_teacher = training_recipe(None, ["teacher.run=other.run"], start=str(tmp_path / "model"))

    assert (again.teacher.run, again.teacher.weight) == ("", 0.25)
    assert with_teacher.teacher.run == "other.run"


def test_the_scores_of_the_teacher_match_the_columns_of_a_batch():
    examples = training_set([[0], [1]], answers=4)
    keys = np.array([0, 1, 2, 3, 4, 5, 6, 7])
    scores = np.arange(8, dtype=np.float32) / 10
    options = TrainingOptions(loss="softmax", temperature=1.0)
    batch = np.array([[0, 0, 2], [1, 1, 3]])
    system = made("qa-cnn")

    def losses(in_batch, weight):
        teacher = Teacher(keys, scores, 4, TeacherOptions("run", "margin-mse", weight))
        batch_options = replace(options, in_batch=in_batch)
        return batch_losses(system, replace(examples, teacher=teacher), batch, batch_options).tolist()

    s = {(q, a): float(batch_scores(system, examples, q, a)) for q in (0, 1) for a in range(4)}
    t = {(q, a): scores[4 * q + a] for q in (0, 1) for a in range(4)}

    def margin(q, *negatives):
        of = [((s[q, q] - s[q, a]) - (t[q, q] - t[q, a])) ** 2 for a in negatives]
        return sum(of) / len(of)

    assert losses(False, 1.0) == pytest.approx([margin(0, 2), margin(1, 3)], abs=1e-5)
    assert losses(True, 1.0) == pytest.approx([margin(0, 1, 2, 3), margin(1, 0, 2, 3)], abs=1e-5)


def pairs(collection, split="train"):
    """Return question_id and answer_id of every pair of a split."""
    row_groups = [read_pools(unit) for unit in list_units([collection.pools(split)])]
    return pl.concat(
        pl.DataFrame(
            {
                "question_id": pl.Series(pools.question_ids).gather(pools.pair_question),
                "answer_id": pl.Series(pools.answer_ids),
            }
        )
        for pools in row_groups
    )


@pytest.fixture
def collection(collection_folder):
    return CollectionFiles(collection_folder)


def taught(path, *more):
    return recipe("qa-cnn", f"teacher.run={path}", *more)


def test_scores_are_looked_up_by_both_ids(collection, tmp_path):
    frame = pairs(collection)
    frame = frame.with_columns(score=np.arange(len(frame)) / 8)
    write_run(tmp_path / "teacher.run", frame.sample(fraction=1, shuffle=True, seed=1), "teacher")

    actual = read_teacher(collection, taught(tmp_path / "teacher.run"))

    assert actual.of(np.array([0, 0, 39]), np.array([[0], [10**6], [0]])).tolist()[0] == [0.0]
    assert np.isnan(actual.of(np.array([0]), np.array([[actual.answers - 1]]))).all()
    assert sorted(actual.scores.tolist()) == frame["score"].to_list()


def test_a_run_that_lacks_a_pair_is_an_error(collection, tmp_path):
    frame = pairs(collection).with_columns(score=pl.lit(1.0))
    question, answer, _ = frame.row(7)
    write_run(tmp_path / "teacher.run", pl.concat([frame[:7], frame[8:]]), "teacher")

    with pytest.raises(InputError) as raised:
        fit(collection, taught(tmp_path / "teacher.run"), tmp_path / "model")

    assert f"question {question!r}, answer {answer!r}: 1 of {len(frame)} training pairs" in str(raised.value)
    assert "\n" not in str(raised.value)


def test_a_run_of_other_pools_is_an_error(collection, tmp_path):
    write_run(tmp_path / "teacher.run", pairs(collection, "dev").with_columns(score=pl.lit(1.0)), "teacher")

    with pytest.raises(InputError, match=r"other pools only; expected scores of the pairs of .*train"):
        fit(collection, taught(tmp_path / "teacher.run"), tmp_path / "model")


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["training.negatives=corpus"], "pool or mix with a teacher"),
        (["teacher.weight=1.5"], "at most 1"),
        (["mixture.collections=['x']"], "none with a teacher"),
    ],
)
def test_options_incompatible_with_a_teacher_are_an_error(options, said):
    with pytest.raises(InputError, match=said):
        check_recipe(taught("teacher.run", *options))


def test_a_missing_run_is_an_error(collection, tmp_path):
    with pytest.raises(InputError, match=r"teacher\.run: file not found; expected a file that exists"):
        fit(collection, taught(tmp_path / "teacher.run"), tmp_path / "model")


def test_a_fused_run_may_be_a_teacher(aptool, collection, tmp_path):
    for seed in (1, 2):
        run = tmp_path / f"{seed}.run"
        score_files(list_units([collection.pools("train")]), RandomScores(seed), run, tag="t")
    assert aptool("fuse", tmp_path / "1.run", tmp_path / "2.run", "--output", tmp_path / "both.run").code == 0

    done = aptool(
        *("train", collection.path, "--preset", "qa-cnn", "--teacher", tmp_path / "both.run"),
        *("--output", tmp_path / "student", "--set", "training.epochs=1", "--set", "training.negatives=pool"),
        *("--set", "vectors.source=random"),
    )

    assert done.code == 0, done.err
    assert load_model(tmp_path / "student").recipe.teacher.run == str(tmp_path / "both.run")


def test_folder_as_teacher_is_refused(aptool, collection, model_folder, tmp_path):
    done = aptool(
        *("train", collection.path, "--preset", "qa-cnn", "--teacher", model_folder),
        *("--output", tmp_path / "student", "--set", "training.negatives=pool"),
    )

    expected = f"{model_folder}: a folder; expected a file"
    assert (done.code, len(done.err)) == (1, 1)
    assert expected in done.err[0]
    assert not (tmp_path / "student").exists()
