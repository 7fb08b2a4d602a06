"""The scorer: pairs of texts in, scores out, each distinct text encoded once.

Attentive pooling is late interaction: encoding a text does not depend on its partner, only the join does, and
the join is the far smaller part. Mining of negatives, dev evaluation, batch scoring and explanation all score
through this class.
"""

import numpy as np
import torch
from torch import Tensor

from aptool.models.ragged import Ragged
from aptool.models.ranker import Ranker
from aptool.scoring.join import join, keep, project
from aptool.text.tokenizer import Tokens

# Bytes of states made at one time: large enough for efficient products, small enough to stay out of the way.
STATE_BYTES = 64 << 20


class Scorer:
    """Scores pairs with the weights that a ranker has now; make a new one after they change."""

    def __init__(
        self, ranker: Ranker, *, device: torch.device | str = "cpu", state_bytes: int = STATE_BYTES
    ) -> None:
        self._pooling = ranker.pooling
        self._device = torch.device(device)
        self._tokens_at_once = max(1, state_bytes // (4 * ranker.encoder.size))
        with torch.inference_mode():
            self._encode = ranker.encoder.prepared()

    @torch.inference_mode()
    def score(
        self, questions: Tokens, answers: Tokens, pair_question: np.ndarray, pair_answer: np.ndarray
    ) -> np.ndarray:
        """Scores of pairs; peak memory does not grow with the number of answers or pairs.

        Args:
            questions: token ids of distinct questions.
            answers: token ids of distinct answers.
            pair_question: (P,) which question each pair has.
            pair_answer: (P,) which answer each pair has.

        Returns:
            (P,) float32, equal to the pairwise definition within 1e-5.
        """
        scores = np.empty(len(pair_question), dtype=np.float32)
        if not len(scores):
            return scores
        kept_questions = self._kept(questions, np.arange(len(questions)))
        projected = project(self._pooling, kept_questions)
        # Answers in the order in which pairs name them: those of one pool then fall into one block.
        order = np.argsort(pair_answer, kind="stable")
        needed, first = np.unique(pair_answer, return_index=True)
        needed = needed[np.argsort(first, kind="stable")]
        starts = np.searchsorted(pair_answer[order], needed, side="left")
        ends = np.searchsorted(pair_answer[order], needed, side="right")
        for block in self._blocks(answers.lengths[needed]):
            kept_answers = self._kept(answers, needed[block])
            members = np.concatenate([order[starts[i] : ends[i]] for i in block])
            local = np.repeat(np.arange(len(block)), (ends - starts)[block])
            pairs = torch.from_numpy(np.stack([pair_question[members], local])).to(self._device)
            scores[members] = (
                join(self._pooling, kept_questions, projected, kept_answers, pairs).cpu().numpy()
            )
        return scores

    def _blocks(self, lengths: np.ndarray) -> list[np.ndarray]:
        """Consecutive runs of texts whose states fit the budget together."""
        block = (np.cumsum(lengths) - lengths) // self._tokens_at_once
        return np.split(np.arange(len(lengths)), np.flatnonzero(np.diff(block)) + 1)

    def _kept(self, tokens: Tokens, rows: np.ndarray) -> Ragged:
        """What the pooling keeps of the texts at ``rows``, in that order; made in batches of like length."""
        by_length = np.argsort(tokens.lengths[rows], kind="stable")
        parts: list[Ragged] = []
        for block in self._blocks(tokens.lengths[rows[by_length]]):
            batch = tokens.take(rows[by_length[block]])
            parts.append(keep(self._pooling, self._encode(Ragged.of(batch, self._device))))
        kept = _concatenated(parts)
        back = torch.from_numpy(np.argsort(by_length, kind="stable")).to(self._device)
        return kept.select(back)


def _concatenated(parts: list[Ragged]) -> Ragged:
    if len(parts) == 1:
        return parts[0]
    lengths = torch.cat([part.lengths for part in parts])
    values: Tensor = torch.cat([part.values for part in parts])
    return Ragged(values, torch.cat([lengths.new_zeros(1), lengths.cumsum(0)]))
