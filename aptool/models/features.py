"""Pair features, and heads.

Pair features measure the words that a question and an answer share. They are computed from words instead of
token ids, so that an out-of-vocabulary word still matches itself. The distinct words of each text are counted
once; a pair looks up the question's words in the answer. Word statistics come from the training texts.

A head computes a score from the columns of a pair: the output of the pooling, and the pair features.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from typing_extensions import override

from aptool.config import NoOptions, bounded
from aptool.models.ragged import rows_of
from aptool.text.tokenizer import NO_WORD, Tokens, WordTokenizer

# Words in more than this share of the training texts are function words.
_COMMON = 0.1

# Upper bound of word numbers: ids, then 32-bit hashes of out-of-vocabulary words.
_SPAN = 1 << 40


@dataclass(frozen=True)
class WordBags:
    """The distinct words of n texts."""

    keys: np.ndarray  # (N,) int64, text · _SPAN + word, ascending
    counts: np.ndarray  # (N,) int64 occurrences
    offsets: np.ndarray  # (n + 1,) int64: the words of text i are ``offsets[i]`` to ``offsets[i + 1]``
    lengths: np.ndarray  # (n,) int64 words per text, with repetitions

    @classmethod
    def of(cls, tokens: Tokens) -> "WordBags":
        """Count the words of texts whose tokenizer identifies them (``TextTokenizer.identify_words``)."""
        assert tokens.words is not None
        texts = len(tokens)
        owner = np.repeat(np.arange(texts), tokens.lengths)
        real = tokens.words != NO_WORD
        keys, counts = np.unique(owner[real] * _SPAN + tokens.words[real], return_counts=True)
        offsets = np.searchsorted(keys, np.arange(texts + 1) * _SPAN)
        return cls(keys, counts, offsets, np.bincount(owner[real], minlength=texts))


class _Matches(NamedTuple):
    """Matches of P pairs: the W distinct words of the questions, with their counts in the answers."""

    pair: np.ndarray  # (W,) the pair of each word
    idf: np.ndarray  # (W,) inverse document frequency
    content: np.ndarray  # (W,) 1 for a content word, else 0
    counts: np.ndarray  # (W,) occurrences in the answer of the pair
    lengths: np.ndarray  # (P, 2) words of question and answer
    mean_length: float  # of the training texts, in words

    def total(self, values: np.ndarray) -> np.ndarray:
        """(P,) sum of (W,) values over the words of each question."""
        return np.bincount(self.pair, weights=values, minlength=len(self.lengths)).astype(np.float64)

    def share(self, weights: np.ndarray) -> np.ndarray:
        """(P,) weight of the matched words, as a share of all words of the question; 0 without words."""
        total = self.total(weights)
        shared = self.total(weights * (self.counts > 0))
        return np.divide(shared, total, out=np.zeros_like(shared), where=total > 0)

    def log_weight(self, weights: np.ndarray) -> np.ndarray:
        """(P,) ln(1 + weight of the matched words)."""
        return np.log1p(self.total(weights * (self.counts > 0)))


def _bm25(matches: _Matches) -> np.ndarray:
    from aptool.text.bm25 import K1, B  # few systems have pair features

    norm = K1 * (1 - B + B * matches.lengths[:, 1] / matches.mean_length)
    counts = matches.counts
    return np.log1p(matches.total(matches.idf * counts / (counts + norm[matches.pair])))


# ``features.columns`` of a recipe: functions that compute a column (P,) float64.
COLUMNS: dict[str, Callable[[_Matches], np.ndarray]] = {
    "overlap": lambda matches: matches.share(np.ones(len(matches.pair))),
    "idf_overlap": lambda matches: matches.share(matches.idf),
    "content_overlap": lambda matches: matches.share(matches.content),
    "idf_content_overlap": lambda matches: matches.share(matches.idf * matches.content),
    "overlap_count": lambda matches: matches.log_weight(matches.content),
    "idf_overlap_count": lambda matches: matches.log_weight(matches.idf * matches.content),
    "bm25": _bm25,
    "question_length": lambda matches: np.log1p(matches.lengths[:, 0]),
    "answer_length": lambda matches: np.log1p(matches.lengths[:, 1]),
}


class PairFeatures(nn.Module):
    """Pair features; the word statistics are saved with the model."""

    idf: Tensor  # (V,) ln(1 + (N − df + 0.5) / (df + 0.5)) over N training texts
    content: Tensor  # (V,) whether a word is in at most a tenth of the training texts
    corpus: Tensor  # (2,) idf of a word outside the training texts; mean length of the texts in words

    def __init__(self, vocabulary_size: int, columns: tuple[str, ...]) -> None:
        super().__init__()
        self.columns = columns
        self.register_buffer("idf", torch.ones(vocabulary_size, dtype=torch.float64))
        self.register_buffer("content", torch.ones(vocabulary_size, dtype=torch.float64))
        self.register_buffer("corpus", torch.ones(2, dtype=torch.float64))

    def learn(self, tokenizer: WordTokenizer, texts: list[str]) -> None:
        """Compute the word statistics of the training texts."""
        from aptool.text.bm25 import inverse_document_frequency

        bags = WordBags.of(tokenizer.encode(texts))
        words = bags.keys % _SPAN
        df = np.bincount(words[words < len(self.idf)], minlength=len(self.idf))
        idf = inverse_document_frequency(df, len(texts))
        self.idf.copy_(torch.from_numpy(idf))
        self.content.copy_(torch.from_numpy((df <= _COMMON * len(texts)).astype(np.float64)))
        mean = max(float(bags.lengths.mean()), 1.0)
        unseen = float(inverse_document_frequency(np.zeros(1), len(texts))[0])
        self.corpus.copy_(torch.tensor([unseen, mean], dtype=torch.float64))

    def forward(
        self, questions: WordBags, answers: WordBags, pair_question: np.ndarray, pair_answer: np.ndarray
    ) -> Tensor:
        """(P, F) float32 columns of pairs, given as (P,) indices of questions and answers."""
        # Look up the words of each pair's question in its answer.
        sizes = np.diff(questions.offsets)[pair_question]
        pair = np.repeat(np.arange(len(sizes)), sizes)
        word = questions.keys[rows_of(questions.offsets[pair_question], sizes)] % _SPAN
        key = pair_answer[pair] * _SPAN + word
        # A sentinel above all keys keeps the index in range.
        keys = np.append(answers.keys, np.iinfo(np.int64).max)
        index = np.searchsorted(keys, key)
        unseen_idf, mean_length = self.corpus.tolist()
        in_vocabulary = word < len(self.idf)
        vocabulary_word = np.where(in_vocabulary, word, 0)
        matches = _Matches(
            pair,
            idf=np.where(in_vocabulary, self.idf.cpu().numpy()[vocabulary_word], unseen_idf),
            content=np.where(in_vocabulary, self.content.cpu().numpy()[vocabulary_word], 1.0),
            counts=np.where(keys[index] == key, np.append(answers.counts, 0)[index], 0),
            lengths=np.stack([questions.lengths[pair_question], answers.lengths[pair_answer]], axis=1),
            mean_length=mean_length,
        )
        columns = np.stack([COLUMNS[name](matches) for name in self.columns], axis=1)
        return torch.from_numpy(columns.astype(np.float32)).to(self.idf.device)


class Head(nn.Module, ABC):
    """The interface of heads."""

    Options: ClassVar[type] = NoOptions

    def __init__(self, columns: int, features: int, options: Any) -> None:
        super().__init__()

    @abstractmethod
    def forward(self, columns: Tensor) -> Tensor:
        """(n,) scores of pairs from their (n, C) columns."""


class NoHead(Head):
    """The score is the only column of the pooling."""

    @override
    def forward(self, columns: Tensor) -> Tensor:
        return columns[:, 0]


class LinearHead(Head):
    """w · x + b, initialized to the mean of the columns; a logistic regression with the loss ``logistic``."""

    def __init__(self, columns: int, features: int, options: Any) -> None:
        super().__init__(columns, features, options)
        self.linear = nn.Linear(columns + features, 1)
        nn.init.zeros_(self.linear.bias)
        with torch.no_grad():
            self.linear.weight[:, :columns] = 1 / columns
            self.linear.weight[:, columns:] = 0

    @override
    def forward(self, columns: Tensor) -> Tensor:
        scores: Tensor = self.linear(columns)
        return scores[:, 0]


class HiddenHead(Head):
    """A hidden layer with tanh, then w · h + b (Severyn and Moschitti 2015, section 3.3)."""

    @dataclass(frozen=True)
    class Options:
        """Options of a ``hidden`` head.

        Attributes:
            size: Units of the hidden layer; 0 is the number of columns.
            vectors: Read the vectors r_q and r_a of a pair in addition to their similarity.
            dropout: Dropout probability of the hidden layer.
        """

        size: int = bounded(0, below=1 << 20)
        vectors: bool = False
        dropout: float = bounded(0.0, below=1)

    def __init__(self, columns: int, features: int, options: Options) -> None:
        super().__init__(columns, features, options)
        inputs = columns + features
        self.hidden = nn.Linear(inputs, options.size or inputs)
        self.dropout = nn.Dropout(options.dropout)
        self.output = nn.Linear(options.size or inputs, 1)

    @override
    def forward(self, columns: Tensor) -> Tensor:
        scores: Tensor = self.output(self.dropout(self.hidden(columns).tanh()))
        return scores[:, 0]


# ``head.type`` of a recipe.
HEADS: dict[str, type[Head]] = {"none": NoHead, "linear": LinearHead, "hidden": HiddenHead}
