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

import functools
import sys
from collections import Counter
from contextlib import contextmanager
from pathlib import Path

import torch
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

import aptool

PACKAGE = f"{Path(aptool.__file__).parent}/"
CPU = torch.device("cpu")
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
        kept = self._here.get(_storage(tensor)._cdata)
        return None if kept is None or kept[0].expired() else kept[2]

    def holds(self, tensor):
        return self.place(tensor) is not None

    def take(self, tensor, number=0):
        storage = _storage(tensor)
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
            self.waits[what, _line_of_aptool()] += times

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
            raise DeviceMismatchError(f"{name} of GPUs {sorted(numbers)}, at {_line_of_aptool()}")
        if torch.are_deterministic_algorithms_enabled() and _not_repeatable(name, args, kwargs):
            raise RuntimeError(f"{name} does not have a deterministic implementation, at {_line_of_aptool()}")
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
        raise DeviceMismatchError(f"{name} of {sides}, at {_line_of_aptool()}")

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


class Patches:
    """Where a tensor says it is, and copies from side to side: operations do not show these.

    Attributes of ``torch`` and ``torch.Tensor`` are replaced while the simulation is on.
    """

    CREATE = (
        *("arange", "zeros", "ones", "empty", "full", "eye", "rand", "randn", "randint", "randperm"),
        *("zeros_like", "ones_like", "empty_like", "full_like", "rand_like", "randn_like", "empty_strided"),
        *("linspace", "scalar_tensor", "sparse_coo_tensor"),
    )
    FROM_HOST = ("tensor", "as_tensor")
    CREATE_ALIKE = ("new_zeros", "new_ones", "new_empty", "new_full")

    def __init__(self, gpu):
        self.gpu = gpu
        self.replaced = []
        self.pinned = {}
        self.depth = 0

    def install(self):
        self.depth += 1
        if self.depth > 1:
            return
        gpu, T = self.gpu, torch.Tensor
        for name in self.CREATE:
            self._replace(torch, name, self._creates(getattr(torch, name)))
        for name in self.FROM_HOST:
            self._replace(torch, name, self._copies_from_host(getattr(torch, name)))
        for name in self.CREATE_ALIKE:
            self._replace(T, name, self._creates(getattr(T, name)))
        self.real = {name: getattr(T, name) for name in ("to", "numpy", "__array__", "tolist", "new_tensor")}
        self._replace(torch.backends.cudnn, "is_acceptable", lambda tensor: False)
        self._replace(T, "device", property(lambda one: _device(gpu.place(one))))
        self._replace(T, "is_cuda", property(gpu.holds))
        self._replace(T, "is_cpu", property(lambda one: not gpu.holds(one)))
        self._replace(T, "get_device", lambda one: gpu.place(one) if gpu.holds(one) else -1)
        self._replace(T, "to", _unbound(self._to))
        self._replace(T, "cpu", lambda one: self._move(one, None, None))
        self._replace(T, "cuda", lambda one, *more: self._move(one, 0, None))
        self._replace(T, "numpy", lambda one, *more, **options: self._numpy("numpy", one, *more, **options))
        self._replace(T, "__array__", lambda one, *more: self._numpy("__array__", one, *more))
        self._replace(T, "pin_memory", _unbound(self._pin))
        self._replace(T, "is_pinned", lambda one: _storage(one)._cdata in self.pinned)
        self._replace(T, "tolist", _unbound(self._tolist))
        self._replace(T, "new_tensor", _unbound(self._new_tensor))

    def remove(self):
        self.depth -= 1
        if self.depth:
            return
        for place, name, value in reversed(self.replaced):
            delattr(place, name) if value is None else setattr(place, name, value)
        self.replaced.clear()

    def _replace(self, place, name, value):
        self.replaced.append((place, name, vars(place).get(name)))
        setattr(place, name, value)

    def _creates(self, create):
        @functools.wraps(create)
        def created(*args, **kwargs):
            if not _is_cuda(kwargs.get("device")):
                return create(*args, **kwargs)
            number = _number(kwargs["device"])
            with self.gpu.creating(number):
                return self.gpu.take(create(*args, **{**kwargs, "device": "cpu"}), number)

        return created

    def _copies_from_host(self, create):
        @functools.wraps(create)
        def created(*args, **kwargs):
            if not _is_cuda(kwargs.get("device")):
                return create(*args, **kwargs)
            self.gpu.wait("copy to the device")
            with self.gpu.silence():
                return self.gpu.take(create(*args, **{**kwargs, "device": "cpu"}), _number(kwargs["device"]))

        return created

    def _to(self, one, *args, **kwargs):
        other = args[0] if args and isinstance(args[0], torch.Tensor) else kwargs.get("other")
        if other is not None:
            return self._move(one, self.gpu.place(other), other.dtype)
        copy = kwargs.pop("copy", False)
        device, dtype, non_blocking, _ = torch._C._nn._parse_to(*args, **kwargs)
        there = self.gpu.place(one) if device is None else _number(device)
        return self._move(one, there, dtype, non_blocking, copy)

    def _move(self, one, there, dtype, non_blocking=False, copy=False):
        gpu = self.gpu
        dtype = dtype or one.dtype
        here = gpu.place(one)
        if here == there:
            return self.real["to"](one, dtype=dtype, copy=copy)
        if here is None and not (non_blocking and one.is_pinned()):
            gpu.wait("copy to the device")
        elif there is None and not non_blocking:
            gpu.wait("copy to the host")
        gpu.launches += 1
        with gpu.silence():
            moved = self.real["to"](one, dtype=dtype, copy=True)
        return moved if there is None else gpu.take(moved, there)

    def _pin(self, one):
        if self.gpu.holds(one):
            raise RuntimeError("cannot pin a tensor that is not on the host")
        with self.gpu.silence():
            pinned = one.clone()
        self.pinned[_storage(pinned)._cdata] = StorageWeakRef(_storage(pinned))
        return pinned

    def _numpy(self, name, one, *args, **kwargs):
        if self.gpu.holds(one):
            raise TypeError(f"can't convert cuda:0 device type tensor to numpy, at {_line_of_aptool()}")
        with self.gpu.silence():
            return self.real[name](one, *args, **kwargs)

    def _tolist(self, one):
        if self.gpu.holds(one):
            self.gpu.wait("tolist")
        with self.gpu.silence():
            return self.real["tolist"](one)

    def _new_tensor(self, one, *args, **kwargs):
        with self.gpu.silence():
            created = self.real["new_tensor"](one, *args, **kwargs)
        if self.gpu.holds(one):
            self.gpu.wait("copy to the device")
            self.gpu.take(created, self.gpu.place(one))
        return created


def _unbound(method):
    """A bound method as a plain function, which a class binds to its own instances."""
    return lambda *args, **kwargs: method(*args, **kwargs)


def _storage(tensor):
    with torch._C.DisableTorchFunction(), torch.utils._python_dispatch._disable_current_modes():
        values = tensor._values() if tensor.layout is torch.sparse_coo else tensor
        return values.untyped_storage()


def _is_cuda(device):
    return device is not None and torch.device(device).type == "cuda"


def _number(device):
    """The number of a GPU; None for the host."""
    return (torch.device(device).index or 0) if _is_cuda(device) else None


def _device(number):
    return CPU if number is None else torch.device("cuda", number)


def _is_view(func):
    return any(one.alias_info is not None and not one.alias_info.is_write for one in func._schema.returns)


def _line_of_aptool():
    frame = sys._getframe(1)
    while frame is not None:
        name = frame.f_code.co_filename
        if name.startswith(PACKAGE):
            return f"{name.removeprefix(PACKAGE)}:{frame.f_lineno}"
        frame = frame.f_back
    return "elsewhere"
