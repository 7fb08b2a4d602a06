"""Training data: the questions of a split, their pools, and their positive answers; the dev split.

Answers are identified by their text, not by their id. So the text of a positive answer is never sampled as a
negative under another id. The states of a frozen network are computed once per text and kept in memory.
"""

import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import polars as pl
import torch
from torch import Tensor

from aptool.config import Recipe, TextOptions
from aptool.data.collection import Collection
from aptool.data.pools import read_answers
from aptool.data.trec import read_qrels
from aptool.environment import available_memory
from aptool.errors import AptoolError, InputError
from aptool.evaluation.measures import evaluate_frames
from aptool.evaluation.names import DEFAULT_MEASURES
from aptool.models.build import Ranker
from aptool.models.ragged import Ragged, rows_of
from aptool.progress import progress
from aptool.scoring.ranker_scorer import RankerScorer
from aptool.text.tokenizer import TextTokenizer, Tokens
from aptool.training.process_group import SINGLE_PROCESS, ProcessGroup

logger = logging.getLogger(__name__)

TRAIN = "train"  # the split that systems are trained on

BM25_NEGATIVES = 100  # answers per question that ``bm25`` negatives are sampled from

# Maximum share of the free memory for states.
MEMORY_SHARE = 0.5
TOKENS_PER_BLOCK = 1 << 16


@dataclass(frozen=True)
class IndexLists:
    """Concatenated lists of indices: list i is ``values[offsets[i] : offsets[i + 1]]``, ascending."""

    values: np.ndarray  # (total,) int64
    offsets: np.ndarray  # (n + 1,) int64

    @classmethod
    def of(cls, owner: np.ndarray, values: np.ndarray, lists: int) -> "IndexLists":
        """Add ``values[i]`` to list ``owner[i]``, without duplicates."""
        span = int(values.max(initial=0)) + 1
        keys = np.sort(owner.astype(np.int64) * span + values)
        keys = keys[np.concatenate([[True], keys[1:] != keys[:-1]])[: len(keys)]]
        return cls(keys % span, np.searchsorted(keys, np.arange(lists + 1) * span))

    @property
    def lengths(self) -> np.ndarray:
        """(n,) int64 length of each list."""
        return np.diff(self.offsets)

    def contain(self, lists: np.ndarray, values: np.ndarray) -> np.ndarray:
        """(n, k) bool: whether list i of (n,) contains value j of (k,)."""
        distinct, column = np.unique(values, return_inverse=True)
        lengths = self.lengths[lists]
        owner = np.repeat(np.arange(len(lists)), lengths)
        members = self.values[rows_of(self.offsets[lists], lengths)]
        index = np.searchsorted(distinct, members)
        index[index == len(distinct)] = 0
        present = distinct[index] == members
        contains = np.zeros((len(lists), len(distinct)), dtype=bool)
        contains[owner[present], index[present]] = True
        return contains[:, column]


@dataclass(frozen=True)
class SplitTexts:
    """A split before tokenization."""

    questions: list[str]  # one per pool
    answers: list[str]  # distinct
    positives: IndexLists  # the relevant answers in the pool of each question
    pools: IndexLists  # all answers in the pool of each question

    def all(self) -> list[str]:
        """Return the texts from which a vocabulary is learned: questions and distinct answers."""
        return self.questions + self.answers


def read_training_texts(collection: Collection, recipe: Recipe) -> SplitTexts:
    """Read the train split, with the answers that the negatives of a recipe come from."""
    negatives = recipe.training.negatives
    texts = read_texts(collection, TRAIN, shared=negatives in ("collection", "bm25", "all"))
    if negatives != "bm25":
        return texts
    from aptool.text.bm25 import BM25

    best, _ = BM25(texts.answers).top(texts.questions, BM25_NEGATIVES)
    owner = np.repeat(np.arange(len(best)), best.shape[1])
    return replace(texts, pools=IndexLists.of(owner, best.reshape(-1), len(best)))


def read_texts(collection: Collection, split: str, *, shared: bool = False) -> SplitTexts:
    """Join the pools and qrels of a split; equal answers are joined, too.

    Relevant answers outside all pools are ignored. ``shared`` adds the shared answers of the collection.
    """
    questions: list[str] = []
    answers: dict[str, int] = {}  # number of each distinct answer
    frames = []
    for pools in collection.batches(split):
        index = np.array([answers.setdefault(text, len(answers)) for text in pools.answers.to_pylist()])
        numbers = {"question": pools.pair_question + len(questions), "answer": index[pools.pair_answer]}
        frames.append(pools.pairs().hstack(pl.DataFrame(numbers)))
        questions += pools.questions.to_pylist()
    pairs = pl.concat(frames)
    relevant = read_qrels(collection.qrels_file(split)).filter(pl.col("relevance") > 0)
    positive = pairs.join(relevant, on=["question_id", "answer_id"], how="semi")
    if positive.is_empty():
        problem = f"none for {collection.pools_file(split).name}"
        expected = "at least one relevant answer in a pool"
        raise InputError(collection.qrels_file(split), problem=problem, expected=expected)
    if shared and collection.answers is not None:
        for text in read_answers(collection.answers).texts.to_pylist():
            answers.setdefault(text, len(answers))
    positive_lists, pool_lists = (
        IndexLists.of(frame["question"].to_numpy(), frame["answer"].to_numpy(), len(questions))
        for frame in (positive, pairs)
    )
    return SplitTexts(questions, list(answers), positive_lists, pool_lists)


def all_texts(collection: Collection) -> Iterator[str]:
    """Yield every text of every split; an answer appears once per row group."""
    for split in collection.splits:
        for pools in collection.batches(split):
            yield from pools.questions.to_pylist()
            yield from pools.answers.to_pylist()


@dataclass(frozen=True)
class TrainingSet:
    """A split as token ids."""

    questions: Tokens  # one per pool
    answers: Tokens  # distinct
    positives: IndexLists  # the relevant answers in the pool of each question
    pool_negatives: IndexLists  # the non-relevant answers in the pool of each question

    @property
    def pairs(self) -> np.ndarray:
        """(pairs, 2) int64: each question with each of its positive answers."""
        owner = np.repeat(np.arange(len(self.questions)), self.positives.lengths)
        return np.stack([owner, self.positives.values], axis=1)


def tokenize(texts: SplitTexts, tokenizer: TextTokenizer, options: TextOptions) -> TrainingSet:
    """Convert a split to token ids, truncated at the limits of the recipe."""
    return TrainingSet(
        questions=tokenizer.encode(texts.questions, options.max_question_tokens),
        answers=tokenizer.encode(texts.answers, options.max_answer_tokens),
        positives=texts.positives,
        pool_negatives=_without(texts.pools, texts.positives, len(texts.answers)),
    )


def _without(lists: IndexLists, excluded: IndexLists, values: int) -> IndexLists:
    """Remove the members of the corresponding list of ``excluded`` from each list."""

    def keys(members: IndexLists) -> np.ndarray:
        return np.repeat(np.arange(len(members.lengths)), members.lengths) * values + members.values

    remaining = np.setdiff1d(keys(lists), keys(excluded), assume_unique=True)
    return IndexLists.of(remaining // values, remaining % values, len(lists.lengths))


class _RowGroup(NamedTuple):
    ids: pl.DataFrame  # question_id and answer_id of each pair
    questions: Tokens
    answers: Tokens
    pair_question: np.ndarray
    pair_answer: np.ndarray


class DevSet:
    """The dev split, which is scored and evaluated after each epoch: tokenized pools with their qrels."""

    def __init__(
        self, collection: Collection, split: str, tokenizer: TextTokenizer, options: TextOptions
    ) -> None:
        """Read and tokenize a split."""
        self._qrels = read_qrels(collection.qrels_file(split))
        self._unknown_id = tokenizer.unknown
        self._row_groups: list[_RowGroup] = []
        for pools in collection.batches(split):
            questions = tokenizer.encode(pools.questions, options.max_question_tokens)
            texts = tokenizer.encode(pools.answers, options.max_answer_tokens)
            self._row_groups.append(
                _RowGroup(pools.pairs(), questions, texts, pools.pair_question, pools.pair_answer)
            )

    @property
    def texts(self) -> list[Tokens]:
        """The questions and the answers of each row group."""
        return [
            tokens for row_group in self._row_groups for tokens in (row_group.questions, row_group.answers)
        ]

    @property
    def unknown(self) -> float:
        """Fraction of out-of-vocabulary tokens; each distinct text counts once per row group."""
        ids = np.concatenate([tokens.ids for tokens in self.texts])
        return float((ids == self._unknown_id).mean())

    def measures(
        self, ranker: Ranker, dev_measure: str, group: ProcessGroup = SINGLE_PROCESS
    ) -> dict[str, float]:
        """Evaluate a ranker by the default measures and ``dev_measure``.

        Each process scores its shard of the questions; process 0 evaluates all scores.
        """
        device = next(ranker.parameters()).device
        scorer = RankerScorer(ranker, device=device)
        # Zero for the questions of other processes.
        parts = [np.zeros(len(each.pair_question), dtype=np.float32) for each in self._row_groups]
        with progress("dev", sum(map(len, parts)) // group.size, "pairs") as bar:
            for row_group, part in zip(self._row_groups, parts, strict=True):
                shard = group.shard(len(row_group.questions))
                question = row_group.pair_question
                pairs = (question >= shard.start) & (question < shard.stop)
                part[pairs] = scorer.score(
                    row_group.questions.take(np.arange(shard.start, shard.stop)),
                    row_group.answers,
                    question[pairs] - shard.start,
                    row_group.pair_answer[pairs],
                    progress=bar.update,
                )
        scores = group.all_reduce(torch.from_numpy(np.concatenate(parts)).to(device)).cpu().numpy()
        if not np.isfinite(scores).all():
            raise AptoolError(
                "training diverged: a dev score is not a number; "
                "expected a lower training.learning_rate, or a training.clip such as 5"
            )
        run = pl.concat([row_group.ids for row_group in self._row_groups]).with_columns(score=scores)
        names = [*DEFAULT_MEASURES, dev_measure]
        return group.in_first(lambda: evaluate_frames(self._qrels, run, names).means)


class StateMemory:
    """A cache of states by token ids, for ``TransformerEncoder.state_cache``.

    A text has the same states in every batch, to the bit, so the cache changes no result.
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._states: dict[bytes, Tensor] = {}  # (L, c) per text

    def __call__(self, tokens: Ragged) -> Tensor:
        """(N, c) states of cached texts, from their token ids, values (N,) int64."""
        keys = _keys(tokens.values.cpu().numpy(), tokens.sizes)
        return torch.cat([self._states[key] for key in keys])

    def add(self, texts: Tokens, encode: Callable[[Ragged], Tensor]) -> None:
        """Cache the states of texts, which ``encode`` computes in blocks of texts of similar length."""
        keys = np.array(_keys(texts.ids.astype(np.int64), texts.lengths), dtype=object)
        _, first = np.unique(keys, return_index=True)
        missing = np.array([row for row in first if keys[row] not in self._states], dtype=np.int64)
        missing = missing[np.argsort(texts.lengths[missing], kind="stable")]
        block = np.cumsum(texts.lengths[missing]) // TOKENS_PER_BLOCK
        for rows in np.split(missing, np.flatnonzero(np.diff(block)) + 1) if len(missing) else ():
            tokens = Ragged.of(texts.take(rows), self._device)
            self._states.update(zip(keys[rows], encode(tokens).split(tokens.sizes.tolist()), strict=True))


@torch.no_grad()
def keep_states(ranker: Ranker, texts: Sequence[Tokens]) -> None:
    """Cache the states of all texts of a training, if the network is frozen and they fit into memory."""
    encoder: Any = ranker.encoder  # a ``TransformerEncoder``
    if not encoder.is_frozen:
        return
    device = next(ranker.parameters()).device
    size = 4 * encoder.size * sum(len(tokens.ids) for tokens in texts)
    free = torch.cuda.mem_get_info(device)[0] if device.type == "cuda" else available_memory()
    if size > MEMORY_SHARE * free:
        logger.info(f"states of all texts take {size / 1e9:.1f} GB: they are computed in every epoch")
        return
    memory = StateMemory(device)
    encoder.eval()  # disables dropout
    for tokens in texts:
        memory.add(tokens, lambda texts: encoder.states(texts, texts.row_numbers()))
    encoder.state_cache = memory


def _keys(ids: np.ndarray, sizes: np.ndarray) -> list[bytes]:
    """Return the token ids of each text as bytes, from (N,) int64 ids."""
    data, ends = ids.tobytes(), (8 * np.cumsum(sizes)).tolist()
    return [data[begin:end] for begin, end in zip([0, *ends], ends, strict=False)]
