"""Simulated GPUs: CPU tensors that report the device ``cuda:0``, with the errors and the waits of CUDA.

    with SimulatedGpu() as gpu:
        scorer = RankerScorer(ranker.to("cuda"), device="cuda")
        scorer.score(...)
    gpu.waits, gpu.launches, gpu.peak_bytes, gpu.refused

The CPU computes everything. A storage that was created on a GPU, or copied to it, belongs to that GPU. An
operation on tensors of host and GPU, or of two GPUs, raises ``DeviceMismatchError`` where CUDA would raise.
Operations that make the host wait for the device are counted per line of aptool, according to ATen's sources:
``item`` and its callers, copies to the host, copies from memory that is not pinned, and results whose size
depends on values. Launches are approximate: one for most operations, none for views. Each GPU has a random
generator of its own; seeds and states of generators are set as in CUDA.
"""

import functools
from collections import Counter
from contextlib import contextmanager, nullcontext

import torch
from gpu_patches import Patches, line_of_aptool, storage_of
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

aten = torch.ops.aten

# Operations with several launches, according to ATen's sources.
LAUNCHES = {
    "nonzero": 3,
    "_unique2": 8,
    "unique_consecutive": 5,
    "sort": 4,
    "argsort": 4,
    "bincount": 5,
    "repeat_interleave": 3,
    "segment_reduce": 6,
    "cumsum": 2,
    "_coalesce": 8,
    "topk": 2,
    "embedding_dense_backward": 4,
    "_embedding_bag": 2,
    "lstm": 40,
}
# Operations without a launch.
FREE = {
    *("detach", "empty", "new_empty", "empty_like", "empty_strided", "new_empty_strided", "alias", "values"),
    *("_local_scalar_dense", "is_same_size", "_sparse_coo_tensor_with_dims_and_tensors", "_values"),
    *("_indices", "indices"),
}
# Operations that may mix host and GPU: copies, and indexing with host tensors.
COPIES = {aten.copy_.default, aten._to_copy.default, aten.set_.source_Tensor}
INDEXING = {"index", "index_put", "index_put_", "_index_put_impl_", "_unsafe_index"}
SIZED_BY_VALUES = {"_coalesce", "unique_consecutive", "_unique2", "unique_dim", "nonzero", "masked_select"}
UNDIVIDED = {aten.lstm.input}  # one kernel of cuDNN
# Operations that CUDA refuses for any dtype in deterministic mode.
NONDETERMINISTIC = {
    *("histc", "put_", "put", "kthvalue", "median", "nanmedian", "grid_sampler_2d_backward", "max_unpool2d"),
    *("nll_loss2d_forward", "_ctc_loss_backward", "avg_pool3d_backward", "reflection_pad1d_backward"),
    *("_adaptive_avg_pool2d_backward", "_adaptive_avg_pool3d_backward", "adaptive_max_pool2d_backward"),
    *("upsample_linear1d_backward", "upsample_bilinear2d_backward", "upsample_bicubic2d_backward"),
}
EMBEDDING_MAX = 2  # the mode ``max`` of embedding_bag


class DeviceMismatchError(RuntimeError):
    """An operation on tensors of several devices."""


class SimulatedGpu(TorchDispatchMode):
    """Context manager that simulates GPUs; see the module.

    Attributes:
        waits: number of waits of the host by (operation, line of aptool).
        launches: number of launched kernels.
        sent: bytes of each copy from pinned memory.
        peak_bytes: peak memory of all GPUs.
        refused: number of tensors that did not fit into ``memory``, the bytes of all GPUs.
    """

    def __init__(self, memory=None):
        super().__init__()
        self.memory, self.refused = memory, 0
        self._storages = {}  # address of each storage on a GPU -> (weak reference, bytes, number of the GPU)
        self._in_use = 0
        self._is_untracked = False
        self._creating = None  # number of the GPU that tensors are created on
        self._patches = Patches(self)
        self._seed, self._generators = 0, {}  # number of the GPU -> state of its generator
        self.reset()

    def reset(self):
        self.waits, self.launches, self.sent, self.peak_bytes = Counter(), 0, [], 0

    def __enter__(self):
        super().__enter__()
        self._patches.install()
        return self

    def __exit__(self, *problem):
        self._patches.remove()
        super().__exit__(*problem)

    @property
    def total_waits(self):
        return sum(self.waits.values())

    def report(self):
        lines = [f"{times:6} x {what:30} {where}" for (what, where), times in self.waits.most_common()]
        return "\n".join([f"{self.launches} launches, {self.total_waits} waits", *lines])

    def gpu_of(self, tensor):
        """The number of the GPU of a tensor; None for the host."""
        return self._gpu_of(storage_of(tensor))

    def _gpu_of(self, storage):
        entry = self._storages.get(storage._cdata)
        return None if entry is None or entry[0].expired() else entry[2]

    def holds(self, tensor):
        return self.gpu_of(tensor) is not None

    def take(self, tensor, number=0):
        storage = storage_of(tensor)
        if self._gpu_of(storage) is None:
            size = storage.nbytes()
            # Below the peak, freed memory does not matter.
            if self.memory is not None or self._in_use + size > self.peak_bytes:
                self._remove_freed()
            if self.memory is not None and self._in_use + size > self.memory:
                self.refused += 1
                raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate more.\nDetails.")
            _, freed, _ = self._storages.get(storage._cdata, (None, 0, None))  # at the same address
            self._storages[storage._cdata] = StorageWeakRef(storage), size, number
            self._in_use += size - freed
            self.peak_bytes = max(self.peak_bytes, self._in_use)
        return tensor

    def free_memory(self, default):
        return default if self.memory is None else max(0, self.memory - self._in_use)

    def _remove_freed(self):
        for key in [key for key, (reference, *_) in self._storages.items() if reference.expired()]:
            self._in_use -= self._storages.pop(key)[1]

    def wait(self, what, times=1):
        if not self._is_untracked:
            self.waits[what, line_of_aptool()] += times

    @contextmanager
    def untracked(self):
        """Track no operations inside the block, such as those of a copy, which is counted as a whole."""
        before, self._is_untracked = self._is_untracked, True
        try:
            yield
        finally:
            self._is_untracked = before

    @contextmanager
    def creating(self, number):
        before, self._creating = self._creating, number
        try:
            yield
        finally:
            self._creating = before

    def seed(self, seed):
        self._seed, self._generators = seed, {}

    def generator_state(self, number):
        state = self._generators.get(number)
        return torch.Generator().manual_seed(self._seed).get_state() if state is None else state

    def set_generator_state(self, state, number):
        self._generators[number] = state

    @contextmanager
    def _own_generator(self, number):
        """Draw random numbers from the generator of a GPU inside the block."""
        before = self._patches.real_get_rng_state()
        self._patches.real_set_rng_state(self.generator_state(number))
        try:
            yield
        finally:
            self.set_generator_state(self._patches.real_get_rng_state(), number)
            self._patches.real_set_rng_state(before)

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        tensors = list(_tensors(args, kwargs))
        gpus = [self.gpu_of(tensor) for tensor in tensors]
        on_gpu = [gpu is not None for gpu in gpus]
        numbers = set(gpus) - {None}
        if self._is_untracked or not (numbers or self._creating is not None):
            return func(*args, **kwargs)
        if _can_divide(func):
            # In inference mode, composite operations arrive undivided.
            with self:
                result = func.decompose(*args, **kwargs)
            if result is not NotImplemented:
                return result
        name = func._overloadpacket.__name__
        if any(on_gpu) and not all(on_gpu):
            self._check(func, name, args, tensors, on_gpu)
        if len(numbers) > 1 and func not in COPIES:
            raise DeviceMismatchError(f"{name} of GPUs {sorted(numbers)}, at {line_of_aptool()}")
        if torch.are_deterministic_algorithms_enabled() and _is_nondeterministic(name, args, kwargs):
            raise RuntimeError(f"{name} does not have a deterministic implementation, at {line_of_aptool()}")
        self._count(func, name, args, kwargs)
        number = min(numbers, default=self._creating)
        is_random = torch.Tag.nondeterministic_seeded in func.tags
        with self.untracked(), self._own_generator(number) if is_random else nullcontext():
            result = func(*args, **kwargs)
        if func is not aten.copy_.default:
            for tensor in tree_leaves(result):
                if isinstance(tensor, torch.Tensor):
                    self.take(tensor, number)
        return result

    def _check(self, func, name, args, tensors, on_gpu):
        """Raise where CUDA would, for tensors of host and GPU."""
        if func in COPIES:
            self.wait("copy to the device" if self.holds(args[0]) else "copy to the host")
            return
        on_host = [tensor for tensor, is_on_gpu in zip(tensors, on_gpu, strict=True) if not is_on_gpu]
        if name in INDEXING and self.holds(args[0]):
            indices = [index for index in args[1] if index is not None]
            if all(tensor.dim() == 0 or any(tensor is index for index in indices) for tensor in on_host):
                self.wait("index or value on the host")
                return
        elementwise = torch.Tag.pointwise in func.tags or name in ("where", "masked_fill", "masked_fill_")
        if (elementwise or name == "fill_") and all(tensor.dim() == 0 for tensor in on_host):
            return
        operands = ", ".join(
            f"{'cuda' if self.holds(tensor) else 'cpu'} {tuple(tensor.shape)}" for tensor in tensors
        )
        raise DeviceMismatchError(f"{name} of {operands}, at {line_of_aptool()}")

    def _count(self, func, name, args, kwargs):
        if not (name in FREE or _is_view(func)):
            self.launches += -(-len(args[0]) // 128) if name == "cat" else LAUNCHES.get(name, 1)
        if torch.Tag.data_dependent_output in func.tags:
            self.wait("item" if name == "_local_scalar_dense" else name)
        elif name == "segment_reduce":
            if not kwargs.get("unsafe", False):
                self.wait("segment_reduce that checks", 2)
        elif name == "repeat_interleave":
            if kwargs.get("output_size") is None:
                self.wait("repeat_interleave without output_size")
        elif name == "bincount":
            self.wait(name, 2)
        elif name in INDEXING:
            indices = [index for index in args[1] if index is not None]
            masks = [index for index in indices if index.dtype in (torch.bool, torch.uint8)]
            if masks:
                self.wait("mask as index", len(masks))
        elif name in SIZED_BY_VALUES or torch.Tag.dynamic_output_shape in func.tags:
            self.wait(name)


def _is_nondeterministic(name, args, kwargs):
    """Whether CUDA refuses an operation in deterministic mode."""
    if name == "cumsum":
        return args[0].is_floating_point()
    if name == "bincount":
        return (kwargs.get("weights") if len(args) < 2 else args[1]) is not None
    if name == "scatter_reduce":
        return args[4] == "prod"
    if name == "_embedding_bag_backward":
        return args[8] == EMBEDDING_MAX
    return name in NONDETERMINISTIC


def _tensors(args, kwargs):
    """The tensors of a call; schemas nest them in lists at most."""
    for value in (*args, *kwargs.values()):
        for item in value if isinstance(value, (list, tuple)) else (value,):
            if isinstance(item, torch.Tensor):
                yield item


@functools.cache
def _can_divide(func):
    return func not in UNDIVIDED and func._can_decompose()


@functools.cache
def _is_view(func):
    return any(
        value.alias_info is not None and not value.alias_info.is_write for value in func._schema.returns
    )
