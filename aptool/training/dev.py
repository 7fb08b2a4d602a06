"""The dev split, read once and judged after every epoch as ``aptool score`` and ``aptool eval`` would."""

import numpy as np
import polars as pl

from aptool.config import TextOptions
from aptool.errors import AptoolError
from aptool.evaluation.metrics import evaluate
from aptool.formats.collection import Collection
from aptool.formats.pools import list_units, read_answers, read_pools
from aptool.formats.trec import read_qrels
from aptool.models.ranker import Ranker
from aptool.scoring.scorer import Scorer
from aptool.text.tokenizer import Tokens, WordTokenizer

MEASURES = ("map", "recip_rank", "P_1")


class DevSet:
    """Tokenised pools with their qrels."""

    def __init__(
        self, collection: Collection, split: str, tokenizer: WordTokenizer, options: TextOptions
    ) -> None:
        """Reads and tokenises a split.

        Raises:
            InputError: a file is not what it should be.
        """
        answers = read_answers(collection.answers) if collection.answers else None
        self._qrels = read_qrels(collection.qrels(split))
        self._groups: list[tuple[pl.DataFrame, Tokens, Tokens, np.ndarray, np.ndarray]] = []
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
            self._groups.append((ids, questions, texts, pools.pair_question, pools.pair_answer))

    def measures(self, ranker: Ranker, extra: str) -> dict[str, float]:
        """MAP, MRR, P@1 and the measure ``extra`` of a ranker, by the names that trec_eval has for them.

        Raises:
            AptoolError: a score is not a number, as weights that have grown without bound make it.
        """
        scorer = Scorer(ranker)
        frames = [
            ids.with_columns(score=scorer.score(questions, answers, pair_question, pair_answer))
            for ids, questions, answers, pair_question, pair_answer in self._groups
        ]
        run = pl.concat(frames)
        if not run["score"].is_finite().all():
            raise AptoolError(
                "a dev score is not a number: expected weights that stay finite; "
                "a lower training.learning_rate or a training.clip (such as 5) keeps them so"
            )
        return dict(evaluate(self._qrels, run, dict.fromkeys([*MEASURES, extra])).means)
