"""Devices of a machine: which one is taken, in which precision, and what does not fit."""

from types import SimpleNamespace

import pytest
import torch
from tiny import ranker

from aptool.errors import AptoolError, UsageError
from aptool.models.device import check_precision, pick_device, to_device
from aptool.scoring.model_system import pick_precision
from aptool.scoring.ranker_scorer import RankerScorer


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


def test_a_gpu_that_cannot_compute_is_an_error_of_one_line(machine, monkeypatch):
    machine("K80", capability=(3, 7))

    def no_kernel(*sizes, device):
        raise RuntimeError("CUDA error: no kernel image is available for execution on the device\nMore.")

    monkeypatch.setattr(torch, "zeros", no_kernel)
    with pytest.raises(
        UsageError, match=r"^--device 'cuda': CUDA error: no kernel image .* expected auto, cpu"
    ):
        pick_device("cuda")


def test_a_precision_that_a_gpu_lacks_is_an_error(machine):
    machine("T4", capability=(7, 5))
    with pytest.raises(UsageError, match=r"--precision 'bf16': T4 cannot .* expected fp32"):
        pick_precision("bf16", None, torch.device("cuda"), ())
    assert pick_precision("auto", None, torch.device("cuda"), ()) == "fp32"


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


def test_products_are_not_in_tf32():
    kinds = (torch.backends.cuda.matmul, torch.backends.cudnn.conv, torch.backends.cudnn.rnn)
    for kind in kinds:
        kind.fp32_precision = "tf32"

    RankerScorer(ranker("ap-cnn"))

    assert {kind.fp32_precision for kind in kinds} == {"ieee"}


def test_training_in_bf16_needs_a_device_that_computes_in_it(machine):
    machine("T4", capability=(7, 5))

    check_precision("encoder.precision", "fp32", torch.device("cuda"))
    check_precision("encoder.precision", "bf16", torch.device("cpu"))
    with pytest.raises(UsageError, match=r"^encoder\.precision 'bf16': T4 cannot .* expected fp32"):
        check_precision("encoder.precision", "bf16", torch.device("cuda"))
