"""Tiny versions of the presets of published systems."""

from dataclasses import replace

import numpy as np
import torch
from tiny import OPTIONS

from aptool.config import Recipe, load_recipe
from aptool.models.build import Ranker, build_ranker
from aptool.text.tokenizer import Tokens

# Options that make each preset small, and the loss that suits its similarity.
SMALL = {
    "feng-2015": ("encoder.features=16", "training.margin=0.1"),
    "yang-2015": ("encoder.features=16", "training.loss=logistic"),
    "severyn-2015": ("encoder.features=16", "vectors.fine_tune=true", "training.loss=logistic"),
    "tan-2015": ("encoder.hidden=8",),
    "yin-2015": ("pooling.features=8", "pooling.window=2", "training.loss=logistic"),
    "wang-nyberg-2015": ("pooling.hidden=8", "vectors.fine_tune=true", "training.loss=logistic"),
    "wang-ittycheriah-2015": ("head.size=8", "vectors.fine_tune=true", "training.loss=logistic"),
}
PUBLISHED = tuple(SMALL)


def published_recipe(system: str, *more: str) -> Recipe:
    return load_recipe(system, (*OPTIONS, *SMALL[system], *more))


def published_ranker(system: str, words: int = 20, dim: int = 6, seed: int = 1, *more: str) -> Ranker:
    torch.manual_seed(seed)
    return build_ranker(published_recipe(system, *more), words, dim).eval()


def with_words(tokens: Tokens) -> Tokens:
    """Identify each token as a separate word."""
    return replace(tokens, words=tokens.ids.astype(np.int64))
