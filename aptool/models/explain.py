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
from typing import NamedTuple

import numpy as np
import torch

from aptool.errors import AptoolError
from aptool.models.device import set_products
from aptool.models.encoders import CnnEncoder, Encoder
from aptool.models.matching import MaxSimPooling
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

# Minimum range of weights that is drawn in full colour, as a share of a uniform weight.
_MIN_CONTRAST = 0.25


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
        window: words to the left and to the right in the receptive field of a state; None for all words.
        special_tokens: the share of special tokens in the weight of the text. ``weights`` are shares of the
            remaining weight, or uniform if it is zero.
    """

    text: str
    spans: tuple[tuple[int, int], ...]
    weights: np.ndarray
    unknown: frozenset[int]
    window: tuple[int, int] | None
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
        if self.window is None:
            return range(len(self.weights))
        left, right = self.window
        return range(max(0, word - left), min(len(self.weights), word + right + 1))

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


@torch.inference_mode()
def explain_pairs(
    model: LoadedModel, pairs: Sequence[tuple[str, str]], *, alignment: bool = False
) -> list[Explanation]:
    """Explain the scores of (question, answer) texts, on the device of the model."""
    set_products("fp32")
    if not gives_weights(model):
        name = model.recipe.pooling["type"]
        expected = "attentive or max pooling, or one that matches tokens"
        raise AptoolError(f"pooling {name!r} has no weights of words; expected {expected}")
    return [_explain(model, question, answer, alignment) for question, answer in pairs]


def _explain(model: LoadedModel, question: str, answer: str, alignment: bool) -> Explanation:
    ranker, pooling = model.ranker, _state_pooling(model)
    tokenizer, limits = model.tokenizer, model.recipe.text
    device = next(ranker.parameters()).device
    question_tokens = tokenizer.encode([question], limits.max_question_tokens)
    answer_tokens = tokenizer.encode([answer], limits.max_answer_tokens)
    Q = ranker.encode(Ragged.of(question_tokens, device))  # values (M', c), of M' tokens
    A = ranker.encode(Ragged.of(answer_tokens, device))
    pair = np.zeros(1, dtype=np.int64)
    score = ranker.score_pairs(Q, A, ranker.features_of(question_tokens, answer_tokens)(pair, pair))
    question_words = _words_of(tokenizer, question, question_tokens)
    answer_words = _words_of(tokenizer, answer, answer_tokens)
    kind = MAX_POOLING if isinstance(pooling, MaxPooling) else ATTENTION
    G = None
    if isinstance(pooling, MaxSimPooling):
        kind = MATCHES
    if alignment or kind == MATCHES:
        G = pooling.alignment(Q.values, A.values)
    weights_q, weights_a = (weights[0].double().cpu().numpy() for weights in pooling.attention(Q, A))
    window = window_of(ranker.encoder)
    return Explanation(
        _weigh(question, question_words, weights_q, window),
        _weigh(answer, answer_words, weights_a, window),
        float(score),
        kind,
        None if G is None else _between_words(G.double().cpu().numpy(), question_words, answer_words),
    )


def window_of(encoder: Encoder) -> tuple[int, int] | None:
    """Return the receptive field of an encoder's states, as in `TextWeights`."""
    if type(encoder) is CnnEncoder:
        return (encoder.window - 1) // 2, encoder.window // 2
    return None


def gives_weights(model: LoadedModel) -> bool:
    """Whether a model has weights of words."""
    return _state_pooling(model).has_weights


def _state_pooling(model: LoadedModel) -> Pooling:
    """Return the pooling of the states, without the wrapper that adds columns for a head."""
    pooling = model.ranker.pooling
    return pooling.inner if isinstance(pooling, JoinedPooling) else pooling


class _Words(NamedTuple):
    """The words of a text and their tokens."""

    token_words: np.ndarray  # (L',) int64 index of the word of each token, -1 for special tokens
    spans: tuple[tuple[int, int], ...]  # begin and end of each word of the whole text
    word_count: int  # words that were not truncated
    unknown: frozenset[int]  # words without a vector or token


def _words_of(tokenizer: TextTokenizer, text: str, tokens: Tokens) -> _Words:
    """Return the words of a text, whose tokens may be truncated."""
    indices, length = tokenizer.word_indices(text), len(tokens.ids)
    token_words = tokenizer.truncate(Tokens(indices, np.array([0, len(indices)])), length).ids
    spans = word_spans(tokenizer, text)
    count = max(1, int(token_words.max()) + 1) if len(indices) > length else len(spans)
    words_without_token = set(range(count)) - set(token_words.tolist())
    is_unknown = (token_words >= 0) & (tokens.ids == tokenizer.unknown)
    unknown = words_without_token.union(token_words[is_unknown].tolist())
    return _Words(token_words, spans, count, frozenset(unknown))


def _weigh(
    text: str, words: _Words, token_weights: np.ndarray, window: tuple[int, int] | None
) -> TextWeights:
    """Sum the weights (L',) of the tokens of each word."""
    in_word = words.token_words >= 0
    shares = np.bincount(
        words.token_words[in_word], weights=token_weights[in_word], minlength=words.word_count
    )
    special_tokens = float(token_weights[~in_word].sum())
    if not in_word.all():
        total = shares.sum()
        shares = shares / total if total > 0 else np.full(words.word_count, 1 / words.word_count)
    return TextWeights(text, words.spans, shares, words.unknown, window, special_tokens)


def _between_words(G: np.ndarray, question: _Words, answer: _Words) -> np.ndarray:
    """(M, L) alignment of words: the maximum over their tokens, of the alignment (M', L') of tokens."""
    between_words = np.full((question.word_count, answer.word_count), -np.inf)
    rows, columns = (np.flatnonzero(words.token_words >= 0) for words in (question, answer))
    cells = np.ix_(question.token_words[rows], answer.token_words[columns])
    np.maximum.at(between_words, cells, G[np.ix_(rows, columns)])
    return np.where(np.isinf(between_words), 0.0, between_words)


def word_spans(tokenizer: TextTokenizer, text: str) -> tuple[tuple[int, int], ...]:
    """Return begin and end of each word in a text; a text without words counts as one word."""
    return tuple(tokenizer.spans(text)) or ((0, len(text)),)
