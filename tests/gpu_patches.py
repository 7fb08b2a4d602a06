"""Patches of torch for simulated GPUs: the devices of tensors, and copies between host and GPU.

The dispatcher does not show ``SimulatedGpu`` these functions, or shows them without the needed details.
"""

import functools
import sys
from pathlib import Path

import torch
from torch.multiprocessing.reductions import StorageWeakRef

import aptool

PACKAGE = f"{Path(aptool.__file__).parent}/"
CPU = torch.device("cpu")
MEMORY = 1 << 30  # bytes of each GPU


class Patches:
    """Replaced attributes of ``torch`` and ``torch.Tensor`` during the simulation."""

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
        self.real_get_rng_state, self.real_set_rng_state = torch.get_rng_state, torch.set_rng_state
        self._replace(torch, "set_rng_state", lambda state: self.real_set_rng_state(self._on_host(state)))
        self._replace(torch.cuda, "manual_seed_all", gpu.seed)
        self._replace(
            torch.cuda, "get_rng_state", lambda device="cuda": gpu.generator_state(_number(device)).clone()
        )
        self._replace(torch.cuda, "set_rng_state", self._set_rng_state)
        cuda = {
            "mem_get_info": lambda device=None: (gpu.free_memory(MEMORY), MEMORY),
            "memory_reserved": lambda device=None: 0,
            "empty_cache": lambda: None,
            "current_device": lambda: 0,
            "get_device_name": lambda device=None: "simulated",
            "get_device_capability": lambda device=None: (8, 0),
        }
        for name, function in cuda.items():
            self._replace(torch.cuda, name, function)
        self._replace(T, "device", property(lambda tensor: _device(gpu.gpu_of(tensor))))
        self._replace(T, "is_cuda", property(gpu.holds))
        self._replace(T, "is_cpu", property(lambda tensor: not gpu.holds(tensor)))
        self._replace(T, "get_device", lambda tensor: gpu.gpu_of(tensor) if gpu.holds(tensor) else -1)
        self._replace(T, "to", _unbound(self._to))
        self._replace(T, "cpu", lambda tensor: self._move(tensor, None, None))
        self._replace(T, "cuda", lambda tensor, *args: self._move(tensor, 0, None))
        self._replace(T, "numpy", _unbound(functools.partial(self._numpy, "numpy")))
        self._replace(T, "__array__", _unbound(functools.partial(self._numpy, "__array__")))
        self._replace(T, "pin_memory", _unbound(self._pin))
        self._replace(T, "is_pinned", lambda tensor: storage_of(tensor)._cdata in self.pinned)
        self._replace(T, "tolist", _unbound(self._tolist))
        self._replace(T, "new_tensor", _unbound(self._new_tensor))

    def remove(self):
        self.depth -= 1
        if self.depth:
            return
        for owner, name, value in reversed(self.replaced):
            delattr(owner, name) if value is None else setattr(owner, name, value)
        self.replaced.clear()

    def _replace(self, owner, name, value):
        self.replaced.append((owner, name, vars(owner).get(name)))
        setattr(owner, name, value)

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
            with self.gpu.untracked():
                return self.gpu.take(create(*args, **{**kwargs, "device": "cpu"}), _number(kwargs["device"]))

        return created

    def _to(self, tensor, *args, **kwargs):
        other = args[0] if args and isinstance(args[0], torch.Tensor) else kwargs.get("other")
        if other is not None:
            return self._move(tensor, self.gpu.gpu_of(other), other.dtype)
        copy = kwargs.pop("copy", False)
        device, dtype, non_blocking, _ = torch._C._nn._parse_to(*args, **kwargs)
        target = self.gpu.gpu_of(tensor) if device is None else _number(device)
        return self._move(tensor, target, dtype, non_blocking, copy)

    def _move(self, tensor, target, dtype, non_blocking=False, copy=False):
        gpu = self.gpu
        dtype = dtype or tensor.dtype
        source = gpu.gpu_of(tensor)
        if source == target:
            return self.real["to"](tensor, dtype=dtype, copy=copy)
        if source is None and not (non_blocking and tensor.is_pinned()):
            gpu.wait("copy to the device")
        elif target is None and not non_blocking:
            gpu.wait("copy to the host")
        gpu.launches += 1
        with gpu.untracked():
            moved = self.real["to"](tensor, dtype=dtype, copy=True)
        return moved if target is None else gpu.take(moved, target)

    def _on_host(self, state):
        if self.gpu.holds(state):
            raise TypeError("RNG state must be a torch.ByteTensor")
        return state

    def _set_rng_state(self, state, device="cuda"):
        self.gpu.set_generator_state(self._on_host(state).clone(), _number(device))

    def _pin(self, tensor):
        if self.gpu.holds(tensor):
            raise RuntimeError("cannot pin a tensor that is not on the host")
        with self.gpu.untracked():
            pinned = tensor.clone()
        self.gpu.sent.append(tensor.nbytes)
        self.pinned[storage_of(pinned)._cdata] = StorageWeakRef(storage_of(pinned))
        return pinned

    def _numpy(self, name, tensor, *args, **kwargs):
        if self.gpu.holds(tensor):
            raise TypeError(f"can't convert cuda:0 device type tensor to numpy, at {line_of_aptool()}")
        with self.gpu.untracked():
            return self.real[name](tensor, *args, **kwargs)

    def _tolist(self, tensor):
        if self.gpu.holds(tensor):
            self.gpu.wait("tolist")
        with self.gpu.untracked():
            return self.real["tolist"](tensor)

    def _new_tensor(self, tensor, *args, **kwargs):
        with self.gpu.untracked():
            created = self.real["new_tensor"](tensor, *args, **kwargs)
        if self.gpu.holds(tensor):
            self.gpu.wait("copy to the device")
            self.gpu.take(created, self.gpu.gpu_of(tensor))
        return created


def _unbound(method):
    """Wrap a bound method in a function, which a class can bind to its instances."""
    return lambda *args, **kwargs: method(*args, **kwargs)


def storage_of(tensor):
    if tensor.layout is not torch.sparse_coo:
        return tensor.untyped_storage()
    with torch.utils._python_dispatch._disable_current_modes():
        return tensor._values().untyped_storage()


def _is_cuda(device):
    return device is not None and torch.device(device).type == "cuda"


def _number(device):
    """The number of a GPU; None for the CPU."""
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
