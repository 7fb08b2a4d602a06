"""Devices of a machine: which one is taken, in which precision, and what does not fit."""

import pytest
import torch
from tiny import ranker

from aptool.errors import AptoolError, UsageError
from aptool.models.device import check_precision, pick_device, to_device
from aptool.scoring.model_system import pick_precision
from aptool.scoring.ranker_scorer import RankerScorer


@pytest.fixture
def t4(monkeypatch):
    """A GPU that cannot compute in bf16."""
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda gpu: "T4")
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda gpu: (7, 5))
    return torch.device("cuda")


def test_a_gpu_that_cannot_compute_is_an_error_of_one_line(monkeypatch):
    def no_kernel(*sizes, device):
        raise RuntimeError("CUDA error: no kernel image is available for execution on the device\nMore.")

    monkeypatch.setattr(torch, "zeros", no_kernel)
    with pytest.raises(
        UsageError, match=r"^--device 'cuda': CUDA error: no kernel image .* expected auto, cpu"
    ):
        pick_device("cuda")


def test_a_precision_that_a_gpu_lacks_is_an_error(t4):
    with pytest.raises(UsageError, match=r"--precision 'bf16': T4 cannot .* expected fp32"):
        pick_precision("bf16", None, t4, ())
    assert pick_precision("auto", None, t4, ()) == "fp32"
    with pytest.raises(UsageError, match=r"^encoder\.precision 'bf16': T4 cannot .* expected fp32"):
        check_precision("encoder.precision", "bf16", t4)
    check_precision("encoder.precision", "fp32", t4)
    check_precision("encoder.precision", "bf16", torch.device("cpu"))


def test_a_model_that_does_not_fit_is_an_error_with_its_size(monkeypatch):
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
