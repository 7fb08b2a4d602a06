"""Explanations: the weight of each word of a question and an answer (figures 5 and 6 of the paper).

- Attentive pooling: the attention weight σ of a state.
- Max pooling: the share of the features that have their maximum in a state.
- Late interaction: the share of a word in the matches.

The weights of a text sum to one. A state belongs to the word at the centre of its receptive field. The weight
of a word is the sum over its subword tokens. Special tokens belong to no word: their total weight is reported
separately, and the weights of the words are renormalized.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html import escape
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from aptool.errors import AptoolError
from aptool.models.device import set_products
from aptool.models.encoders import CnnEncoder, Encoder
from aptool.models.matching import MatchPooling
from aptool.models.model import LoadedModel
from aptool.models.pooling import JoinedPooling, MaxPooling, Pooling
from aptool.models.ragged import Ragged
from aptool.text.tokenizer import TextTokenizer, Tokens

ATTENTION, MAX_POOLING, MATCHES = "attention", "max_pooling", "matches"
_WEIGHTS = {
    ATTENTION: "attention weights",
    MAX_POOLING: "shares of the features",
    MATCHES: "shares of the matches",
}

_BATCH_PAIRS = 32
# Minimum range of weights that is drawn in full colour, as a share of a uniform weight.
_MIN_CONTRAST = 0.25
# Colour of the greatest weight, as in the heat maps of the report (`base.css`).
_COLOUR = "214, 84, 24"


class Window(NamedTuple):
    """The receptive field of a state: words to the left and right of its word, or None for all words."""

    left: int | None
    right: int | None


class Piece(NamedTuple):
    """A word of a text in HTML."""

    before: str  # the text between it and the previous word
    word: str
    weight: float | None  # None if the word was truncated
    strength: float  # of the background colour, from 0 to 1
    unknown: bool


@dataclass(frozen=True)
class TextWeights:
    """A text and the weights of its words.

    Attributes:
        text: the text.
        spans: begin and end of each word. A text without words counts as one unknown word.
        weights: (L,) float64 weights of the first L words, with sum one. Further words were truncated.
        unknown: indices of words without a vector or token.
        window: receptive field of each state.
        special_tokens: the share of special tokens in the weight of the text. ``weights`` are shares of the
            remaining weight, or uniform if it is zero.
    """

    text: str
    spans: tuple[tuple[int, int], ...]
    weights: np.ndarray
    unknown: frozenset[int]
    window: Window
    special_tokens: float = 0.0

    @property
    def words(self) -> list[str]:
        """The words, as in the text."""
        return [self.text[begin:end] for begin, end in self.spans]

    @property
    def truncated(self) -> int:
        """Number of words beyond the model's maximum length."""
        return len(self.spans) - len(self.weights)

    @property
    def intensities(self) -> np.ndarray:
        """(L,) weights scaled to [0, 1] for colours; the maximum is below 1 if the weights hardly differ."""
        least, greatest = self.weights.min(), self.weights.max()
        contrast: float = max(greatest - least, _MIN_CONTRAST / len(self.weights))
        return (self.weights - least) / contrast

    def receptive_field(self, word: int) -> range:
        """Return the indices of the words in the receptive field of a word's state."""
        left, right = self.window
        first = 0 if left is None else max(0, word - left)
        last = len(self.weights) - 1 if right is None else min(len(self.weights) - 1, word + right)
        return range(first, last + 1)

    def window_text(self, word: int) -> str:
        """Return the text in the receptive field of a word's state."""
        words = self.receptive_field(word)
        return self.text[self.spans[words[0]][0] : self.spans[words[-1]][1]]

    def strongest(self, count: int) -> list[int]:
        """Return the words with the greatest weights, in descending order; ties in text order."""
        order: list[int] = np.argsort(-self.weights, kind="stable").tolist()
        return order[:count]

    def pieces(self) -> Iterator[Piece]:
        """Split the text into its words, each with the text before it."""
        strengths, end = self.intensities, 0
        for word, (begin, stop) in enumerate(self.spans):
            has_weight = word < len(self.weights)
            yield Piece(
                self.text[end:begin],
                self.text[begin:stop],
                float(self.weights[word]) if has_weight else None,
                float(strengths[word]) if has_weight else 0.0,
                word in self.unknown,
            )
            end = stop


@dataclass(frozen=True, repr=False)
class Explanation:
    """The weights of the words of a question and an answer, and the score of the pair.

    Attributes:
        question: weights of M words.
        answer: weights of L words of the answer.
        score: score of the pair.
        kind: ``attention`` (attention weights σ), ``max_pooling`` (shares of the features) or ``matches``
            (shares of the matches).
        alignment: (M, L) matrix G = tanh(Qᵀ U A), equation 13 of the paper, or the cosines S of late
            interaction; 0 for words without a token. None unless requested, and without an alignment in the
            pooling; late interaction always includes it.
    """

    question: TextWeights
    answer: TextWeights
    score: float
    kind: str
    alignment: np.ndarray | None = None

    @property
    def weights_name(self) -> str:
        """The name of the weights, for captions."""
        return _WEIGHTS[self.kind]

    @property
    def best_aligned(self) -> list[int]:
        """The best aligned answer word per question word; empty without an alignment."""
        return [] if self.alignment is None else [int(word) for word in self.alignment.argmax(1)]

    def __repr__(self) -> str:
        shown = []
        for name, text in (("question", self.question), ("answer", self.answer)):
            strongest = (f"{text.words[word]} {text.weights[word]:.3f}" for word in text.strongest(3))
            shown.append(f"{name}: {', '.join(strongest)}")
        return f"Explanation(score {self.score:.4f}, {self.kind}; {'; '.join(shown)})"

    def _repr_html_(self) -> str:
        lines = f"<p>score {self.score:.4f}; {self.weights_name}</p>"
        for name, text in (("question", self.question), ("answer", self.answer)):
            words = "".join(escape(piece.before) + _word(piece) for piece in text.pieces())
            lines += f"<p><b>{name}</b> {words}</p>"
        return f"<div>{lines}</div>"


@torch.inference_mode()
def explain_pairs(
    model: LoadedModel, pairs: Sequence[tuple[str, str]], *, alignment: bool = False
) -> list[Explanation]:
    """Explain the scores of (question, answer) texts, on the device of the model."""
    set_products("fp32")
    tokenizer, limits = model.tokenizer, model.recipe.text
    questions = _Texts(tokenizer, [q for q, _ in pairs], limits.max_question_tokens)
    answers = _Texts(tokenizer, [a for _, a in pairs], limits.max_answer_tokens)
    pooling, window = _state_pooling(model), window_of(model.ranker.encoder)
    if not gives_weights(model):
        name = model.recipe.pooling["type"]
        expected = "attentive, max, one_way, abcnn, alignment pooling, or one that matches tokens"
        raise AptoolError(f"pooling {name!r} has no weights of words; expected {expected}")
    kind = MAX_POOLING if isinstance(pooling, MaxPooling) else ATTENTION
    if isinstance(pooling, MatchPooling):
        kind = MATCHES
    explanations: dict[int, Explanation] = {}
    device = next(model.ranker.parameters()).device
    # Pairs of similar length are batched, to avoid padding.
    order = np.argsort(answers.tokens.lengths, kind="stable")
    for start in range(0, len(order), _BATCH_PAIRS):
        rows = order[start : start + _BATCH_PAIRS]
        Q = model.ranker.encode(Ragged.of(questions.tokens.take(rows), device))  # values (N, c)
        A = model.ranker.encode(Ragged.of(answers.tokens.take(rows), device))
        same = np.arange(len(rows))
        texts = questions.tokens.take(rows), answers.tokens.take(rows)
        scores = model.ranker.score_pairs(Q, A, model.ranker.features_of(*texts)(same, same))
        weights_q, weights_a = pooling.attention(Q, A)
        scores, weights_q, weights_a = (tensor.double().cpu() for tensor in (scores, weights_q, weights_a))
        for pair, row in enumerate(rows.tolist()):
            question, answer = questions.words(row), answers.words(row)
            explanations[row] = Explanation(
                questions.weigh(row, question, weights_q[pair], window),
                answers.weigh(row, answer, weights_a[pair], window),
                float(scores[pair]),
                kind,
                _alignment(pooling, Q, A, pair, question, answer) if alignment or kind == MATCHES else None,
            )
    return [explanations[row] for row in range(len(pairs))]


def window_of(encoder: Encoder) -> Window:
    """Return the receptive field of an encoder's states."""
    if type(encoder) is CnnEncoder:
        return Window((encoder.window - 1) // 2, encoder.window // 2)
    return Window(None, None)


def gives_weights(model: LoadedModel) -> bool:
    """Whether a model has weights of words."""
    return _state_pooling(model).has_weights


def _state_pooling(model: LoadedModel) -> Pooling:
    """Return the pooling of the states, without the wrapper that adds columns for a head."""
    pooling = model.ranker.pooling
    return pooling.inner if isinstance(pooling, JoinedPooling) else pooling


class _Words(NamedTuple):
    """The words of a text and their tokens."""

    token_words: np.ndarray  # (L,) int64 index of the word of each token, -1 for special tokens
    spans: tuple[tuple[int, int], ...]  # begin and end of each word of the whole text
    word_count: int  # words that were not truncated
    unknown: frozenset[int]  # words without a vector or token


def _alignment(
    pooling: Pooling, questions: Ragged, answers: Ragged, pair: int, question: _Words, answer: _Words
) -> np.ndarray | None:
    """Return G or S between the words of a pair: the maximum over their tokens."""
    row = np.array([pair])
    G = pooling.alignment(questions.select(row).values, answers.select(row).values)
    if G is None:
        return None
    between_tokens = G.double().cpu().numpy()
    between_words = np.full((question.word_count, answer.word_count), -np.inf)
    rows, columns = (np.flatnonzero(words.token_words >= 0) for words in (question, answer))
    cells = np.ix_(question.token_words[rows], answer.token_words[columns])
    np.maximum.at(between_words, cells, between_tokens[np.ix_(rows, columns)])
    return np.where(np.isinf(between_words), 0.0, between_words)


class _Texts:
    """The questions or the answers of the pairs, as tokens and as words."""

    def __init__(self, tokenizer: TextTokenizer, texts: list[str], limit: int) -> None:
        self._tokenizer = tokenizer
        self._texts = texts
        self.tokens = tokenizer.encode(texts, limit)

    def words(self, row: int) -> _Words:
        text, begin, end = self._texts[row], self.tokens.offsets[row], self.tokens.offsets[row + 1]
        ids, length = self.tokens.ids[begin:end], int(end - begin)
        indices = self._tokenizer.word_indices(text)
        complete = Tokens(indices, np.array([0, len(indices)]))
        token_words = self._tokenizer.truncate(complete, length).ids
        spans = word_spans(self._tokenizer, text)
        count = max(1, int(token_words.max()) + 1) if len(indices) > length else len(spans)
        words_without_token = set(range(count)) - set(token_words.tolist())
        is_unknown = (token_words >= 0) & (ids == self._tokenizer.unknown)
        unknown = words_without_token.union(token_words[is_unknown].tolist())
        return _Words(token_words, spans, count, frozenset(unknown))

    def weigh(self, row: int, words: _Words, weights: Tensor, window: Window) -> TextWeights:
        token_words, spans, count, unknown = words
        token_weights = weights[: len(token_words)].numpy()
        in_word = token_words >= 0
        shares = np.bincount(token_words[in_word], weights=token_weights[in_word], minlength=count)
        special_tokens = float(token_weights[~in_word].sum())
        if not in_word.all():
            total = shares.sum()
            shares = shares / total if total > 0 else np.full(count, 1 / count)
        return TextWeights(self._texts[row], spans, shares, unknown, window, special_tokens)


def word_spans(tokenizer: TextTokenizer, text: str) -> tuple[tuple[int, int], ...]:
    """Return begin and end of each word in a text; a text without words counts as one word."""
    return tuple(tokenizer.spans(text)) or ((0, len(text)),)


def _word(piece: Piece) -> str:
    """Render a word as HTML, with a background colour by its weight; its tooltip has the weight."""
    if piece.weight is None:
        return f'<span style="opacity: 0.5" title="truncated">{escape(piece.word)}</span>'
    style = f"background: rgba({_COLOUR}, {0.75 * piece.strength:.3f})"
    style += "; text-decoration: underline dotted" if piece.unknown else ""
    return f'<span style="{style}" title="{piece.weight:.4f}">{escape(piece.word)}</span>'
