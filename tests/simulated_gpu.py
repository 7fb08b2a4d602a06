"""GPUs that are simulated: CPU tensors that say they are on ``cuda:0``, with a GPU's rules and a GPU's waits.

    with SimulatedGpu() as gpu:
        scorer = Scorer(ranker.to("cuda"), device="cuda")
        scorer.score(...)
    gpu.waits, gpu.launches, gpu.peak_bytes

Everything is computed on the CPU; a storage that was created on, or copied to, a GPU belongs to it. An
operation on tensors of both sides, or of two GPUs, raises ``DeviceMismatchError`` where CUDA would raise.
Operations that make the host wait for the device are counted under the line of aptool that they come from, as
ATen's sources say: ``item`` and whatever calls it, copies to the host, copies from memory that is not pinned,
results whose size depends on values. Launches are counted roughly: one for most operations, none for views.
"""

from collections import Counter
from contextlib import contextmanager

import torch
from gpu_patches import Patches, line_of_aptool, storage_of
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

aten = torch.ops.aten

# Launches of operations that have several, from reading ATen's sources.
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
# These launch nothing.
FREE = {
    *("detach", "empty", "new_empty", "empty_like", "empty_strided", "new_empty_strided", "alias", "values"),
    *("_local_scalar_dense", "is_same_size", "_sparse_coo_tensor_with_dims_and_tensors", "_values"),
    *("_indices", "indices"),
}
# Operations on devices of both sides that CUDA takes: copies, and those that index with host tensors.
COPIES = {aten.copy_.default, aten._to_copy.default, aten.set_.source_Tensor}
INDEXING = {"index", "index_put", "index_put_", "_index_put_impl_", "_unsafe_index"}
SIZED_BY_VALUES = {"_coalesce", "unique_consecutive", "_unique2", "unique_dim", "nonzero", "masked_select"}
WHOLE = {aten.lstm.input}  # cuDNN's, in one piece
# What CUDA refuses, whatever the dtype and mode, while sums have to be repeatable.
NOT_REPEATABLE = {
    *("histc", "put_", "put", "kthvalue", "median", "nanmedian", "grid_sampler_2d_backward", "max_unpool2d"),
    *("nll_loss2d_forward", "_ctc_loss_backward", "avg_pool3d_backward", "reflection_pad1d_backward"),
    *("_adaptive_avg_pool2d_backward", "_adaptive_avg_pool3d_backward", "adaptive_max_pool2d_backward"),
    *("upsample_linear1d_backward", "upsample_bilinear2d_backward", "upsample_bicubic2d_backward"),
}
EMBEDDING_MAX = 2  # a mode of embedding_bag


class DeviceMismatchError(RuntimeError):
    """Tensors of both sides in one operation."""


class SimulatedGpu(TorchDispatchMode):
    """See the module.

    Attributes:
        waits: (what, where) -> how many times the host waited.
        launches: kernels that were started.
        peak_bytes: the most memory in use at one time.
    """

    def __init__(self):
        super().__init__()
        self._here = {}  # address of each storage on a GPU -> (a weak reference, bytes, number of the GPU)
        self._in_use = 0
        self._silent = False
        self._creating = None  # number of the GPU that tensors are created on
        self._patches = Patches(self)
        self.reset()

    def reset(self):
        self.waits, self.launches, self.peak_bytes = Counter(), 0, 0

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
        found = [f"{times:6} x {what:30} {where}" for (what, where), times in self.waits.most_common()]
        return "\n".join([f"{self.launches} launches, {self.total_waits} waits", *found])

    def place(self, tensor):
        """The number of the GPU that a tensor is on; None for the host."""
        kept = self._here.get(storage_of(tensor)._cdata)
        return None if kept is None or kept[0].expired() else kept[2]

    def holds(self, tensor):
        return self.place(tensor) is not None

    def take(self, tensor, number=0):
        storage = storage_of(tensor)
        if not self.holds(tensor):
            self._forget_the_freed()
            self._here[storage._cdata] = StorageWeakRef(storage), storage.nbytes(), number
            self._in_use += storage.nbytes()
            self.peak_bytes = max(self.peak_bytes, self._in_use)
        return tensor

    def _forget_the_freed(self):
        for key in [key for key, (reference, *_) in self._here.items() if reference.expired()]:
            self._in_use -= self._here.pop(key)[1]

    def wait(self, what, times=1):
        if not self._silent:
            self.waits[what, line_of_aptool()] += times

    @contextmanager
    def silence(self):
        """Nothing inside is an operation of the GPU: a copy, or a kernel that is counted by itself."""
        before, self._silent = self._silent, True
        try:
            yield
        finally:
            self._silent = before

    @contextmanager
    def creating(self, number):
        before, self._creating = self._creating, number
        try:
            yield
        finally:
            self._creating = before

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        tensors = [one for one in tree_leaves((args, kwargs)) if isinstance(one, torch.Tensor)]
        places = [self.place(one) for one in tensors]
        on_gpu = [place is not None for place in places]
        numbers = {place for place in places if place is not None}
        if self._silent or not (numbers or self._creating is not None):
            return func(*args, **kwargs)
        if func._can_decompose() and func not in WHOLE:
            # In inference mode, operations that consist of others come whole.
            with self:
                result = func.decompose(*args, **kwargs)
            if result is not NotImplemented:
                return result
        name = func._overloadpacket.__name__
        if any(on_gpu) and not all(on_gpu):
            self._check(func, name, args, tensors, on_gpu)
        if len(numbers) > 1 and func not in COPIES:
            raise DeviceMismatchError(f"{name} of GPUs {sorted(numbers)}, at {line_of_aptool()}")
        if torch.are_deterministic_algorithms_enabled() and _not_repeatable(name, args, kwargs):
            raise RuntimeError(f"{name} does not have a deterministic implementation, at {line_of_aptool()}")
        self._count(func, name, args, kwargs)
        number = min(numbers, default=self._creating)
        with self.silence():
            result = func(*args, **kwargs)
        if func is not aten.copy_.default:
            for one in tree_leaves(result):
                if isinstance(one, torch.Tensor):
                    self.take(one, number)
        return result

    def _check(self, func, name, args, tensors, on_gpu):
        """Raises where CUDA would, for tensors of both sides."""
        if func in COPIES:
            self.wait("copy to the device" if self.holds(args[0]) else "copy to the host")
            return
        others = [one for one, there in zip(tensors, on_gpu, strict=True) if not there]
        if name in INDEXING and self.holds(args[0]):
            indices = [one for one in args[1] if one is not None]
            if all(one.dim() == 0 or any(one is index for index in indices) for one in others):
                self.wait("index or value on the host")
                return
        elementwise = torch.Tag.pointwise in func.tags or name in ("where", "masked_fill", "masked_fill_")
        if (elementwise or name == "fill_") and all(one.dim() == 0 for one in others):
            return
        sides = ", ".join(f"{'cuda' if self.holds(one) else 'cpu'} {tuple(one.shape)}" for one in tensors)
        raise DeviceMismatchError(f"{name} of {sides}, at {line_of_aptool()}")

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
            masks = [one for one in args[1] if one is not None and one.dtype in (torch.bool, torch.uint8)]
            if masks:
                self.wait("mask as index", len(masks))
        elif name in SIZED_BY_VALUES or torch.Tag.dynamic_output_shape in func.tags:
            self.wait(name)


def _not_repeatable(name, args, kwargs):
    """Whether CUDA refuses an operation whose sums have to be repeatable."""
    if name == "cumsum":
        return args[0].is_floating_point()
    if name == "bincount":
        return (kwargs.get("weights") if len(args) < 2 else args[1]) is not None
    if name == "scatter_reduce":
        return args[4] == "prod"
    if name == "_embedding_bag_backward":
        return args[8] == EMBEDDING_MAX
    return name in NOT_REPEATABLE


def _is_view(func):
    return any(one.alias_info is not None and not one.alias_info.is_write for one in func._schema.returns)
