"""Imported once by the server of forked processes: PyTorch imports much of itself at its first optimizer."""

import torch

torch.optim.Adam([torch.zeros(1, requires_grad=True)])
