"""What torch says about the tensors of simulated GPUs, and copies between host and GPU.

``SimulatedGpu`` sees the operations on tensors; these are not operations, or say more than one does.
"""

import functools
import sys
from pathlib import Path

import torch
from torch.multiprocessing.reductions import StorageWeakRef

import aptool

PACKAGE = f"{Path(aptool.__file__).parent}/"
CPU = torch.device("cpu")


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
        self._replace(T, "is_pinned", lambda one: storage_of(one)._cdata in self.pinned)
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
        self.pinned[storage_of(pinned)._cdata] = StorageWeakRef(storage_of(pinned))
        return pinned

    def _numpy(self, name, one, *args, **kwargs):
        if self.gpu.holds(one):
            raise TypeError(f"can't convert cuda:0 device type tensor to numpy, at {line_of_aptool()}")
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


def storage_of(tensor):
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


def line_of_aptool():
    frame = sys._getframe(1)
    while frame is not None:
        name = frame.f_code.co_filename
        if name.startswith(PACKAGE):
            return f"{name.removeprefix(PACKAGE)}:{frame.f_lineno}"
        frame = frame.f_back
    return "elsewhere"
