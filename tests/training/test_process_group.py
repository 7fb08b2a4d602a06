"""Several processes that train one model, as a single process does.

The processes are threads here, each with a separate model; they meet at a barrier for each all-reduce.
"""

import threading
from dataclasses import replace

import pytest
import torch
from small_training import ADAM, POSITIVES, SGD, always, made, train
from tiny import SYSTEMS, recipe, training_set

from aptool.errors import AptoolError
from aptool.models.initialization import TrainingTexts, make_vocabulary
from aptool.training.data import DevSet, read_texts
from aptool.training.process_group import SINGLE_PROCESS, ProcessGroup


class Meeting:
    """An exchange of values between threads."""

    def __init__(self, size):
        self.size = size
        self.values = {}
        self.barrier = threading.Barrier(size, timeout=30)

    def exchange(self, rank, value):
        self.values[rank] = value
        self.barrier.wait()
        collected = [self.values[number] for number in range(self.size)]
        self.barrier.wait()
        return collected


class ThreadGroup(ProcessGroup):
    def __init__(self, meeting, rank):
        self.meeting, self.rank, self.size = meeting, rank, meeting.size

    def all_reduce(self, tensor):
        return tensor.copy_(sum(self.meeting.exchange(self.rank, tensor.clone())))

    def broadcast(self, value):
        return self.meeting.exchange(self.rank, value)[0]

    def gather(self, value):
        return self.meeting.exchange(self.rank, value)

    def raise_in_all(self, problem):
        for collected in self.meeting.exchange(self.rank, problem):
            if collected is not None:
                raise collected


def in_threads(size, work):
    """Return the results of ``work(group)`` in ``size`` threads."""
    meeting, results = Meeting(size), [None] * size

    def run(rank):
        try:
            results[rank] = work(ThreadGroup(meeting, rank))
        except Exception as error:
            results[rank] = error
            if not isinstance(error, AptoolError):  # the other threads would wait forever
                meeting.barrier.abort()

    threads = [threading.Thread(target=run, args=(rank,)) for rank in range(size)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return results


def weights_after(system, options, group=SINGLE_PROCESS):
    examples = training_set(POSITIVES, 12)
    result = train(system, examples, options, seed=5, evaluate=always(0.5), group=group)
    return system.state_dict(), result.history


OPTIONS = {
    "sgd": replace(SGD, epochs=2, sampled_negatives=3),
    "adam": replace(ADAM, epochs=2, sampled_negatives=3, mining_interval=2, clip=0.5),
    "in batch": replace(ADAM, epochs=2, sampled_negatives=2, in_batch=True, loss="softmax", optimizer="sgd"),
    "of all": replace(ADAM, epochs=2, negatives="all", hard_negatives=2, mining_interval=0),
    "pairs only": replace(
        ADAM, epochs=2, sampled_negatives=0, in_batch=True, loss="softmax", optimizer="sgd"
    ),
}


@pytest.mark.parametrize("name", SYSTEMS)
@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS.keys())
def test_several_processes_train_as_a_single_process(name, options):
    # Nine pairs in minibatches of four: the last has one pair, fewer than there are processes.
    alone, history = weights_after(made(name), options)
    systems = [made(name) for _ in range(3)]

    together = in_threads(3, lambda group: weights_after(systems[group.rank], options, group))

    for weights, history_of_process in together:
        for key, weight in weights.items():
            # The order of sums differs.
            torch.testing.assert_close(weight, alone[key], atol=1e-5, rtol=1e-4)
            assert torch.equal(weight, together[0][0][key])
        assert [entry["loss"] for entry in history_of_process] == pytest.approx(
            [entry["loss"] for entry in history], 1e-4
        )
        assert [entry["active"] for entry in history_of_process] == pytest.approx(
            [entry["active"] for entry in history]
        )


def test_processes_share_the_scoring_of_dev_and_agree_on_its_measures(collection):
    tiny_recipe = recipe("ap-cnn")
    texts = read_texts(collection, "train").all()
    tokenizer, _, tiny_recipe = make_vocabulary(tiny_recipe, TrainingTexts(texts, lambda: iter(()), 0))
    dev = DevSet(collection, "dev", tokenizer, tiny_recipe.text)
    system = made("ap-cnn")
    system.encoder.embedding = torch.nn.Embedding(len(tokenizer), 6)
    alone = dev.measures(system.eval(), "nDCG@5")

    for measures in in_threads(3, lambda group: dev.measures(system, "nDCG@5", group)):
        assert measures == pytest.approx(alone)


def test_an_error_in_one_process_is_raised_in_all():
    def work(group):
        with group.together():
            if group.rank == 1:
                raise AptoolError("rank 1 failed")

    assert [str(error) for error in in_threads(3, work)] == ["rank 1 failed"] * 3


def test_the_first_process_runs_before_the_other_processes():
    collected = {0: None}

    def work(group):
        with group.first_process_first():
            if group.rank == 0:
                collected[0] = "left behind"
            else:
                collected[group.rank] = collected[0]

    assert in_threads(3, work) == [None] * 3
    assert collected == dict.fromkeys(range(3), "left behind")


@pytest.mark.parametrize("failing", [0, 2])
def test_an_error_before_or_after_the_first_process_is_raised_in_all(failing):
    began = []

    def work(group):
        with group.first_process_first():
            began.append(group.rank)
            if group.rank == failing:
                raise AptoolError("failed")

    assert [str(error) for error in in_threads(3, work)] == ["failed"] * 3
    assert sorted(began) == ([0] if failing == 0 else [0, 1, 2])


@pytest.mark.parametrize("size", [1, 2, 3, 7])
def test_shards_are_a_partition(size):
    groups = [ThreadGroup(Meeting(size), rank) for rank in range(size)]
    for rows in (0, 1, 2, 5, 7, 20):
        collected = [row for group in groups for row in range(rows)[group.shard(rows)]]

        assert collected == list(range(rows))
