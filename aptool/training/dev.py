"""The dev split, read once and evaluated after each epoch as ``aptool score`` and ``aptool eval`` would."""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import polars as pl
import torch

from aptool.config import TextOptions
from aptool.errors import AptoolError
from aptool.evaluation.measures import evaluate
from aptool.evaluation.names import DEFAULT_MEASURES
from aptool.formats.collection import CollectionFiles
from aptool.formats.pools import list_units, read_answers, read_pools
from aptool.formats.trec import read_qrels
from aptool.models.ranker import Ranker
from aptool.progress import Count, get_progress
from aptool.scoring.scorer import Scorer
from aptool.text.tokenizer import TextTokenizer, Tokens
from aptool.training.process_group import SINGLE_PROCESS, ProcessGroup


class _RowGroup(NamedTuple):
    """A row group: the ids of its pairs, its distinct texts, and the question and answer of each pair."""

    ids: pl.DataFrame
    questions: Tokens
    answers: Tokens
    pair_question: np.ndarray
    pair_answer: np.ndarray


class DevSet:
    """Tokenized pools with their qrels."""

    def __init__(
        self, collection: CollectionFiles, split: str, tokenizer: TextTokenizer, options: TextOptions
    ) -> None:
        """Reads and tokenizes a split."""
        answers = read_answers(collection.answers) if collection.answers else None
        self._qrels = read_qrels(collection.qrels(split))
        self._unknown_id = tokenizer.unknown
        self._row_groups: list[_RowGroup] = []
        for unit in list_units([collection.pools(split)]):
            pools = read_pools(unit, answers)
            ids = pl.DataFrame(
                {
                    "question_id": pl.Series(pools.question_ids).gather(pools.pair_question),
                    "answer_id": pl.Series(pools.answer_ids),
                }
            )
            questions = tokenizer.encode(pools.questions, options.max_question_tokens, "question")
            texts = tokenizer.encode(pools.answers, options.max_answer_tokens)
            self._row_groups.append(_RowGroup(ids, questions, texts, pools.pair_question, pools.pair_answer))

    @property
    def texts(self) -> list[Tokens]:
        """The questions and the answers of each row group."""
        return [tokens for one in self._row_groups for tokens in (one.questions, one.answers)]

    @property
    def unknown(self) -> float:
        """Fraction of the split's tokens, each distinct text counted once, that the vocabulary lacks."""
        ids = np.concatenate([tokens.ids for tokens in self.texts])
        return float((ids == self._unknown_id).mean())

    def measures(
        self, ranker: Ranker, dev_measure: str, group: ProcessGroup = SINGLE_PROCESS
    ) -> dict[str, float]:
        """The default measures and ``dev_measure`` of a ranker.

        Each process of ``group`` scores its shard of the questions; process 0 evaluates all scores.
        """
        device = next(ranker.parameters()).device
        scorer = Scorer(ranker, device=device)
        with get_progress().task("dev") as update:
            count = Count(update, sum(int(_shard(one, group).sum()) for one in self._row_groups), "pairs")
            shards = [self._score_shard(scorer, one, group, count.add) for one in self._row_groups]
        scores = group.all_reduce(torch.from_numpy(np.concatenate(shards)).to(device)).cpu().numpy()
        if not np.isfinite(scores).all():
            raise AptoolError(
                "training diverged: a dev score is not a number; "
                "expected a lower training.learning_rate, or a training.clip such as 5"
            )
        figures = None
        if group.rank == 0:
            run = pl.concat([row_group.ids for row_group in self._row_groups]).with_columns(score=scores)
            figures = evaluate(self._qrels, run, [*DEFAULT_MEASURES, dev_measure]).means
        broadcast: dict[str, float] = group.broadcast(figures)
        return broadcast

    @staticmethod
    def _score_shard(
        scorer: Scorer, row_group: _RowGroup, group: ProcessGroup, scored: Callable[[int], None]
    ) -> np.ndarray:
        """(pairs,) scores of a row group, zero except for this process's questions."""
        scores = np.zeros(len(row_group.pair_question), dtype=np.float32)
        shard = group.shard(len(row_group.questions))
        own = _shard(row_group, group)
        questions = row_group.questions.take(np.arange(shard.start, shard.stop))
        scores[own] = scorer.score(
            questions,
            row_group.answers,
            row_group.pair_question[own] - shard.start,
            row_group.pair_answer[own],
            scored=scored,
        )
        return scores


def _shard(row_group: _RowGroup, group: ProcessGroup) -> np.ndarray:
    """(pairs,) bool: the pairs of this process's questions."""
    shard = group.shard(len(row_group.questions))
    own: np.ndarray = (row_group.pair_question >= shard.start) & (row_group.pair_question < shard.stop)
    return own
