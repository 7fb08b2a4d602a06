"""The simulated GPU: it raises the errors of CUDA, and counts the waits of CUDA."""

import copy

import numpy as np
import pytest
import torch
from simulated_gpu import DeviceMismatchError, SimulatedGpu
from torch import nn
from torch.nn import functional as F

from aptool.models.device import repeatable_sums

ONE = torch.ones(1, dtype=torch.int64)


def test_tensors_report_their_device():
    with SimulatedGpu() as gpu:
        on_gpu, on_host = torch.ones(3, device="cuda"), torch.ones(3)
        assert on_gpu.device == torch.device("cuda", 0)
        assert on_gpu.is_cuda
        assert not on_host.is_cuda
        assert (on_gpu + 1).is_cuda
        assert (on_gpu * torch.tensor(2.0)).is_cuda  # a scalar on the host
        assert on_gpu[None].is_cuda
        assert not on_gpu.cpu().is_cuda
        assert on_gpu[torch.tensor([0])].is_cuda  # CUDA accepts indices on the host, and waits for them
    assert gpu.waits["index or value on the host", "elsewhere"] == 1
    assert torch.ones(1).device.type == "cpu"
    assert "device" not in vars(torch.Tensor)


MIXED = {
    "sum": lambda x, y: x + y,
    "cat": lambda x, y: torch.cat([x, y]),
    "stack": lambda x, y: torch.stack([x, y]),
    "equal": lambda x, y: torch.equal(x, y),
    "comparison": lambda x, y: x == y,
    "larger": lambda x, y: x > y,
    "where": lambda x, y: torch.where(x > 0, x, y),
    "where of a condition on the host": lambda x, y: torch.where(y > 0, x, x),
    "masked fill": lambda x, y: x.masked_fill(y > 0, 0.0),
    "average": lambda x, y: x.lerp_(y, 0.5),
    "average on the host": lambda x, y: y.lerp_(x, 0.5),
    "sum in place": lambda x, y: x.add_(y),
    "scaled sum": lambda x, y: x.addcmul_(y, y),
    "gather": lambda x, y: x.gather(0, ONE),
    "scatter": lambda x, y: x.index_copy(0, ONE, x[:1]),
    "rows of the host": lambda x, y: x.index_add(0, ONE.to("cuda"), y[:1]),
    "allclose": lambda x, y: torch.allclose(x, y),
    "optimizer": lambda x, y: torch._foreach_add_([x], [y]),
    "product": lambda x, y: torch.mm(x[None], y[:, None]),
    "embedding": lambda x, y: F.embedding(ONE - 1, x[None]),
    "segments": lambda x, y: torch.segment_reduce(x, "max", lengths=3 * ONE),
    "rows": lambda x, y: x.index_select(0, ONE),
}


@pytest.mark.parametrize("name", MIXED)
def test_operations_on_tensors_of_host_and_gpu_raise(name):
    with SimulatedGpu():
        with pytest.raises(DeviceMismatchError):
            MIXED[name](torch.ones(3, device="cuda"), torch.ones(3))
        with pytest.raises(TypeError, match="can't convert cuda:0"):
            np.asarray(torch.ones(3, device="cuda"))


REFUSED = {
    "cumsum": lambda x: x.cumsum(0),
    "bincount": lambda x: torch.bincount(x.long(), x),
    "product": lambda x: x.scatter_reduce(0, x.long(), x, "prod"),
    "histogram": lambda x: torch.histc(x),
    "largest": lambda x: (
        F.embedding_bag(ONE.to("cuda") - 1, x[:, None].requires_grad_(), ONE.to("cuda") - 1, mode="max").sum()
    ).backward(),
}


@pytest.mark.parametrize("name", REFUSED)
def test_nondeterministic_operations_are_refused_in_deterministic_mode(name):
    with SimulatedGpu():
        values = torch.ones(3, device="cuda")
        REFUSED[name](values.clone())
        with repeatable_sums(values.device, True):
            with pytest.raises(RuntimeError, match="does not have a deterministic implementation"):
                REFUSED[name](values.clone())
            values.long().cumsum(0)
            torch.ones(3).cumsum(0)  # on the CPU


def test_two_gpus_are_two_devices():
    with SimulatedGpu():
        first, second = torch.ones(3, device="cuda"), torch.ones(3, device="cuda:1")
        assert (second + 1).device == torch.device("cuda", 1)
        assert first.to("cuda:1").device == second.new_zeros(2).device == second.device
        with pytest.raises(DeviceMismatchError, match=r"GPUs \[0, 1\]"):
            first + second


def test_a_gpu_has_a_random_generator_of_its_own():
    with SimulatedGpu():
        torch.manual_seed(7)
        state = torch.cuda.get_rng_state("cuda")
        first = F.dropout(torch.ones(100, device="cuda"))
        torch.rand(3)  # the host draws from another generator
        second = F.dropout(torch.ones(100, device="cuda"))
        torch.cuda.set_rng_state(state, "cuda")
        again = F.dropout(torch.ones(100, device="cuda"))
        with pytest.raises(TypeError, match="ByteTensor"):
            torch.cuda.set_rng_state(state.to("cuda"), "cuda")

        assert torch.equal(first, again)
        assert not torch.equal(first, second)


WAITS = {
    "item": (lambda x: x.sum().item(), 1),
    "bool": (lambda x: bool((x > 0).all()), 1),
    "tolist": (lambda x: x.tolist(), 1),
    "to the host": (lambda x: x.cpu(), 1),
    "mask": (lambda x: x[x > 0], 1),
    "nonzero": (lambda x: x.nonzero(), 1),
    "unique": (lambda x: x.unique(), 1),
    "repeat": (lambda x: x.repeat_interleave(x.long()), 1),
    "repeat to a size": (lambda x: x.repeat_interleave(x.long(), output_size=4), 0),
    "from the host": (lambda x: torch.tensor([1.0], device="cuda"), 1),
    "from numpy": (lambda x: torch.from_numpy(np.ones(2)).to("cuda"), 1),
    "from pinned memory": (lambda x: torch.ones(2).pin_memory().to("cuda", non_blocking=True), 0),
    "segments": (lambda x: torch.segment_reduce(x, "max", lengths=torch.full((2,), 2, device="cuda")), 2),
    "arithmetic": (lambda x: (x @ x).sqrt().softmax(0).cumsum(0).argsort(), 0),
}


@pytest.mark.parametrize("inference", [False, True])
@pytest.mark.parametrize("name", WAITS)
def test_waits_are_counted_as_in_cuda(name, inference):
    act, waits = WAITS[name]
    with torch.inference_mode(inference), SimulatedGpu() as gpu:
        x = torch.ones(4).to("cuda")
        gpu.reset()
        act(x)
    assert gpu.total_waits == waits, gpu.report()


def test_peak_memory_counts_live_tensors_only():
    with SimulatedGpu() as gpu:
        for _ in range(10):
            torch.ones(1000, device="cuda").sum()
        assert 4000 <= gpu.peak_bytes < 9000
        tensors = [torch.ones(1000, device="cuda") for _ in range(10)]
        assert gpu.peak_bytes >= 40_000
        assert tensors


def test_gradients_and_optimizer_states_are_on_the_gpu():
    model = nn.Sequential(nn.Embedding(9, 4, sparse=True), nn.LSTM(4, 3, batch_first=True))
    other = copy.deepcopy(model)

    def step(model, ids):
        dense = torch.optim.Adam(model[1].parameters())
        sparse = torch.optim.SparseAdam(model[0].parameters())
        model(ids)[0].square().sum().backward()
        dense.step()
        sparse.step()

    ids = torch.arange(6).view(2, 3)
    step(other, ids)
    with SimulatedGpu() as gpu:
        model.to("cuda")
        step(model, ids.to("cuda"))
        assert all(gpu.holds(parameter) and gpu.holds(parameter.grad) for parameter in model.parameters())
    for parameter, expected in zip(model.parameters(), other.parameters(), strict=True):
        torch.testing.assert_close(parameter.detach(), expected.detach())
