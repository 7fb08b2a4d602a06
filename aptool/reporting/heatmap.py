"""Where a ranker looked: a weight for every word of a question and of its answer (the paper's figures 5, 6).

Attentive pooling weighs each state by σ, and these are its weights. Max pooling weighs nothing, but every
feature is won by one state: a state's weight is the share of the features that it wins. Either way the
weights of a text sum to one. A state stands for the word it is centred at, and has seen a window around it.

Where tokens are pieces of words, a word has the weights of its pieces together. The marks that a pretrained
network puts around a text are no words: what they weigh is told apart, and the words share the rest.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import singledispatch
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from aptool.errors import AptoolError
from aptool.models.attention import AttentivePooling
from aptool.models.encoders import CnnEncoder, Encoder
from aptool.models.model import Model
from aptool.models.pooling import MaxPooling, Pooling
from aptool.models.ragged import Ragged
from aptool.text.tokenizer import TextTokenizer, Tokens, truncate

ATTENTION, MAXIMA = "attention", "maxima"

# Pairs that go through a model together.
_PAIRS_AT_ONCE = 32
# Weights that differ by less than this share of an even weight are not worth a strong colour.
_LEAST_CONTRAST = 0.25


class Window(NamedTuple):
    """How many words to the left and to the right of its own a state has seen; None: the whole text."""

    left: int | None
    right: int | None


@dataclass(frozen=True)
class Side:
    """A text and the weights of its words.

    Attributes:
        text: as given.
        spans: where each word begins and ends in it. A text without a word counts as one unknown word.
        weights: (L,) float64, of the first L words; they sum to one. Words behind them were cut.
        unknown: which of those L words the model has no vector for, or drops as it reads.
        window: what each state has seen.
        marks: the share of the text's weight on tokens that belong to no word; ``weights`` are shares of
            what is left, and alike where that is nothing.
    """

    text: str
    spans: tuple[tuple[int, int], ...]
    weights: np.ndarray
    unknown: frozenset[int]
    window: Window
    marks: float = 0.0

    @property
    def words(self) -> list[str]:
        """The words, as they stand in the text."""
        return [self.text[begin:end] for begin, end in self.spans]

    @property
    def cut(self) -> int:
        """How many words stand behind the model's limit and were not read."""
        return len(self.spans) - len(self.weights)

    @property
    def intensities(self) -> np.ndarray:
        """(L,) from 0, the least weight of the text, to 1, the greatest; less where they hardly differ."""
        least, greatest = self.weights.min(), self.weights.max()
        contrast: float = max(greatest - least, _LEAST_CONTRAST / len(self.weights))
        return (self.weights - least) / contrast

    def normalize_states(self, word: int) -> range:
        """The words in the window of a word's state."""
        left, right = self.window
        first = 0 if left is None else max(0, word - left)
        last = len(self.weights) - 1 if right is None else min(len(self.weights) - 1, word + right)
        return range(first, last + 1)

    def window_text(self, word: int) -> str:
        """What of the text stands in the window of a word's state."""
        words = self.normalize_states(word)
        return self.text[self.spans[words[0]][0] : self.spans[words[-1]][1]]

    def strongest(self, count: int) -> list[int]:
        """The words with the greatest weights, greatest first, of equals the earlier first."""
        order = np.argsort(-self.weights, kind="stable")
        return [int(word) for word in order[:count]]


@dataclass(frozen=True)
class HeatMap:
    """A pair of texts, what the model gave it, and where it looked.

    Attributes:
        question: M words.
        answer: L words.
        score: of the pair.
        kind: ``attention`` (σ) or ``maxima`` (shares of features won).
        alignment: (M, L) G = tanh(Qᵀ U A), 0 where nothing was read of a word; None where it was not asked
            for or the model has none.
    """

    question: Side
    answer: Side
    score: float
    kind: str
    alignment: np.ndarray | None = None


@torch.inference_mode()
def heat_maps(model: Model, pairs: Sequence[tuple[str, str]], *, alignment: bool = False) -> list[HeatMap]:
    """Heat maps of (question, answer) pairs, in their order.

    Args:
        model: any trained system.
        pairs: texts.
        alignment: keep G as well.

    Raises:
        AptoolError: the system's pooling gives no weights.
    """
    questions = _Texts(model.tokenizer, [q for q, _ in pairs], model.recipe.text.max_question_tokens)
    answers = _Texts(model.tokenizer, [a for _, a in pairs], model.recipe.text.max_answer_tokens)
    pooling, window = model.ranker.pooling, window_of(model.ranker.encoder)
    if not gives_weights(pooling):
        name = model.recipe.pooling["type"]
        raise AptoolError(f"pooling {name!r} weighs no words: expected attentive or max pooling")
    kind = ATTENTION if isinstance(pooling, AttentivePooling) else MAXIMA
    found: dict[int, HeatMap] = {}
    # Pairs of like length together, so that little is padded.
    order = np.argsort(answers.tokens.lengths, kind="stable")
    for start in range(0, len(order), _PAIRS_AT_ONCE):
        rows = order[start : start + _PAIRS_AT_ONCE]
        Q = model.ranker.encode(Ragged.of(questions.tokens.take(rows)))  # values (N, c)
        A = model.ranker.encode(Ragged.of(answers.tokens.take(rows)))
        scores = model.ranker.score_pairs(Q, A)
        weights_q, weights_a = weigh(pooling, Q, A)
        for place, row in enumerate(rows.tolist()):
            question, answer = questions.read(row), answers.read(row)
            found[row] = HeatMap(
                questions.side(row, question, weights_q[place], window),
                answers.side(row, answer, weights_a[place], window),
                float(scores[place]),
                kind,
                _aligned(pooling, Q, A, place, question, answer) if alignment else None,
            )
    return [found[row] for row in range(len(pairs))]


def window_of(encoder: Encoder) -> Window:
    """What the states of an encoder have seen."""
    if isinstance(encoder, CnnEncoder):
        return Window((encoder.window - 1) // 2, encoder.window // 2)
    return Window(None, None)


def gives_weights(pooling: Pooling) -> bool:
    """Whether there is anything to show of a pooling."""
    return weigh.dispatch(type(pooling)) is not weigh.dispatch(object)


@singledispatch
def weigh(pooling: Pooling, questions: Ragged, answers: Ragged) -> tuple[Tensor, Tensor]:
    """How much each state counted.

    Args:
        pooling: the pooling.
        questions: states, values (N, c), of n questions.
        answers: states, values (N', c), of n answers; pair i is question i with answer i.

    Returns:
        (n, M) and (n, L): each row sums to one over its text and is zero behind it.
    """
    raise NotImplementedError(type(pooling).__name__)


@weigh.register
def _(pooling: AttentivePooling, questions: Ragged, answers: Ragged) -> tuple[Tensor, Tensor]:
    """σ_q and σ_a."""
    return pooling.attention(questions, answers)


@weigh.register
def _(pooling: MaxPooling, questions: Ragged, answers: Ragged) -> tuple[Tensor, Tensor]:
    """Shares of features won; states that tie for one share it."""
    return _shares_won(questions), _shares_won(answers)


def _shares_won(states: Ragged) -> Tensor:
    dense, mask = states.padded()  # (n, T, c), (n, T)
    dense = dense.masked_fill(~mask[..., None], -torch.inf)
    won = (dense == dense.amax(1, keepdim=True)).float()  # (n, T, c)
    return (won / won.sum(1, keepdim=True)).mean(2)  # (n, T)


class _Read(NamedTuple):
    """What was read of a text.

    Attributes:
        places: (L,) int64, the word of each token, -1 for none.
        spans: where each word of the whole text begins and ends.
        words: how many of them were read.
    """

    places: np.ndarray
    spans: tuple[tuple[int, int], ...]
    words: int


def _aligned(
    pooling: Pooling, questions: Ragged, answers: Ragged, pair: int, question: _Read, answer: _Read
) -> np.ndarray | None:
    """G of the words of a pair: of two words, the greatest of their pieces, as the maxima that G is for."""
    if not isinstance(pooling, AttentivePooling):
        return None
    only = torch.tensor([pair])
    G = pooling.alignment(questions.select(only).values, answers.select(only).values).double().numpy()
    words = np.full((question.words, answer.words), -np.inf)
    own_rows, own_columns = (np.flatnonzero(side.places >= 0) for side in (question, answer))
    place = np.ix_(question.places[own_rows], answer.places[own_columns])
    np.maximum.at(words, place, G[np.ix_(own_rows, own_columns)])
    return np.where(np.isinf(words), 0.0, words)


class _Texts:
    """The texts of one side of the pairs, in ids and in words."""

    def __init__(self, tokenizer: TextTokenizer, texts: list[str], limit: int) -> None:
        self._tokenizer = tokenizer
        self._texts = texts
        self.tokens = tokenizer.encode(texts, limit)

    def read(self, row: int) -> _Read:
        text, length = self._texts[row], int(self.tokens.lengths[row])
        whole = self._tokenizer.places(text)
        places = truncate(Tokens(whole, np.array([0, len(whole)])), length, self._tokenizer.tail).ids
        spans = word_spans(self._tokenizer, text)
        return _Read(places, spans, max(1, int(places.max()) + 1) if len(whole) > length else len(spans))

    def side(self, row: int, read: _Read, weights: Tensor, window: Window) -> Side:
        places, spans, words = read
        begin, end = self.tokens.offsets[row], self.tokens.offsets[row + 1]
        of_tokens = weights[: end - begin].double().numpy()
        inside = places >= 0
        shares = np.bincount(places[inside], weights=of_tokens[inside], minlength=words)
        marks = float(of_tokens[~inside].sum())
        if not inside.all():
            shares = shares / shares.sum() if inside.any() else np.full(words, 1 / words)
        unknown = places[inside & (self.tokens.ids[begin:end] == self._tokenizer.unknown)]
        dropped = set(range(words)) - set(places.tolist())
        return Side(
            self._texts[row],
            spans,
            shares,
            frozenset(dropped.union(unknown.tolist())),
            window,
            marks,
        )


def word_spans(tokenizer: TextTokenizer, text: str) -> tuple[tuple[int, int], ...]:
    """Where each word begins and ends in a text; a text without a word is one."""
    spans, end = [], 0
    for word in tokenizer.split(text):
        begin = text.index(word, end)
        end = begin + len(word)
        spans.append((begin, end))
    return tuple(spans) or ((0, len(text)),)
