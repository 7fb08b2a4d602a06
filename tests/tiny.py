"""Tiny texts, systems and collections, which are learned in a second."""

import itertools
import random

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch

from aptool.config import Recipe, load_recipe
from aptool.data.parquet import arrow_schema
from aptool.data.writing import LabelledPool
from aptool.models.build import POOLINGS, build_ranker
from aptool.models.model import LoadedModel
from aptool.models.pooling import StateOptions
from aptool.scoring.model_system import ModelSystem
from aptool.scoring.systems import Scorer, System
from aptool.text.tokenizer import Tokens
from aptool.training.data import IndexLists, TrainingSet

SYSTEMS = ("qa-cnn", "ap-cnn", "qa-bilstm", "ap-bilstm")
# ``pooling.type`` of all poolings of encoder states.
OVER_STATES = tuple(name for name, pooling in POOLINGS.items() if issubclass(pooling.Options, StateOptions))

# Fast training that reliably exceeds random order, independent of the presets.
OPTIONS = (
    "vectors.source=random",
    "vectors.dim=16",
    "training.epochs=4",
    "training.minibatch=8",
    "training.pairs=all",
    "training.loss=hinge",
    "training.margin=0.5",
    "training.negatives=pool",
    "training.sampled_negatives=5",
    "training.hard_negatives=1",
    "training.in_batch=false",
    "training.mining_interval=1",
    "training.optimizer=adam",
    "training.learning_rate=0.01",
    "training.schedule=constant",
    "training.dropout=0",
    "training.clip=0",
    "training.patience=0",
    "training.dev_measure=map",
)
SIZES = {"cnn": ("encoder.features=16", "encoder.window=3"), "bilstm": ("encoder.hidden=8",)}


def options(system: str, *more: str) -> tuple[str, ...]:
    """``section.key=value`` overrides for a tiny version of a preset; the last value of a key counts."""
    return (*OPTIONS, *SIZES[system.removesuffix("-paper").split("-")[1]], *more)


def recipe(system: str, *more: str) -> Recipe:
    return load_recipe(system, options(system, *more))


def ranker(system: str, words: int = 20, dim: int = 5, seed: int = 1, size: int = 3, **more):
    """A ranker with freshly initialized weights; ``size`` is c of a CNN, H of a biLSTM."""
    name = "features" if system.endswith("cnn") else "hidden"
    overrides = [f"encoder.{name}={size}", *(f"encoder.{key}={value}" for key, value in more.items())]
    torch.manual_seed(seed)
    return build_ranker(load_recipe(system, overrides), words, dim).eval()


def pooled(pooling: str, words: int = 20, dim: int = 5, seed: int = 1, size: int = 3):
    """A CNN of c = ``size`` features with any pooling of states, freshly initialized."""
    torch.manual_seed(seed)
    options = f"encoder.features={size}", f"pooling.type={pooling}"
    return build_ranker(load_recipe("qa-cnn", options), words, dim).eval()


def tokens(*texts: list[int]) -> Tokens:
    lengths = np.array([len(text) for text in texts], dtype=np.int64)
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    return Tokens(np.array(list(itertools.chain(*texts)), dtype=np.int32), offsets)


def lists(rows):
    owner = np.repeat(np.arange(len(rows)), [len(row) for row in rows])
    return IndexLists.of(owner, np.array([*itertools.chain(*rows)], dtype=np.int64), len(rows))


def training_set(positives, answers):
    """A training set in which every question and every answer has two unique words."""
    questions = len(positives)
    pools = [[a for a in range(answers) if a not in relevant] for relevant in positives]
    return TrainingSet(
        questions=tokens(*(question_words(q) for q in range(questions))),
        answers=tokens(*(answer_words(a) for a in range(answers))),
        positives=lists(positives),
        pool_negatives=lists(pools),
    )


def question_words(question):
    return [2 + 2 * question, 3 + 2 * question]


def answer_words(answer):
    return [30 + 2 * answer, 31 + 2 * answer]


THINGS = (
    *("river", "mountain", "kitchen", "engine", "window", "garden", "letter", "doctor", "winter", "market"),
    *("bridge", "violin", "island", "candle", "pocket", "mirror", "forest", "teacher", "hammer", "silver"),
)


def labelled_pools(split: str, questions: int, candidates: int = 6) -> list[LabelledPool]:
    """Questions whose two rare words occur together only in their relevant answer."""
    generator = random.Random(f"tiny {split}")
    pairs = generator.sample(list(itertools.permutations(THINGS, 2)), questions)
    relevant = [f"the {first} near the {second} is {generator.choice(THINGS)}" for first, second in pairs]
    pools = []
    for number, (first, second) in enumerate(pairs):
        negatives = [index for index in range(questions) if index != number]
        pool = [number, *generator.sample(negatives, candidates - 1)]
        generator.shuffle(pool)
        names = [f"{split}-a{answer}" for answer in pool]
        texts = [relevant[answer] for answer in pool]
        qrels = {f"{split}-a{number}": 1}
        pools.append(
            LabelledPool(f"{split}-q{number}", f"where is the {first} with the {second}", names, texts, qrels)
        )
    return pools


def write_pools(path, *row_groups, schema=None):
    """Write a pools file as another program would; each row group is a list of rows."""
    schema = schema if schema is not None else arrow_schema("pools")
    with pq.ParquetWriter(path, schema) as writer:
        for rows in row_groups:
            writer.write_table(pa.Table.from_pylist(rows, schema=schema))
    return path


def row(question_id="q1", question="where is it", candidates=(("a1", "here"), ("a2", "there"))) -> dict:
    if candidates is not None:
        candidates = [
            pair if pair is None else dict(zip(("answer_id", "text"), pair, strict=True))
            for pair in candidates
        ]
    return {"question_id": question_id, "question": question, "candidates": candidates}


def model_system(model: LoadedModel, device: str = "cpu", **settings) -> ModelSystem:
    """A loaded model as a system."""
    return ModelSystem("model", device, model=model, **settings)


class Opened(System):
    """A system that is open: a scorer of a test."""

    def __init__(self, scorer: Scorer):
        self.scorer = scorer

    def open(self, units=(), answers=None, device=None):
        return self.scorer
