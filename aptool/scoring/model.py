"""The public class `Model`, also called `load`."""

import json
import shutil
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from aptool.arguments import (
    PathLike,
    check_choice,
    check_device,
    check_integer,
    check_list,
    check_one_word,
    check_path,
    check_text,
)
from aptool.data.pools import AnyPools, as_pools
from aptool.data.runs import Run, run_of_scores
from aptool.environment import BACKENDS, PRECISIONS, Backend, Precision
from aptool.errors import AptoolError, InputError
from aptool.models.explain import Explanation, explain_pairs
from aptool.models.hub import CONFIG, find_folder
from aptool.models.model import LoadedModel, model_fingerprint, opened_folder
from aptool.outputs import check_output_folder, output_folder
from aptool.paths import location
from aptool.scoring.model_system import model_system
from aptool.scoring.run import score_in_memory


class Model:
    """A model of aptool, or a checkpoint of another library, to score and rank; also called ``load``.

    sentence-transformers loads and scores checkpoints of other libraries.

    Several threads may rank and score at the same time.

    Args:
        folder: a model folder, or the name of a model on the Hugging Face hub, ``ORG/NAME``.
        device: ``auto`` (a GPU if there is one), ``cpu``, ``cuda`` or a GPU such as ``cuda:1``.
        precision: precision of the encoder: ``fp32``, ``bf16`` or ``auto``. ``auto`` is bf16 for pools on a
            GPU if no ranking of the first pools changes, otherwise fp32.
        backend: ``"openvino"`` computes the network of a checkpoint of another library, or of a model with
            mean pooling, in OpenVINO, on a CPU. Default: PyTorch.
        tokens_per_batch: number of tokens per batch when pools are scored, which bounds memory. Default: by
            device, as in ``aptool score --help``.

    Attributes:
        folder: the model folder.
        device: the device of the weights (``torch.device``).
        system: the model as a system that scores pools.

    Example:
        >>> model = aptool.load("models/wikiqa", device="cpu")
        >>> model
        Model('models/wikiqa': ap-cnn on cpu)
        >>> model.preset, list(model.dev)
        ('ap-cnn', ['MAP', 'MRR', 'P@1'])
    """

    def __init__(
        self,
        folder: PathLike,
        device: str = "auto",
        *,
        precision: Precision = "auto",
        backend: Backend = "torch",
        tokens_per_batch: int | None = None,
    ) -> None:
        self.folder = find_folder(check_path("folder", folder, "a model folder (str or os.PathLike)"))
        check_choice("precision", precision, PRECISIONS)
        check_choice("backend", backend, BACKENDS)
        if tokens_per_batch is not None:
            check_integer("tokens_per_batch", tokens_per_batch, 1)
        self.system = model_system(
            str(self.folder),
            device=check_device(device),
            precision=precision,
            backend=backend,
            tokens_per_batch=tokens_per_batch,
        )
        self._scorer = self.system.open()
        self.system = replace(self.system, device=self._scorer.device, model=self._scorer.model)
        self.device = torch.device(self._scorer.device)

    @property
    def _loaded(self) -> LoadedModel:
        """The model; raise for a checkpoint of another library."""
        model = self._scorer.model
        if not isinstance(model, LoadedModel):
            expected = "a model that aptool trained"
            raise InputError(self.folder, problem="a checkpoint of another library", expected=expected)
        return model

    @property
    def preset(self) -> str:
        """The preset of the training, such as ``ap-cnn``, or the name of a checkpoint."""
        return str(self._scorer.description["name"])

    @property
    def config(self) -> dict[str, Any]:
        """Hyperparameters, versions and metadata of the training; class and versions of a checkpoint."""
        model = self._scorer.model
        content = model.config if isinstance(model, LoadedModel) else self._scorer.description
        config: dict[str, Any] = json.loads(json.dumps(content))
        return config

    @property
    def dev(self) -> dict[str, float]:
        """The dev measures of the best epoch by name; empty for a checkpoint."""
        return dict(self.config.get("training", {}).get("dev", {}))

    def score(self, pairs: Iterable[tuple[str, str]]) -> np.ndarray:
        """Score (question, answer) pairs.

        Each distinct text is encoded once. In fp32, the scores of `Model.run` are equal within 1e-5.

        Args:
            pairs: n pairs of texts (question, answer).

        Returns:
            (n,) float32 finite scores, such as the cosine of the pooled vectors or the logit of a
            cross-encoder.

        Example:
            >>> model = aptool.load("models/wikiqa")
            >>> scores = model.score([("who wrote it?", "She wrote it."), ("who wrote it?", "Nobody knows.")])
            >>> scores.shape, scores.dtype
            ((2,), dtype('float32'))
        """
        return self._scores(*_check_pairs(pairs))

    def rank(
        self, question: str, answers: Iterable[str], top_k: int | None = None
    ) -> list[tuple[int, float]]:
        """Rank answers to a question.

        Args:
            question: the text of the question. An empty text is scored as a text without words. Texts are
                truncated at the limits of the model.
            answers: the texts of the answers.
            top_k: number of answers to return. Default: all.

        Returns:
            ``(index into answers, score)`` with the best first; equal scores in the order of ``answers``.

        Example:
            >>> model = aptool.load("models/wikiqa")
            >>> ranking = model.rank("who wrote it?", ["She wrote it.", "Nobody knows."])
            >>> sorted(index for index, score in ranking)
            [0, 1]
        """
        if top_k is not None:
            check_integer("top_k", top_k, 1)
        texts = [
            check_text("answers", text, f"item {number}")
            for number, text in enumerate(check_list("answers", answers, "a list of texts", empty=True))
        ]
        scores = self._scores([check_text("question", question)], np.zeros(len(texts), dtype=np.int64), texts)
        best = np.argsort(-scores, kind="stable")[:top_k]
        return list(zip(best.tolist(), scores[best].tolist(), strict=True))

    def run(self, pools: AnyPools, tag: str | None = None) -> Run:
        """Score pools in memory, with the scores of ``aptool.score``.

        Args:
            pools: the pools to score.
            tag: the name of the run, one word. Default: the preset.

        Example:
            >>> data = aptool.Collection("data/wikiqa")
            >>> aptool.load("models/wikiqa").run(data.pools("dev"), tag="mine")
            Run('mine': 20 questions, 120 candidates)
        """
        pools = as_pools(pools)
        if tag is not None:
            check_one_word("tag", check_text("tag", tag))
        with pools.on_disk() as files:
            frame, preset = score_in_memory(files.units, self.system, answers=files.answers)
        return run_of_scores(frame, preset if tag is None else tag)

    def explain(self, question: str, answer: str) -> Explanation:
        """Compute the weight of each word of a pair.

        With attentive pooling these are the attention weights (σ, equation 16 of the paper); with max pooling
        the share of the features for which the word has the maximum.

        Args:
            question: text of M words.
            answer: text of L words.

        Returns:
            ``score``, ``question`` and ``answer``; the latter have ``words`` and ``weights`` (float64, sum 1)
            up to the length limit of the model.

        Raises:
            AptoolError: the pooling of the model has no weights.

        Example:
            >>> explanation = aptool.load("models/wikiqa").explain("who wrote it?", "She wrote it.")
            >>> len(explanation.answer.words) == len(explanation.answer.weights)
            True
        """
        check_text("question", question)
        check_text("answer", answer)
        return explain_pairs(self._loaded, [(question, answer)])[0]

    def save(self, folder: PathLike, *, overwrite: bool = False) -> None:
        """Copy the model folder, atomically.

        Args:
            folder: the new folder.
            overwrite: replace an existing model.

        Raises:
            AptoolError: the folder cannot be written, the original folder has changed since the model was
                loaded, or the model is a checkpoint of another library.

        Example:
            >>> aptool.load("models/wikiqa").save("models/copy")
            >>> aptool.load("models/copy", device="cpu")
            Model('models/copy': ap-cnn on cpu)
        """
        target = location(check_path("folder", folder, "a folder to write to (str or os.PathLike)"))
        try:
            unchanged = model_fingerprint(self.folder) == self._loaded.fingerprint
        except (OSError, AptoolError):
            unchanged = False
        if not unchanged:
            raise AptoolError(
                f"{self.folder}: the model in this folder has changed since it was loaded; load it again"
            )
        if target == self.folder:
            return
        check_output_folder(target, overwrite=overwrite)
        with output_folder(target, CONFIG) as into, opened_folder(self.folder) as source:
            shutil.copytree(source, into, dirs_exist_ok=True)

    def _scores(self, questions: list[str], pair_question: np.ndarray, answers: list[str]) -> np.ndarray:
        """(pairs,) scores; pair i is question ``pair_question[i]`` with answer i."""
        if not answers:
            return np.empty(0, dtype=np.float32)
        distinct, rows = _distinct(answers)
        scores = self._scorer.score_texts(questions, distinct, pair_question, rows)
        if not np.isfinite(scores).all():
            pair = int(np.flatnonzero(~np.isfinite(scores))[0])
            position = f"question {questions[pair_question[pair]]!r}, answer {answers[pair]!r}"
            raise InputError(
                self.folder, position=position, value=float(scores[pair]), expected="a finite score"
            )
        return scores

    def __repr__(self) -> str:
        return f"Model({str(self.folder)!r}: {self.preset} on {self.device})"


load = Model


def _check_pairs(pairs: object) -> tuple[list[str], np.ndarray, list[str]]:
    """Return the distinct questions of pairs, (pairs,) int64 indices of questions, and the answers."""
    expected = "a list of pairs of texts (question, answer)"
    questions: list[str] = []
    answers: list[str] = []
    for number, pair in enumerate(check_list("pairs", pairs, expected, empty=True)):
        position = f"item {number}"
        if isinstance(pair, str | bytes) or not isinstance(pair, Sequence) or len(pair) != 2:
            raise InputError(
                "pairs", position=position, value=pair, expected="a pair of texts (question, answer)"
            )
        questions.append(check_text("pairs", pair[0], f"{position}, question"))
        answers.append(check_text("pairs", pair[1], f"{position}, answer"))
    distinct, rows = _distinct(questions)
    return distinct, rows, answers


def _distinct(texts: list[str]) -> tuple[list[str], np.ndarray]:
    """Return the distinct texts in order of appearance, and (n,) int64 indices of the texts."""
    rows = {text: row for row, text in enumerate(dict.fromkeys(texts))}
    return list(rows), np.array([rows[text] for text in texts], dtype=np.int64)
