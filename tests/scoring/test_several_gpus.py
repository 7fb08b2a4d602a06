"""Several GPUs of one machine: the run of a single one, whichever of them scores which row group."""

import contextlib
import threading
from types import SimpleNamespace

import pytest
import torch
from simulated_gpu import SimulatedGpu
from tiny import Opened, labelled_pools, row, write_pools

from aptool.data.pools import list_units, write_answers
from aptool.errors import AptoolError, UsageError
from aptool.models.device import check_precision, gpus_like, to_device
from aptool.scoring.model_system import ModelScorer, ModelSystem, pick_precision, sample_units, sampled_pools
from aptool.scoring.run import score_files
from aptool.scoring.systems import RandomScorer, RandomScores


@pytest.fixture
def units(tmp_path, monkeypatch):
    """Twelve pools in six row groups, over shared answers; each is a unit."""
    monkeypatch.setattr("aptool.data.pools.UNIT_PAIRS", 12)
    pools = labelled_pools("test", 12)
    texts = {name: text for pool in pools for name, text in zip(pool.answer_ids, pool.texts, strict=True)}
    write_answers(tmp_path / "answers.parquet", texts.items())
    rows = [
        row(pool.question_id, pool.question, [(name, None) for name in pool.answer_ids]) for pool in pools
    ]
    write_pools(tmp_path / "x.parquet", *(rows[first : first + 2] for first in range(0, 12, 2)))
    return list_units([tmp_path / "x.parquet"])


@pytest.fixture
def machine(monkeypatch):
    """Simulate a machine with GPUs of the given names."""

    def of(*names, capability=(9, 0), built=("sm_80", "sm_90a", "compute_90"), free=8 << 30):
        properties = {
            "is_available": lambda: bool(names),
            "device_count": lambda: len(names),
            "current_device": lambda: 0,
            "get_device_name": lambda gpu: names[getattr(gpu, "index", gpu) or 0],
            "get_device_capability": lambda gpu=None: capability,
            "get_device_properties": lambda gpu: SimpleNamespace(
                name=names[gpu], multi_processor_count=132, total_memory=80 << 30
            ),
            "get_arch_list": lambda: list(built),
            "mem_get_info": lambda gpu=None: (free, 80 << 30),
            "memory_reserved": lambda gpu=None: 0,
        }
        for name, function in properties.items():
            monkeypatch.setattr(torch.cuda, name, function)

    return of


class Meeting(RandomScorer):
    """Scorers that score at the same time: each waits for the other scorers in its first row group."""

    def __init__(self, number, fails=()):
        super().__init__(RandomScores())
        self.number, self.fails = number, fails
        self.barrier, self.met, self.scored = threading.Barrier(number), set(), []

    def copies(self, most):
        return [self, *(Copy(self, name) for name in range(1, min(self.number, most)))]

    def score(self, inputs, progress):
        return self.score_as(0, inputs)

    def score_as(self, name, inputs):
        if name not in self.met:
            self.met.add(name)
            self.barrier.wait(timeout=60)
        questions = inputs.question_ids.to_pylist()
        if set(questions) & set(self.fails):
            raise AptoolError("the fan stopped")
        self.scored.append((name, questions[0]))
        return super().score(inputs)


class Copy(RandomScorer):
    def __init__(self, original, name):
        super().__init__(RandomScores())
        self.original, self.name = original, name

    def score(self, inputs, progress):
        return self.original.score_as(self.name, inputs)


def run(units, system, output, **more):
    done = score_files(
        units, system, output, answers=units[0].path.replace("x.parquet", "answers.parquet"), **more
    )
    return done, output.read_bytes()


@pytest.mark.parametrize("number", [2, 3])
def test_several_devices_give_the_run_of_a_single_device(units, tmp_path, number):
    _, expected = run(units, RandomScores(0), tmp_path / "one.run")
    system = Meeting(number)

    done, actual = run(units, Opened(system), tmp_path / "all.run")

    assert actual == expected
    assert done.pairs == 72
    assert {name for name, _ in system.scored} == set(range(number))
    assert len(system.scored) == len({question for _, question in system.scored}) == 6


def test_an_error_on_one_device_ends_the_run_and_keeps_scored_parts(units, tmp_path):
    first = labelled_pools("test", 12)[6].question_id
    _, expected = run(units, RandomScores(0), tmp_path / "one.run")
    with pytest.raises(AptoolError, match="the fan stopped"):
        run(units, Opened(Meeting(2, fails=[first])), tmp_path / "all.run")

    done, actual = run(units, RandomScores(0), tmp_path / "all.run")

    assert actual == expected
    assert 0 < done.resumed < 6


def test_a_model_on_two_gpus_gives_the_run_of_one(units, tmp_path, model_folder, machine, monkeypatch):
    machine("H100", "H100")
    real = ModelScorer.score
    monkeypatch.setattr(ModelScorer, "score", one_at_a_time(real, devices_used := [], gpu := SimulatedGpu()))
    actual = []
    for name in ("cuda", "cuda:1", "cuda:0"):
        with gpu:
            _, data = run(units, ModelSystem(str(model_folder), name, "fp32"), tmp_path / f"{name}.run")
        actual.append(data)
        devices_used.append(name)

    assert actual[0] == actual[1] == actual[2]
    assert set(devices_used[: devices_used.index("cuda")]) == {torch.device("cuda"), torch.device("cuda", 1)}
    assert set(devices_used[devices_used.index("cuda") + 1 : devices_used.index("cuda:1")]) == {
        torch.device("cuda", 1)
    }


def one_at_a_time(real, devices_used, gpu):
    """Let one thread at a time use the simulation, which supports a single thread."""
    lock, meeting = threading.Lock(), threading.Barrier(2)

    def scored(self, inputs, progress):
        device = torch.device(self.device)
        if "cuda" not in devices_used and device not in devices_used:
            meeting.wait(timeout=60)
        with lock, gpu:
            devices_used.append(device)
            return real(self, inputs, progress)

    return scored


def test_gpus_of_one_kind_work_together(machine):
    machine("H100", "T4", "H100")
    assert gpus_like(torch.device("cuda")) == [torch.device("cuda", 0), torch.device("cuda", 2)]
    assert gpus_like(torch.device("cuda:1")) == [torch.device("cuda:1")]
    assert gpus_like(torch.device("cpu")) == [torch.device("cpu")]


@pytest.mark.parametrize("precision", ["bf16", "tf32"])
def test_a_precision_that_a_gpu_lacks_is_an_error(machine, precision):
    machine("T4", capability=(7, 5))
    with pytest.raises(UsageError, match=rf"--precision '{precision}': T4 cannot .* expected fp32"):
        pick_precision(precision, None, torch.device("cuda"), None)
    assert pick_precision("auto", None, torch.device("cuda"), None) == "fp32"


def test_a_model_that_does_not_fit_is_an_error_with_what_fits(machine, monkeypatch):
    machine("H100", "H100", free=1 << 30)
    network = torch.nn.Linear(1 << 10, 1 << 10)

    def full(*arguments):
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 4.00 MiB.")

    monkeypatch.setattr(network, "to", full)
    message = r"out of memory in moving 0\.0 GiB to cuda:1; expected a GPU with more memory, or --device cpu"
    with pytest.raises(AptoolError, match=message):
        to_device(network, "cuda:1")


@contextlib.contextmanager
def products():
    """Restore torch's settings after the block."""
    parts = torch.backends.cuda.matmul, torch.backends.cudnn.conv, torch.backends.cudnn.rnn
    before = [part.fp32_precision for part in parts]
    yield lambda: {part.fp32_precision for part in parts}
    for part, value in zip(parts, before, strict=True):
        part.fp32_precision = value


def test_tf32_is_used_only_on_request(units, tmp_path, model_folder):
    with products() as settings:
        pairs = ("tf32", "tf32"), ("fp32", "ieee"), ("tf32", "tf32"), ("bf16", "ieee")
        for number, (precision, expected) in enumerate(pairs):
            system = ModelSystem(str(model_folder), "cpu", precision)
            run(units, system, tmp_path / f"{number}.run")
            assert settings() == {expected}


def test_the_sample_is_spread_over_the_input(tmp_path):
    rows = [row(f"q{n}", f"text {n}", [(f"a{n}", "x"), (f"b{n}", f"y {n}")]) for n in range(400)]
    write_pools(tmp_path / "many.parquet", *(rows[first : first + 20] for first in range(0, 400, 20)))
    write_pools(tmp_path / "one.parquet", rows[:120])
    write_pools(tmp_path / "few.parquet", *([line] for line in rows[:7]))
    actual = {}
    for name in ("many", "one", "few"):
        pools = list(sampled_pools(sample_units(list_units([tmp_path / f"{name}.parquet"])), None))
        actual[name] = [question for some in pools for question in some.questions.to_pylist()]
        for some in pools:  # a pool has its own pairs and their texts, and no others
            numbers = [text.removeprefix("text ") for text in some.questions.to_pylist()]
            texts = [some.answers[int(text)].as_py() for text in some.pair_answer]
            assert texts == [text for number in numbers for text in ("x", f"y {number}")]
            assert len(some.answers) == 1 + len(numbers)
            assert some.pair_question.tolist() == [
                position for position in range(len(numbers)) for _ in range(2)
            ]

    assert len(actual["many"]) == len(set(actual["many"])) == len(actual["one"]) == 50
    groups = {int(text.removeprefix("text ")) // 80 for text in actual["many"]}
    assert groups == {0, 1, 2, 3, 4}  # of each fifth of the file
    assert actual["one"][0] == "text 0"
    assert actual["one"][-1] == "text 119"
    assert sorted(actual["few"]) == [f"text {n}" for n in range(7)]


def test_training_in_bf16_needs_a_device_that_computes_in_it(machine):
    machine("T4", capability=(7, 5))

    check_precision("encoder.precision", "fp32", torch.device("cuda"))
    check_precision("encoder.precision", "bf16", torch.device("cpu"))
    with pytest.raises(UsageError, match=r"^encoder\.precision 'bf16': T4 cannot .* expected fp32"):
        check_precision("encoder.precision", "bf16", torch.device("cuda"))
