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

import numpy as np
import torch

from aptool.errors import AptoolError
from aptool.models.device import exact_products
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


@dataclass(frozen=True)
class TextWeights:
    """A text and the weights of its words.

    Attributes:
        text: the text, in NFC where the model has words of its own.
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

    def window_text(self, word: int) -> str:
        """Return the text in the receptive field of a word's state."""
        last = len(self.weights) - 1
        left, right = (last, last) if self.window is None else self.window
        begin, end = self.spans[max(0, word - left)][0], self.spans[min(last, word + right)][1]
        return self.text[begin:end]

    def strongest(self, count: int) -> list[int]:
        """Return the words with the greatest weights, in descending order; ties in text order."""
        order: list[int] = np.argsort(-self.weights, kind="stable").tolist()
        return order[:count]

    def pieces(self) -> Iterator[tuple[str, str, float | None, float, bool]]:
        """Yield for each word: the text before it, the word, its weight, its intensity, if it is unknown.

        The weight is None and the intensity 0 if the word was truncated.
        """
        strengths, end = self.intensities, 0
        for word, (begin, stop) in enumerate(self.spans):
            was_read = word < len(self.weights)
            weight = float(self.weights[word]) if was_read else None
            strength = float(strengths[word]) if was_read else 0.0
            yield self.text[end:begin], self.text[begin:stop], weight, strength, word in self.unknown
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
    """

    question: TextWeights
    answer: TextWeights
    score: float
    kind: str

    @property
    def weights_name(self) -> str:
        """The name of the weights, for captions."""
        return _WEIGHTS[self.kind]

    def __repr__(self) -> str:
        shown = []
        for name, text in (("question", self.question), ("answer", self.answer)):
            strongest = (f"{text.words[word]} {text.weights[word]:.3f}" for word in text.strongest(3))
            shown.append(f"{name}: {', '.join(strongest)}")
        return f"Explanation(score {self.score:.4f}, {self.kind}; {'; '.join(shown)})"


@torch.inference_mode()
def explain_pairs(model: LoadedModel, pairs: Sequence[tuple[str, str]]) -> list[Explanation]:
    """Explain the scores of (question, answer) texts, on the device of the model."""
    exact_products()
    if not gives_weights(model):
        name = model.recipe.pooling["type"]
        expected = "attentive or max pooling, or one that matches tokens, as in ap-cnn, qa-cnn, maxsim-minilm"
        raise AptoolError(f"pooling {name!r} has no weights of words; expected {expected}")
    return [_explain(model, question, answer) for question, answer in pairs]


def _explain(model: LoadedModel, question: str, answer: str) -> Explanation:
    ranker, pooling = model.ranker, _state_pooling(model)
    tokenizer, limits = model.tokenizer, model.recipe.text
    device = next(ranker.parameters()).device
    question_tokens = tokenizer.encode([question], limits.max_question_tokens)
    answer_tokens = tokenizer.encode([answer], limits.max_answer_tokens)
    Q = ranker.encode(Ragged.of(question_tokens, device))  # values (M', c), of M' tokens
    A = ranker.encode(Ragged.of(answer_tokens, device))
    pair = np.zeros(1, dtype=np.int64)
    score = ranker.score_pairs(Q, A, ranker.features_of(question_tokens, answer_tokens)(pair, pair))
    kind = MAX_POOLING if isinstance(pooling, MaxPooling) else ATTENTION
    if isinstance(pooling, MaxSimPooling):
        kind = MATCHES
    weights_q, weights_a = (weights[0].double().cpu().numpy() for weights in pooling.attention(Q, A))
    window = window_of(ranker.encoder)
    return Explanation(
        _weigh(tokenizer, question, question_tokens, weights_q, window),
        _weigh(tokenizer, answer, answer_tokens, weights_a, window),
        float(score),
        kind,
    )


def window_of(encoder: Encoder) -> tuple[int, int] | None:
    """Return the receptive field of an encoder's states, as in `TextWeights`."""
    if type(encoder) is CnnEncoder:
        return (encoder.window - 1) // 2, encoder.window // 2
    return None


def gives_weights(model: LoadedModel) -> bool:
    """Whether a model has weights of words; those of maxima explain no other vectors."""
    kind = type(_state_pooling(model))
    is_max = kind.attention is MaxPooling.attention
    return kind is MaxPooling if is_max else kind.attention is not Pooling.attention


def _state_pooling(model: LoadedModel) -> Pooling:
    """Return the pooling of the states, without the wrapper that adds columns for a head."""
    pooling = model.ranker.pooling
    return pooling.inner if isinstance(pooling, JoinedPooling) else pooling


def _weigh(
    tokenizer: TextTokenizer,
    text: str,
    tokens: Tokens,
    token_weights: np.ndarray,
    window: tuple[int, int] | None,
) -> TextWeights:
    """Sum the weights (L',) of the L' tokens of each word of a text; tokens may be truncated."""
    indices, length, written = tokenizer.word_indices(text), len(tokens.ids), tokenizer.written(text)
    # (L',) index of the word of each token, -1 for special tokens
    token_words = tokenizer.truncate(Tokens(indices, np.array([0, len(indices)])), length).ids
    spans = tuple(tokenizer.spans(text)) or ((0, len(written)),)  # no word counts as one
    count = max(1, int(token_words.max()) + 1) if len(indices) > length else len(spans)
    words_without_token = set(range(count)) - set(token_words.tolist())
    is_unknown = (token_words >= 0) & (tokens.ids == tokenizer.unknown)
    unknown = words_without_token.union(token_words[is_unknown].tolist())
    in_word = token_words >= 0
    shares = np.bincount(token_words[in_word], weights=token_weights[in_word], minlength=count)
    special_tokens = float(token_weights[~in_word].sum())
    if not in_word.all():
        total = shares.sum()
        shares = shares / total if total > 0 else np.full(count, 1 / count)
    return TextWeights(written, spans, shares, frozenset(unknown), window, special_tokens)
