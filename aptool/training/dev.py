"""The dev split, which is scored and evaluated after each epoch."""

from typing import NamedTuple

import numpy as np
import polars as pl
import torch

from aptool.config import TextOptions
from aptool.data.collection import Collection
from aptool.data.trec import read_qrels
from aptool.errors import AptoolError
from aptool.evaluation.measures import evaluate_frames
from aptool.evaluation.names import DEFAULT_MEASURES
from aptool.models.ranker import Ranker
from aptool.progress import progress
from aptool.scoring.ranker_scorer import RankerScorer
from aptool.text.tokenizer import TextTokenizer, Tokens
from aptool.training.process_group import SINGLE_PROCESS, ProcessGroup


class _RowGroup(NamedTuple):
    ids: pl.DataFrame  # question_id and answer_id of each pair
    questions: Tokens
    answers: Tokens
    pair_question: np.ndarray
    pair_answer: np.ndarray


class DevSet:
    """Tokenized pools with their qrels."""

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
