"""Devices of a machine: which one is taken, in which precision, and what does not fit."""

import contextlib
from types import SimpleNamespace

import pytest
import torch
from tiny import row, write_pools

from aptool.data.pools import list_units
from aptool.errors import AptoolError, UsageError
from aptool.models.device import check_precision, gpus_like, pick_device, to_device
from aptool.scoring.model_system import ModelSystem, pick_precision
from aptool.scoring.run import score_files


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


def test_gpus_of_one_kind_work_together(machine):
    machine("H100", "T4", "H100")
    assert gpus_like(torch.device("cuda")) == [torch.device("cuda", 0), torch.device("cuda", 2)]
    assert gpus_like(torch.device("cuda:1")) == [torch.device("cuda:1")]
    assert gpus_like(torch.device("cpu")) == [torch.device("cpu")]


def test_a_gpu_that_cannot_compute_is_an_error_of_one_line(machine, monkeypatch):
    machine("K80", capability=(3, 7))

    def no_kernel(*sizes, device):
        raise RuntimeError("CUDA error: no kernel image is available for execution on the device\nMore.")

    monkeypatch.setattr(torch, "zeros", no_kernel)
    with pytest.raises(
        UsageError, match=r"^--device 'cuda': CUDA error: no kernel image .* expected auto, cpu"
    ):
        pick_device("cuda")


@pytest.mark.parametrize("precision", ["bf16", "tf32"])
def test_a_precision_that_a_gpu_lacks_is_an_error(machine, precision):
    machine("T4", capability=(7, 5))
    with pytest.raises(UsageError, match=rf"--precision '{precision}': T4 cannot .* expected fp32"):
        pick_precision(precision, None, torch.device("cuda"), None)
    assert pick_precision("auto", None, torch.device("cuda"), None) == "fp32"


def test_a_model_that_does_not_fit_is_an_error_with_its_size(machine, monkeypatch):
    machine("H100", "H100", free=1 << 30)
    network = torch.nn.Linear(1 << 10, 1 << 10)

    def full(*arguments):
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 4.00 MiB.")

    monkeypatch.setattr(network, "to", full)
    with pytest.raises(
        AptoolError, match=r"^out of memory in moving 0\.0 GiB to cuda:1; expected a GPU with more"
    ):
        to_device(network, "cuda:1")


@contextlib.contextmanager
def products():
    """Restore torch's settings after the block."""
    parts = torch.backends.cuda.matmul, torch.backends.cudnn.conv, torch.backends.cudnn.rnn
    before = [part.fp32_precision for part in parts]
    yield lambda: {part.fp32_precision for part in parts}
    for part, value in zip(parts, before, strict=True):
        part.fp32_precision = value


def test_tf32_is_used_only_on_request(tmp_path, model_folder):
    units = list_units([write_pools(tmp_path / "x.parquet", [row("q1")])])
    with products() as settings:
        pairs = ("tf32", "tf32"), ("fp32", "ieee"), ("tf32", "tf32"), ("bf16", "ieee")
        for number, (precision, expected) in enumerate(pairs):
            score_files(units, ModelSystem(str(model_folder), "cpu", precision), tmp_path / f"{number}.run")
            assert settings() == {expected}


def test_training_in_bf16_needs_a_device_that_computes_in_it(machine):
    machine("T4", capability=(7, 5))

    check_precision("encoder.precision", "fp32", torch.device("cuda"))
    check_precision("encoder.precision", "bf16", torch.device("cpu"))
    with pytest.raises(UsageError, match=r"^encoder\.precision 'bf16': T4 cannot .* expected fp32"):
        check_precision("encoder.precision", "bf16", torch.device("cuda"))
