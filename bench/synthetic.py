"""Collections with the shape of published ones and made-up words, for measurements at any size.

    python -m bench.synthetic --like insuranceqa --output FOLDER [--scale 1] [--seed 0]

Relevance: a question has a topic, a facet (the type of the expected answer) and keywords of its topic. A
relevant answer has the same topic, words of the facet, and some of the keywords. In the question, three of
five keywords are replaced by synonyms, and a facet has other words in questions than in answers. Word overlap
therefore finds the topic and some keywords; facets and synonyms must be learned from the training split. They
are the same in all splits. Non-relevant answers of a pool have the same topic and another facet (``trecqa``,
``wikiqa``) or are sampled from all answers (``insuranceqa``).

Words follow Zipf's law: word r has the weight 1 / (r + 2.7) within its kind (function words, facet words,
words of a topic), and the kinds are mixed as in English.

Memory: one block of questions, plus 20 bytes per question and answer.
"""

from collections.abc import Iterator
from dataclasses import asdict
from functools import cached_property
from typing import NamedTuple

import numpy as np

from aptool.data.collection import Collection
from aptool.data.writing import CollectionWriter, LabelledPool
from aptool.errors import AptoolError, UsageError
from aptool.paths import PathOrUrl
from bench.common import benchmark_parser
from bench.made_up_words import FACETS, Lexicon
from bench.published_shapes import KEYWORDS, SHAPES, CollectionShape, scaled, spread_sizes

BLOCK = 500  # questions
SYNONYMS = 0.6  # share of a question's keywords that are replaced by synonyms in its answers
DISTRACTING = 0.4  # share of a question's keywords in a non-relevant answer of its topic
# Shares of the kinds of words: facet, keyword, topic, any topic. The remaining words are function words.
ANSWER_MIX = (0.10, 0.10, 0.20, 0.10)
QUESTION_MIX = (0.15, 0.35, 0.05, 0.0)


def build(out: PathOrUrl, *, like: str, scale: float = 1.0, seed: int = 0) -> Collection:
    """Write a synthetic collection; the same arguments give the same bytes.

    Args:
        out: folder of the collection.
        like: a key of `SHAPES`.
        scale: factor of the numbers of questions and answers, not of the sizes of pools; vocabulary and
            topics grow with its square root.
        seed: random seed.

    Raises:
        UsageError: ``like`` is not a shape, or ``scale`` is not a positive number.
        InputError: ``out`` exists, and is not this collection.
    """
    if like not in SHAPES:
        raise UsageError(f"shape {like!r}: expected one of {', '.join(SHAPES)}")
    if not 0 < scale < float("inf"):
        raise UsageError(f"scale {scale}: expected a number above 0")
    shape = scaled(SHAPES[like], scale)
    generator = _Generator(shape, seed)
    details = {"like": like, "scale": scale, "seed": seed, "numpy": np.__version__, "shape": asdict(shape)}
    source = f"made-up words in the shape of {like}"
    with CollectionWriter(out, name=f"synthetic-{like}", source=source, details=details) as writer:
        if shape.shared_pool is not None:
            writer.add_answers(generator.shared_answers())
        for split in shape.splits:
            writer.add_split(split, generator.pools(split))
    return Collection(out)


class _Block(NamedTuple):
    """The properties of a block of questions, which are sampled before the texts."""

    topics: np.ndarray  # (questions,)
    facets: np.ndarray  # (questions,)
    keywords: np.ndarray  # (questions, KEYWORDS)


class _Generator:
    """Sample questions and answers block by block. A block is sampled again, with its seed, when needed."""

    def __init__(self, shape: CollectionShape, seed: int) -> None:
        self._shape = shape
        self._seed = seed
        self._lexicon = Lexicon(shape.vocabulary, shape.topics, seed)
        self._splits = list(shape.splits)
        self._relevant: dict[str, np.ndarray] = {}
        self._own: dict[str, np.ndarray] = {}
        for index, (split, sizes) in enumerate(shape.splits.items()):
            rng = np.random.default_rng([seed, 1, index])
            relevant = spread_sizes(sizes.relevant, sizes.questions, shape.relevant_spread, 1, rng)
            nonrelevant = np.zeros_like(relevant)
            if sizes.answers > sizes.relevant:
                total = sizes.answers - sizes.relevant
                nonrelevant = spread_sizes(total, sizes.questions, shape.pool_spread, 1, rng)
            self._relevant[split], self._own[split] = relevant, relevant + nonrelevant

    @cached_property
    def _names(self) -> np.ndarray:
        """(answers,) number in the id of each shared answer, shuffled to not reveal the question."""
        count = sum(int(counts.sum()) for counts in self._own.values())
        return np.random.default_rng([self._seed, 2]).permutation(count) + 1

    def shared_answers(self) -> Iterator[tuple[str, str]]:
        """Ids and texts of the shared answers."""
        number = 0
        for split in self._splits:
            for first in range(0, len(self._own[split]), BLOCK):
                for text in self._answers(split, first):
                    yield str(self._names[number]), text
                    number += 1

    def pools(self, split: str) -> Iterator[LabelledPool]:
        """The pools of a split."""
        before = sum(int(self._own[other].sum()) for other in self._splits[: self._splits.index(split)])
        ends = before + np.cumsum(self._own[split])
        for first in range(0, len(ends), BLOCK):
            questions = self._questions(split, first)
            shared = self._shape.shared_pool is not None
            texts = [] if shared else self._answers(split, first)
            rng = self._rng(split, first, 3)
            taken = 0
            for index, question in enumerate(questions, first):
                answers, relevant = int(self._own[split][index]), int(self._relevant[split][index])
                question_id = f"{split}-{index + 1}"
                if shared:
                    rows = np.arange(ends[index] - answers, ends[index])
                    yield self._shared_pool(split, question_id, question, rows, rng)
                else:
                    yield _own_pool(question_id, question, texts[taken : taken + answers], relevant, rng)
                    taken += answers

    def _shared_pool(
        self, split: str, question_id: str, question: str, rows: np.ndarray, rng: np.random.Generator
    ) -> LabelledPool:
        relevance = {str(name): 1 for name in self._names[rows]}
        size = min(self._shape.shared_pool or 0, len(self._names))
        if split == "train":
            return LabelledPool(question_id, question, list(relevance), None, relevance)
        drawn = rng.choice(len(self._names), size=size, replace=False, shuffle=False)
        nonrelevant = drawn[(drawn < rows[0]) | (drawn > rows[-1])]
        pool = rng.permutation(np.concatenate([rows, nonrelevant[: max(0, size - len(rows))]]))
        return LabelledPool(question_id, question, [str(name) for name in self._names[pool]], None, relevance)

    def _rng(self, split: str, first: int, purpose: int) -> np.random.Generator:
        return np.random.default_rng([self._seed, 10 + purpose, self._splits.index(split), first])

    def _block(self, split: str, first: int) -> _Block:
        rng = self._rng(split, first, 0)
        count = min(BLOCK, len(self._own[split]) - first)
        topics = rng.integers(self._lexicon.topics, size=count)
        facets = rng.integers(FACETS, size=count)
        keywords = self._keywords(topics, rng)
        return _Block(topics, facets, keywords)

    def _keywords(self, topics: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        """(n, KEYWORDS) indices into the topic words; uniform over ranks, to repeat few words."""
        starts, ends = self._lexicon.topic.starts[topics], self._lexicon.topic.starts[topics + 1]
        numbers = rng.random((len(topics), KEYWORDS))
        return (starts[:, None] + numbers * (ends - starts)[:, None]).astype(np.int64)

    def _questions(self, split: str, first: int) -> list[str]:
        block, rng = self._block(split, first), self._rng(split, first, 1)
        lexicon = self._lexicon
        lengths = _lengths(len(block.topics), self._shape.question_length, self._shape.longest[0], rng)
        row, kinds = _kinds(lengths, QUESTION_MIX, rng)
        begins = np.concatenate([[0], np.cumsum(lengths)[:-1]])
        kinds[begins] = 1  # every question starts with a word of its facet and a keyword
        kinds[begins[lengths > 1] + 1] = 2
        words, numbers = self._plain_words(kinds, block.topics[row], rng)
        facet = kinds == 1
        drawn = lexicon.asking.draw(block.facets[row[facet]], numbers[facet])
        words[facet] = lexicon.asking.ids[drawn]
        keyword = kinds == 2
        positions = block.keywords[row[keyword], (numbers[keyword] * KEYWORDS).astype(np.int64)]
        other = rng.random(len(positions)) < SYNONYMS
        positions[other] = lexicon.synonyms(positions[other], block.topics[row[keyword]][other])
        words[keyword] = lexicon.topic.ids[positions]
        return self._joined(words, lengths)

    def _answers(self, split: str, first: int) -> list[str]:
        """Texts of the answers of a block: per question the relevant answers, then the non-relevant."""
        block, rng = self._block(split, first), self._rng(split, first, 2)
        lexicon = self._lexicon
        counts = self._own[split][first : first + BLOCK]
        owner = np.repeat(np.arange(len(counts)), counts)  # (answers,) question of each answer
        within = np.arange(len(owner)) - np.repeat(np.cumsum(counts) - counts, counts)
        relevant = within < self._relevant[split][first : first + BLOCK][owner]
        topics = block.topics[owner]
        shift = rng.integers(1, FACETS, size=len(owner))
        facets = (block.facets[owner] + np.where(relevant, 0, shift)) % FACETS
        strange = ~relevant[:, None] & (rng.random((len(owner), KEYWORDS)) >= DISTRACTING)
        keywords = np.where(strange, self._keywords(topics, rng), block.keywords[owner])

        lengths = _lengths(len(owner), self._shape.answer_length, self._shape.longest[1], rng)
        row, kinds = _kinds(lengths, ANSWER_MIX, rng)
        words, numbers = self._plain_words(kinds, topics[row], rng)
        facet = kinds == 1
        words[facet] = lexicon.answering.ids[lexicon.answering.draw(facets[row[facet]], numbers[facet])]
        keyword = kinds == 2
        positions = keywords[row[keyword], (numbers[keyword] * KEYWORDS).astype(np.int64)]
        words[keyword] = lexicon.topic.ids[positions]
        return self._joined(words, lengths)

    def _plain_words(
        self, kinds: np.ndarray, topics: np.ndarray, rng: np.random.Generator
    ) -> tuple[np.ndarray, np.ndarray]:
        """Sample function words and topic words; return them with the random numbers of the other words."""
        lexicon, numbers = self._lexicon, rng.random(len(kinds))
        words = lexicon.function.ids[lexicon.function.draw(np.zeros_like(kinds), numbers)]
        topical = kinds >= 3
        anywhere = rng.integers(lexicon.topics, size=len(kinds))
        group = np.where(kinds == 4, anywhere, topics)[topical]
        words[topical] = lexicon.topic.ids[lexicon.topic.draw(group, numbers[topical])]
        return words, numbers

    def _joined(self, words: np.ndarray, lengths: np.ndarray) -> list[str]:
        texts = self._lexicon.texts[words].tolist()
        ends = np.cumsum(lengths).tolist()
        return [" ".join(texts[start:end]) for start, end in zip([0, *ends], ends, strict=False)]


def _lengths(count: int, shape: tuple[float, float], longest: int, rng: np.random.Generator) -> np.ndarray:
    """(count,) log-normal lengths of the given mean, from 2 to ``longest``."""
    mean, spread = shape
    drawn = np.exp(np.log(mean) - spread**2 / 2 + spread * rng.standard_normal(count))
    return np.clip(np.rint(drawn), 2, longest).astype(np.int64)


def _kinds(
    lengths: np.ndarray, mix: tuple[float, ...], rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """Text index (words,) and kind (words,) of every word; kinds are 1 to 4, and 0 for function words."""
    row = np.repeat(np.arange(len(lengths)), lengths)
    kinds = np.searchsorted(np.cumsum(mix), rng.random(len(row)), side="right") + 1
    kinds[kinds > len(mix)] = 0
    return row, kinds


def _own_pool(
    question_id: str, question: str, texts: list[str], relevant: int, rng: np.random.Generator
) -> LabelledPool:
    """A pool with unshared answers, shuffled."""
    order = rng.permutation(len(texts))
    ids = [f"{question_id}-{position}" for position in range(len(texts))]
    relevance = {answer_id: int(at < relevant) for answer_id, at in zip(ids, order, strict=True)}
    return LabelledPool(question_id, question, ids, [texts[at] for at in order], relevance)


def main() -> None:
    """Write a collection."""
    parser = benchmark_parser(__doc__)
    parser.add_argument("--like", choices=list(SHAPES), required=True, help="published collection")
    parser.add_argument("--output", required=True, help="folder of the collection")
    parser.add_argument("--scale", type=float, default=1.0, help="factor of sizes (default 1)")
    parser.add_argument("--seed", type=int, default=0, help="random seed (default 0)")
    options = parser.parse_args()
    try:
        build(options.output, like=options.like, scale=options.scale, seed=options.seed)
    except AptoolError as error:
        parser.error(str(error))


if __name__ == "__main__":
    main()
