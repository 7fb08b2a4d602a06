"""A simulated GPU: CPU tensors that report the device ``cuda:0``, with the errors and the waits of CUDA.

    with SimulatedGpu() as gpu:
        RankerScorer(ranker.to("cuda"), device="cuda").score(...)
    gpu.waits, gpu.launches, gpu.peak_bytes

The CPU computes everything. A storage that was created on the GPU, or copied to it, belongs to it. An
operation on tensors of host and GPU raises an error where CUDA would raise one. Operations that
make the host wait are counted per line of aptool, according to ATen's sources: ``item`` and its callers,
copies to the host, copies from memory that is not pinned, and results whose size depends on values. Launches
are approximate: one per operation, none for views. The GPU has a random generator of its own.
"""

import sys
from collections import Counter
from contextlib import ExitStack, contextmanager
from pathlib import Path
from unittest import mock

import torch
from torch.multiprocessing.reductions import StorageWeakRef
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes
from torch.utils._pytree import tree_leaves

import aptool

PACKAGE = f"{Path(aptool.__file__).parent}/"
CPU, GPU, FREE = torch.device("cpu"), torch.device("cuda", 0), 1 << 30
aten, T = torch.ops.aten, torch.Tensor

# Operations that may mix host and GPU: copies, and indexing with host tensors.
COPIES = {aten.copy_.default, aten._to_copy.default, aten.set_.source_Tensor}
INDEXING = {"index", "index_put", "index_put_", "_index_put_impl_", "_unsafe_index"}
# Operations that CUDA refuses in deterministic mode, by their arguments.
NONDETERMINISTIC = {
    "cumsum": lambda args, kwargs: args[0].is_floating_point(),
    "bincount": lambda args, kwargs: (kwargs.get("weights") if len(args) < 2 else args[1]) is not None,
    "_embedding_bag_backward": lambda args, kwargs: args[8] == 2,  # the mode ``max``
}


class SimulatedGpu:
    """Context manager that simulates a GPU with ``memory`` bytes; see the module.

    ``waits`` are counted by (operation, line of aptool); ``sent`` has the bytes of each copy from pinned
    memory; ``refused`` is the number of tensors that did not fit.
    """

    def __init__(self, memory=None):
        self.memory, self.refused = FREE if memory is None else memory, 0
        self._storages, self._in_use = {}, 0  # by address of each storage: (weak reference, bytes)
        self.pinned, self.is_tracked = {}, True  # by address: a weak reference, which keeps the address
        self.generator = torch.Generator()
        self.reset()

    def reset(self):
        self.waits, self.launches, self.sent, self.peak_bytes = Counter(), 0, [], 0

    def __enter__(self):
        cuda = {
            "mem_get_info": lambda device=None: (max(0, self.memory - self._in_use), FREE),
            "get_device_name": lambda device=None: "simulated",
            "get_device_capability": lambda device=None: (8, 0),
            "manual_seed_all": self.generator.manual_seed,
            "get_rng_state": lambda device="cuda": self.generator.get_state(),
            "set_rng_state": lambda state, device="cuda": self.generator.set_state(state),
        }
        self._stack = ExitStack()
        for part in (
            mock.patch.multiple(torch.cuda, **cuda),
            # What F calls is seen. (A mock would keep the tensors.)
            mock.patch.object(F, "has_torch_function_variadic", lambda *tensors: False),  # noqa: PT008
            mock.patch.object(torch.backends.cudnn, "is_acceptable", lambda tensor: False),  # noqa: PT008
            _Operations(self),
            _Functions(self),
        ):
            self._stack.enter_context(part)
        return self

    def __exit__(self, *problem):
        self._stack.__exit__(*problem)

    def holds(self, tensor):
        entry = self._storages.get(storage_of(tensor)._cdata)
        return entry is not None and not entry[0].expired()

    def take(self, tensor):
        """Return a tensor whose storage is on the GPU from now on."""
        if self.holds(tensor):
            return tensor
        storage = storage_of(tensor)
        size = storage.nbytes()
        if self.memory < FREE or self._in_use + size > self.peak_bytes:
            for key in [key for key, (reference, _) in self._storages.items() if reference.expired()]:
                self._in_use -= self._storages.pop(key)[1]
        if self._in_use + size > self.memory:
            self.refused += 1
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate more.\nDetails.")
        _, freed = self._storages.get(storage._cdata, (None, 0))  # at the same address
        self._storages[storage._cdata] = StorageWeakRef(storage), size
        self._in_use += size - freed
        self.peak_bytes = max(self.peak_bytes, self._in_use)
        return tensor

    def wait(self, what, times=1):
        if self.is_tracked:
            self.waits[what, line_of_aptool()] += times

    @contextmanager
    def untracked(self):
        """Count and check nothing inside the block."""
        before, self.is_tracked = self.is_tracked, False
        try:
            yield
        finally:
            self.is_tracked = before

    def move(self, tensor, to_gpu, dtype=None, non_blocking=False, copy=False):
        on_gpu, dtype = self.holds(tensor), dtype or tensor.dtype
        if on_gpu == to_gpu:
            return tensor.to(dtype=dtype, copy=copy)
        if not (non_blocking and (on_gpu or storage_of(tensor)._cdata in self.pinned)):
            self.wait("copy to the device" if to_gpu else "copy to the host")
        self.launches += 1
        with self.untracked():
            moved = tensor.to(dtype=dtype, copy=True)
        return self.take(moved) if to_gpu else moved


class _Functions(TorchFunctionMode):
    """The devices of tensors, and copies between host and GPU, which the dispatcher does not show."""

    def __init__(self, gpu):
        super().__init__()
        self.gpu = gpu
        self._replaced = {
            T.device.__get__: lambda tensor: GPU if gpu.holds(tensor) else CPU,
            T.is_cuda.__get__: gpu.holds,
            T.to: self._to,
            T.cpu: lambda tensor: gpu.move(tensor, False),
            T.pin_memory: self._pin,
        }

    def __torch_function__(self, func, types, args=(), kwargs=None):
        gpu, kwargs = self.gpu, kwargs or {}
        if func in self._replaced:
            return self._replaced[func](*args, **kwargs)
        if kwargs.get("device") is not None and torch.device(kwargs["device"]).type == "cuda":
            if func in (torch.tensor, torch.as_tensor):
                gpu.wait("copy to the device")
            gpu.launches += 1
            with gpu.untracked():
                return gpu.take(func(*args, **{**kwargs, "device": "cpu"}))
        if func in (T.numpy, T.__array__) and gpu.holds(args[0]):
            raise TypeError(f"can't convert cuda:0 device type tensor to numpy, at {line_of_aptool()}")
        if func is T.tolist and gpu.holds(args[0]):
            gpu.wait("tolist")
        return func(*args, **kwargs)

    def _to(self, tensor, *args, copy=False, **kwargs):
        device, dtype, non_blocking, _ = torch._C._nn._parse_to(*args, **kwargs)
        to_gpu = self.gpu.holds(tensor) if device is None else device.type == "cuda"
        return self.gpu.move(tensor, to_gpu, dtype, non_blocking, copy)

    def _pin(self, tensor):
        pinned = tensor.clone()
        self.gpu.sent.append(tensor.nbytes)
        self.gpu.pinned[storage_of(pinned)._cdata] = StorageWeakRef(storage_of(pinned))
        return pinned


class _Operations(TorchDispatchMode):
    """The operations of ATen: their devices, waits, launches and results."""

    def __init__(self, gpu):
        super().__init__()
        self.gpu = gpu

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        gpu, kwargs = self.gpu, kwargs or {}
        tensors = [value for value in tree_leaves((args, kwargs)) if isinstance(value, T)]
        on_host = [tensor for tensor in tensors if not gpu.holds(tensor)]
        some_on_gpu = len(on_host) < len(tensors)
        if not (gpu.is_tracked and some_on_gpu):
            return func(*args, **kwargs)
        if func is not aten.lstm.input and func._can_decompose():  # that is one kernel of cuDNN
            with self:  # in inference mode, composite operations arrive undivided
                result = func.decompose(*args, **kwargs)
            if result is not NotImplemented:
                return result
        name = func._overloadpacket.__name__
        if on_host:
            self._check(func, name, args, on_host)
        is_refused = NONDETERMINISTIC.get(name)
        if torch.are_deterministic_algorithms_enabled() and is_refused and is_refused(args, kwargs):
            raise RuntimeError(f"{name} does not have a deterministic implementation, at {line_of_aptool()}")
        self._count(func, name, args, kwargs)
        is_random = torch.Tag.nondeterministic_seeded in func.tags
        with gpu.untracked(), torch.random.fork_rng(devices=[], enabled=is_random):
            if is_random:
                torch.set_rng_state(gpu.generator.get_state())
            result = func(*args, **kwargs)
            if is_random:
                gpu.generator.set_state(torch.get_rng_state())
        if func is not aten.copy_.default:
            for tensor in tree_leaves(result):
                if isinstance(tensor, T):
                    gpu.take(tensor)
        return result

    def _check(self, func, name, args, on_host):
        """Raise where CUDA would, for tensors of host and GPU."""
        gpu, indices = self.gpu, args[1] if name in INDEXING else []
        others = [tensor for tensor in on_host if not any(tensor is each for each in indices)]
        if func in COPIES:
            gpu.wait("copy to the device" if gpu.holds(args[0]) else "copy to the host")
        elif any(tensor.dim() for tensor in others):
            raise RuntimeError(f"{name} with {len(others)} host tensors, at {line_of_aptool()}")
        elif name in INDEXING:
            gpu.wait("index or value on the host")

    def _count(self, func, name, args, kwargs):
        is_view = any(value.alias_info and not value.alias_info.is_write for value in func._schema.returns)
        self.gpu.launches += not ("empty" in name or name == "_local_scalar_dense" or is_view)
        sized = {torch.Tag.data_dependent_output, torch.Tag.dynamic_output_shape} & {*func.tags}
        times = {"bincount": 2, "_coalesce": 1}.get(name, len(sized))
        if name in INDEXING:
            times = sum(index is not None and not index.dtype.is_signed for index in args[1])  # masks
        elif name == "segment_reduce":
            times = 0 if kwargs.get("unsafe", False) else 2  # it checks the lengths
        elif name == "repeat_interleave":
            times = int(kwargs.get("output_size") is None)
        if times:
            self.gpu.wait("item" if name == "_local_scalar_dense" else name, times)


def storage_of(tensor):
    with torch._C.DisableTorchFunction():
        if tensor.layout is not torch.sparse_coo:
            return tensor.untyped_storage()
        with _disable_current_modes():
            return tensor._values().untyped_storage()


def line_of_aptool():
    frame = sys._getframe(1)
    while frame is not None and not frame.f_code.co_filename.startswith(PACKAGE):
        frame = frame.f_back
    return f"{frame.f_code.co_filename.removeprefix(PACKAGE)}:{frame.f_lineno}" if frame else "elsewhere"
