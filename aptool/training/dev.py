"""The dev split, read once and judged after every epoch as ``aptool score`` and ``aptool eval`` would."""

from typing import NamedTuple

import numpy as np
import polars as pl
import torch

from aptool.config import TextOptions
from aptool.errors import AptoolError
from aptool.evaluation.measures import evaluate
from aptool.formats.collection import Collection
from aptool.formats.pools import list_units, read_answers, read_pools
from aptool.formats.trec import read_qrels
from aptool.models.ranker import Ranker
from aptool.scoring.scorer import Scorer
from aptool.text.tokenizer import TextTokenizer, Tokens
from aptool.training.process_group import SINGLE_PROCESS, ProcessGroup

MEASURES = ("map", "recip_rank", "P_1")


class _RowGroup(NamedTuple):
    """A row group: the ids of its pairs, its distinct texts, and which of them make up each pair."""

    ids: pl.DataFrame
    questions: Tokens
    answers: Tokens
    pair_question: np.ndarray
    pair_answer: np.ndarray


class DevSet:
    """Tokenised pools with their qrels."""

    def __init__(
        self, collection: Collection, split: str, tokenizer: TextTokenizer, options: TextOptions
    ) -> None:
        """Reads and tokenises a split.

        Raises:
            InputError: a file is not what it should be.
        """
        answers = read_answers(collection.answers) if collection.answers else None
        self._qrels = read_qrels(collection.qrels(split))
        self._unknown = tokenizer.unknown
        self._row_groups: list[_RowGroup] = []
        for unit in list_units([collection.pools(split)]):
            pools = read_pools(unit, answers)
            ids = pl.DataFrame(
                {
                    "question_id": pl.Series(pools.question_ids).gather(pools.pair_question),
                    "answer_id": pl.Series(pools.answer_ids),
                }
            )
            questions = tokenizer.encode(pools.questions, options.max_question_tokens)
            texts = tokenizer.encode(pools.answers, options.max_answer_tokens)
            self._row_groups.append(_RowGroup(ids, questions, texts, pools.pair_question, pools.pair_answer))

    @property
    def unknown(self) -> float:
        """Share of the split's running words, each distinct text counted once, that the vocabulary lacks."""
        ids = np.concatenate(
            [
                tokens.ids
                for row_group in self._row_groups
                for tokens in (row_group.questions, row_group.answers)
            ]
        )
        return float((ids == self._unknown).mean())

    def measures(self, ranker: Ranker, extra: str, group: ProcessGroup = SINGLE_PROCESS) -> dict[str, float]:
        """MAP, MRR, P@1 and the measure ``extra`` of a ranker, by the names that trec_eval has for them.

        Each process of ``group`` scores its share of the questions; the first one evaluates all scores.

        Raises:
            AptoolError: a score is not a number, as weights that have grown without bound make it.
        """
        device = next(ranker.parameters()).device
        scorer = Scorer(ranker, device=device)
        shares = [self._score_shard(scorer, row_group, group) for row_group in self._row_groups]
        scores = group.all_reduce(torch.from_numpy(np.concatenate(shares)).to(device)).cpu().numpy()
        if not np.isfinite(scores).all():
            raise AptoolError(
                "a dev score is not a number: expected weights that stay finite; "
                "a lower training.learning_rate or a training.clip (such as 5) keeps them so"
            )
        figures = None
        if group.rank == 0:
            run = pl.concat([row_group.ids for row_group in self._row_groups]).with_columns(score=scores)
            figures = dict(evaluate(self._qrels, run, dict.fromkeys([*MEASURES, extra])).means)
        shared: dict[str, float] = group.broadcast(figures)
        return shared

    @staticmethod
    def _score_shard(scorer: Scorer, row_group: _RowGroup, group: ProcessGroup) -> np.ndarray:
        """(pairs,) scores of a row group: zero but for this process's questions."""
        scores = np.zeros(len(row_group.pair_question), dtype=np.float32)
        part = group.part(len(row_group.questions))
        own = (row_group.pair_question >= part.start) & (row_group.pair_question < part.stop)
        questions = row_group.questions.take(np.arange(part.start, part.stop))
        scores[own] = scorer.score(
            questions,
            row_group.answers,
            row_group.pair_question[own] - part.start,
            row_group.pair_answer[own],
        )
        return scores
