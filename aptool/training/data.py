"""Training data: the questions of a split, their pools, their positive answers, and the scores of a teacher.

Answers are identified by their text, not by their id. So the text of a positive answer is never sampled as a
negative under another id. The states of a frozen network are computed once per text and kept in memory.
"""

import hashlib
import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import polars as pl
import torch
from torch import Tensor

from aptool.config import Recipe, TeacherOptions, TextOptions
from aptool.environment import available_memory
from aptool.errors import InputError
from aptool.formats.collection import CollectionFiles
from aptool.formats.inputs import open_binary
from aptool.formats.pools import read_answers
from aptool.formats.runs import read_run
from aptool.formats.trec import read_qrels
from aptool.models.ragged import Ragged, rows_of
from aptool.models.ranker import Ranker
from aptool.text.tokenizer import TextTokenizer, Tokens
from aptool.text.words import word_splitter

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


class Teacher(NamedTuple):
    """The scores of a teacher for the pairs of the training pools."""

    keys: np.ndarray  # (pairs,) int64, ascending: question · ``answers`` + answer
    scores: np.ndarray  # (pairs,) float32
    answers: int  # number of answers in the training set
    options: TeacherOptions

    def of(self, questions: np.ndarray, answers: np.ndarray) -> np.ndarray:
        """(n, k) float32: scores of (n, k) answers to (n,) questions; NaN outside the pool of a question."""
        keys = questions[:, None] * self.answers + answers
        index = np.minimum(np.searchsorted(self.keys, keys), len(self.keys) - 1)
        return np.where(self.keys[index] == keys, self.scores[index], np.float32(np.nan))


@dataclass(frozen=True)
class TrainingSet:
    """A split as token ids."""

    questions: Tokens  # one per pool
    answers: Tokens  # distinct
    positives: IndexLists  # the relevant answers in the pool of each question
    pool_negatives: IndexLists  # the non-relevant answers in the pool of each question
    teacher: Teacher | None = None

    @property
    def pairs(self) -> np.ndarray:
        """(pairs, 2) int64: each question with each of its positive answers."""
        owner = np.repeat(np.arange(len(self.questions)), self.positives.lengths)
        return np.stack([owner, self.positives.values], axis=1)


def tokenize(
    texts: SplitTexts, tokenizer: TextTokenizer, options: TextOptions, teacher: Teacher | None = None
) -> TrainingSet:
    """Convert a split to token ids, truncated at the limits of the recipe."""
    return TrainingSet(
        questions=tokenizer.encode(texts.questions, options.max_question_tokens, "question"),
        answers=tokenizer.encode(texts.answers, options.max_answer_tokens),
        positives=texts.positives,
        pool_negatives=_without(texts.pools, texts.positives, len(texts.answers)),
        teacher=teacher,
    )


def _without(lists: IndexLists, excluded: IndexLists, values: int) -> IndexLists:
    """Remove the members of the corresponding list of ``excluded`` from each list."""

    def keys(members: IndexLists) -> np.ndarray:
        return np.repeat(np.arange(len(members.lengths)), members.lengths) * values + members.values

    remaining = np.setdiff1d(keys(lists), keys(excluded), assume_unique=True)
    return IndexLists.of(remaining // values, remaining % values, len(lists.lengths))


def _numbered_pairs(
    collection: CollectionFiles, split: str, questions: list[str], answers: dict[str, int]
) -> pl.DataFrame:
    """The pairs of a split's pools: question_id, answer_id, and the numbers question and answer.

    The questions, one per pool, are appended to ``questions``; distinct answers are added to ``answers``.
    """
    frames = []
    for pools in collection.batches(split):
        index = np.array([answers.setdefault(text, len(answers)) for text in pools.answers.to_pylist()])
        numbers = {"question": pools.pair_question + len(questions), "answer": index[pools.pair_answer]}
        frames.append(pools.pairs().hstack(pl.DataFrame(numbers)))
        questions += pools.questions.to_pylist()
    return pl.concat(frames)


def read_training_texts(collection: CollectionFiles, recipe: Recipe) -> SplitTexts:
    """Read the train split of all collections of a recipe, with the answers that negatives come from."""
    negatives = recipe.training.negatives
    further = sources(collection, recipe)[1:]
    texts = read_texts(collection, TRAIN, further, shared=negatives in ("collection", "bm25", "all"))
    if negatives != "bm25":
        return texts
    from aptool.text.bm25 import BM25

    split = word_splitter(recipe.text.words)
    best, _ = BM25(map(split, texts.answers)).top([*map(split, texts.questions)], BM25_NEGATIVES)
    owner = np.repeat(np.arange(len(best)), best.shape[1])
    return replace(texts, pools=IndexLists.of(owner, best.reshape(-1), len(best)))


def read_texts(
    collection: CollectionFiles, split: str, further: Sequence[CollectionFiles] = (), *, shared: bool = False
) -> SplitTexts:
    """Join the pools and qrels of a split of several collections; equal answers are joined, too.

    Relevant answers outside all pools are ignored. ``shared`` adds the shared answers of the collections.
    """
    questions: list[str] = []
    answers: dict[str, int] = {}
    parts, positive_parts = [], []
    for source in (collection, *further):
        pairs = _numbered_pairs(source, split, questions, answers)
        relevant = read_qrels(source.qrels(split)).filter(pl.col("relevance") > 0)
        positive = pairs.join(relevant, on=["question_id", "answer_id"], how="semi")
        if positive.is_empty():
            problem = f"none for {source.pools(split).name}"
            expected = "at least one relevant answer in a pool"
            raise InputError(source.qrels(split), problem=problem, expected=expected)
        parts.append(pairs)
        positive_parts.append(positive)
    if shared:
        for source in (collection, *further):
            if source.answers is not None:
                for text in read_answers(source.answers).texts.to_pylist():
                    answers.setdefault(text, len(answers))
    positives, pools = (
        IndexLists.of(pairs["question"].to_numpy(), pairs["answer"].to_numpy(), len(questions))
        for pairs in (pl.concat(positive_parts), pl.concat(parts))
    )
    return SplitTexts(questions, list(answers), positives, pools)


def sources(collection: CollectionFiles, recipe: Recipe) -> list[CollectionFiles]:
    """Open the collections of a training, ``collection`` first."""
    opened = [collection]
    for number, text in enumerate(recipe.mixture.collections):
        position = f"mixture.collections, item {number}"
        further = CollectionFiles(text)
        if further.path.resolve() in [source.path.resolve() for source in opened]:
            raise InputError(recipe.preset, position=position, value=text, expected="each collection once")
        opened.append(further)
    return opened


def all_texts(collection: CollectionFiles, recipe: Recipe) -> Iterator[str]:
    """Yield every text of every split of every collection; an answer appears once per row group."""
    for source in sources(collection, recipe):
        for split in source.splits:
            for pools in source.batches(split):
                yield from pools.questions.to_pylist()
                yield from pools.answers.to_pylist()


def read_teacher(collection: CollectionFiles, recipe: Recipe) -> Teacher | None:
    """Read the scores of the teacher of a recipe, if any."""
    options = recipe.teacher
    if not options.run:
        return None
    answers: dict[str, int] = {}
    pairs = _numbered_pairs(collection, TRAIN, [], answers)
    scored = pairs.join(read_run(options.run).frame, on=["question_id", "answer_id"], how="left")
    missing = scored.filter(pl.col("score").is_null())
    if len(missing) == len(scored):
        expected = f"scores of the pairs of {collection.pools(TRAIN)}"
        raise InputError(options.run, problem="scores of other pools only", expected=expected)
    if len(missing):
        question, answer = missing.select("question_id", "answer_id").row(0)
        problem = f"{len(missing):,} of {len(scored):,} training pairs have no score"
        position = f"question {question!r}, answer {answer!r}"
        raise InputError(options.run, position=position, problem=problem, expected="a score of every pair")
    keys = scored["question"].to_numpy() * len(answers) + scored["answer"].to_numpy()
    keys, first = np.unique(keys, return_index=True)  # an answer may have two ids
    return Teacher(keys, scored["score"].to_numpy()[first].astype(np.float32), len(answers), options)


def teacher_fingerprint(recipe: Recipe) -> str | None:
    """Hash the run file of the teacher of a recipe, if any."""
    if not recipe.teacher.run:
        return None
    with open_binary(recipe.teacher.run) as file:
        return hashlib.sha256(file.read()).hexdigest()[:16]


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
        memory.add(tokens, encoder.all_states)
    encoder.state_cache = memory


def _keys(ids: np.ndarray, sizes: np.ndarray) -> list[bytes]:
    """Return the token ids of each text as bytes, from (N,) int64 ids."""
    data, ends = ids.tobytes(), (8 * np.cumsum(sizes)).tolist()
    return [data[begin:end] for begin, end in zip([0, *ends], ends, strict=False)]
