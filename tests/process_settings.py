"""Settings of PyTorch and NumPy in the process of a user: context managers by name, and their state."""

import contextlib

import numpy as np
import torch


@contextlib.contextmanager
def _set(setter, value, before):
    setter(value)
    try:
        yield
    finally:
        setter(before)


_OLD_PYTORCH = not hasattr(torch.backends.cudnn, "rnn")


def _set_products(value):
    if _OLD_PYTORCH:
        torch.backends.cuda.matmul.allow_tf32 = value == "tf32"
    else:
        torch.backends.cudnn.rnn.fp32_precision = value


SETTINGS = {
    "TF32 on GPUs": lambda: _set(_set_products, "tf32", "ieee"),
    "float64": lambda: _set(torch.set_default_dtype, torch.float64, torch.float32),
    "bfloat16": lambda: _set(torch.set_default_dtype, torch.bfloat16, torch.float32),
    "default device": lambda: _set(torch.set_default_device, "meta", "cpu"),
    "device block": lambda: torch.device("meta"),
    "inference_mode": torch.inference_mode,
    "no_grad": torch.no_grad,
    "autocast": lambda: torch.autocast("cpu", torch.bfloat16),
    "deterministic": lambda: _set(torch.use_deterministic_algorithms, True, False),
    "products in bf16": lambda: _set(torch.set_float32_matmul_precision, "medium", "highest"),
    "generator": lambda: _set(torch.manual_seed, 7, 0),
    "NumPy raises": lambda: np.errstate(all="raise"),
}


def state():
    """All settings and random generators that a call may not change."""
    return (
        torch.get_default_dtype(),
        torch.get_default_device(),
        torch.is_inference_mode_enabled(),
        torch.is_grad_enabled(),
        torch.is_autocast_enabled("cpu"),
        torch.are_deterministic_algorithms_enabled(),
        torch.get_float32_matmul_precision(),
        torch.backends.cuda.matmul.allow_tf32 if _OLD_PYTORCH else torch.backends.cudnn.rnn.fp32_precision,
        np.geterr(),
        torch.get_rng_state().tolist(),
        str(np.random.get_state()),
    )
