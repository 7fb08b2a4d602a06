"""Trained models: rank answers, score pairs and pools, show attention weights."""

import copy
import functools
import json
import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

from aptool.errors import AptoolError, InputError
from aptool.evaluation.evaluation import MeasureValues
from aptool.formats.ids import check_one_word
from aptool.formats.location import location
from aptool.formats.pools import read_answers
from aptool.library.arguments import (
    PRECISIONS,
    PathLike,
    Precision,
    check_choice,
    check_device,
    check_integer,
    check_path,
    check_text,
    check_type,
)
from aptool.library.encoded_texts import EncodedTexts, check_encoded, filling
from aptool.library.pools import PoolFiles, Pools
from aptool.library.run import Run, check_pairs, check_texts, distinct_texts
from aptool.library.systems import run_of
from aptool.models.checkpoints.files import find_folder
from aptool.models.checkpoints.load import load_any
from aptool.models.device import pick_device, set_products, to_device
from aptool.models.explain import Explanation, explain_pairs
from aptool.models.hub import upload
from aptool.models.model import (
    FILES,
    check_model_folder,
    model_fingerprint,
    new_model_folder,
    opened_folder,
)
from aptool.scoring.answer_store import open_store
from aptool.scoring.model_system import ModelSystem
from aptool.scoring.precision import pick_precision, sample_units, sampled_pools
from aptool.scoring.scorer import Scorer


def load(
    folder: PathLike, device: str = "auto", *, precision: Precision = "auto", kind: str = "auto"
) -> "Model":
    """Loads a model: one of aptool, or a checkpoint of another library, as it is.

    Args:
        folder: a model folder, or the name of a model on the Hugging Face hub, ``hf://ORG/NAME``.
        device: ``auto`` (a GPU where there is one), ``cpu``, ``cuda`` or one such as ``cuda:1``. Pools are
            scored on all GPUs of the machine, unless one is named.
        precision: what texts are encoded in when pools are scored; ``auto`` is bf16 on a GPU if no ranking of
            a sample changes, else fp32. ``tf32`` has a GPU compute the products of fp32 in TF32.
        kind: what the folder holds, where it could be several things: ``sentence-transformers``,
            ``cross-encoder``, ``colbert`` or ``static``; ``auto`` finds out.

    Raises:
        AptoolError: the folder is not there or is not a model of this version, or there is no such device.
    """
    return Model(folder, device, precision=precision, kind=kind)


class Model:
    """A trained ranker.

    Several threads may rank, score and encode at the same time. A model can be copied and pickled; copies
    carry the weights.

    Attributes:
        folder: the model folder that it was loaded from.
        device: where it runs.
    """

    def __init__(
        self, folder: PathLike, device: str = "auto", *, precision: Precision = "auto", kind: str = "auto"
    ) -> None:
        """Loads a model; see ``load``."""
        self.folder = find_folder(check_path("folder", folder, "a model folder (str or os.PathLike)"))
        self.device = pick_device(check_device(device))
        self._precision = check_choice("precision", precision, PRECISIONS)
        self._loaded = load_any(self.folder, self.device, kind)

    @property
    def preset(self) -> str:
        """The preset that it was trained by, such as ``ap-cnn``; the name of a checkpoint."""
        return self._loaded.recipe.preset

    @property
    def config(self) -> dict[str, Any]:
        """What stands in ``config.json``: every hyper-parameter, versions and how it was trained."""
        config: dict[str, Any] = json.loads(json.dumps(self._loaded.config))
        return config

    @property
    def dev(self) -> dict[str, float]:
        """The dev measures of the best epoch, by their common names; none of a checkpoint."""
        return MeasureValues.from_any_names(self._loaded.config.get("training", {}).get("dev", {}))

    def encode(self, texts: Iterable[str]) -> EncodedTexts:
        """Encodes answers once, to score them with many questions.

        Encoding is in fp32. A cross-encoder, which reads question and answer together, keeps token ids.

        Args:
            texts: answers; equal texts are encoded once.

        Returns:
            The encoded answers, which ``rank`` and ``score`` of this model take.

        Raises:
            AptoolError: an item is no text.
        """
        answers = check_texts("texts", texts)
        distinct, rows = distinct_texts(answers)
        tokens = self._loaded.tokenizer.encode(distinct, self._loaded.recipe.text.max_answer_tokens)
        set_products("fp32")
        return EncodedTexts(
            self._scorer.encode_answers(tokens),
            rows,
            answers,
            preset=self.preset,
            fingerprint=self._loaded.fingerprint,
            device=self.device,
        )

    def score(
        self, pairs: Iterable[tuple[str, str]] | str, answers: Iterable[str] | EncodedTexts | None = None
    ) -> np.ndarray:
        """Scores (question, answer) pairs, or one question with several answers.

        Each distinct text is encoded once, in fp32; the scores of ``run`` are the same within 1e-5.

        Args:
            pairs: pairs of texts; with ``answers`` the text of one question.
            answers: texts, or the result of ``encode``.

        Returns:
            (pairs,) float32, finite; the cosine of the pooled states (a logit for a cross-encoder).

        Raises:
            AptoolError: an item is no text or pair of texts, or another model encoded the answers.
        """
        if answers is None:
            return self._scores(*check_pairs(pairs))
        return self._scores_of(pairs, answers)

    def rank(
        self, question: str, answers: Iterable[str] | EncodedTexts, top_k: int | None = None
    ) -> list[tuple[int, float]]:
        """Ranks answers to a question.

        Args:
            question: its text.
            answers: texts, or the result of ``encode``.
            top_k: number of answers to return; None is all of them.

        Returns:
            (index into ``answers``, score), the best first; equal scores in the order of ``answers``.

        Raises:
            AptoolError: an item is no text, or the answers were encoded by another model.
        """
        if top_k is not None:
            check_integer("top_k", top_k, 1)
        scores = self._scores_of(question, answers)
        best = np.argsort(-scores, kind="stable")[:top_k]
        return list(zip(best.tolist(), scores[best].tolist(), strict=True))

    def run(
        self,
        pools: Pools,
        tag: str | None = None,
        *,
        encoded: PathLike | None = None,
        fill: bool = False,
    ) -> Run:
        """Scores pools; the same scores, to the bit, as those of ``aptool score``.

        Args:
            pools: what to score.
            tag: the name of the run, one word; None is the preset.
            encoded: folder of a store of answers that the model has encoded (``aptool.encode``): they are
                read there and not encoded again.
            fill: encode answers that the store lacks, and add them; otherwise they are an error.

        Raises:
            AptoolError: the pools or the tag are not what they should be, or a score is not finite.
        """
        check_type("pools", pools, Pools, "Pools, such as those of Collection.pools or Pools.load")
        if tag is not None:
            check_one_word("tag", check_text("tag", tag))
        store = check_encoded(encoded, fill, self._precision)
        with filling(store, fill):
            run = run_of(pools, functools.partial(self.system, encoded=store, fill=fill))
        return run if tag is None else Run.from_scores(run.frame, tag)

    def explain(self, question: str, answer: str, *, alignment: bool = False) -> Explanation:
        """Shows how much each word of a pair counts.

        Attentive pooling gives its attention weights (σ, equation 16 of the paper), max pooling the
        share of the features that each word's state wins.

        Args:
            question: M words.
            answer: L words.
            alignment: keep the (M, L) alignment G = tanh(Qᵀ U A) as well.

        Returns:
            The score, and ``question`` and ``answer``: each with ``words``, ``weights`` (float64, of sum 1,
            of the words within the model's length limit) and more.

        Raises:
            AptoolError: what is given is no text, or the model's pooling gives no weights.
        """
        check_text("question", question)
        check_text("answer", answer)
        return explain_pairs(self._loaded, [(question, answer)], alignment=alignment)[0]

    def save(self, folder: PathLike) -> None:
        """Writes the model folder; it appears whole or not at all.

        Args:
            folder: where to; a model that stands there is replaced.

        Raises:
            AptoolError: it cannot be written, the folder that the model was loaded from has changed since, or
                the model is of another library.
        """
        if self._loaded.config["model_type"] != "aptool":
            raise AptoolError(f"{self.folder}: a model of another library; copy its folder instead")
        target = location(check_path("folder", folder, "a folder to write to (str or os.PathLike)"))
        try:
            unchanged = model_fingerprint(self.folder) == self._loaded.fingerprint
        except (OSError, AptoolError):
            unchanged = False
        if not unchanged:
            raise AptoolError(f"{self.folder}: the model there is not the one that was loaded; load it again")
        if target == self.folder or (
            isinstance(target, Path)
            and isinstance(self.folder, Path)
            and target.is_dir()
            and target.samefile(self.folder)
        ):
            return
        check_model_folder(target)
        with new_model_folder(target) as into, opened_folder(self.folder) as source:
            shutil.copytree(source, into, dirs_exist_ok=True)

    def push(self, name: str, *, private: bool = False, message: str | None = None) -> str:
        """Uploads the model folder to the Hugging Face hub; ``load("hf://ORG/NAME")`` reads it from there.

        Args:
            name: ``ORG/NAME``; the repository is made if there is none.
            private: whether a new repository is private.
            message: of the commit; None is the preset and the fingerprint.

        Returns:
            The address of the commit.

        Raises:
            AptoolError: the name has another form, huggingface_hub is not installed, or the hub refuses.
        """
        told = message or f"{self.preset}, fingerprint {self._loaded.fingerprint}"
        with opened_folder(self.folder) as folder:
            return upload(folder, FILES, check_text("name", name), private=private, message=told)

    def system(self, files: PoolFiles, encoded: str | None = None, fill: bool = False) -> ModelSystem:
        """The model as a system that scores the pools of some files, with a store of encoded answers."""
        if encoded is not None:
            store = open_store(encoded, self._loaded, self.folder)
            return ModelSystem(self._loaded, self.device, store=store, fill=fill)

        def sample() -> Any:
            answers = read_answers(files.answers) if files.answers else None
            return sampled_pools(sample_units(files.units), answers)

        asked: Any = self._precision
        precision = pick_precision(asked, self._loaded, self.device, sample)
        return ModelSystem(self._loaded, self.device, precision=precision)

    @functools.cached_property
    def _scorer(self) -> Scorer:
        return Scorer(self._loaded.ranker, device=self.device)

    def _scores_of(self, question: object, answers: object) -> np.ndarray:
        """(answers,) scores of answers with one question."""
        text = check_text("question", question)
        checked = answers if isinstance(answers, EncodedTexts) else check_texts("answers", answers)
        return self._scores([text], np.zeros(len(checked), dtype=np.int64), checked)

    def _scores(
        self, questions: list[str], pair_question: np.ndarray, answers: list[str] | EncodedTexts
    ) -> np.ndarray:
        """(pairs,) scores: pair i is question ``pair_question[i]`` with answer i."""
        if isinstance(answers, EncodedTexts):
            self._check_encoded(answers)
        if not len(answers):
            return np.empty(0, dtype=np.float32)
        tokenizer, options = self._loaded.tokenizer, self._loaded.recipe.text
        asked = tokenizer.encode(questions, options.max_question_tokens, "question")
        set_products("fp32")
        if isinstance(answers, EncodedTexts):
            scores = self._scorer.score_encoded(asked, answers.prepared, pair_question, answers.rows)
        else:
            distinct, rows = distinct_texts(answers)
            tokens = tokenizer.encode(distinct, options.max_answer_tokens)
            scores = self._scorer.score(asked, tokens, pair_question, rows)
        if not np.isfinite(scores).all():
            pair = int(np.flatnonzero(~np.isfinite(scores))[0])
            texts = answers.texts if isinstance(answers, EncodedTexts) else answers
            place = f"question {questions[pair_question[pair]]!r}, answer {texts[pair]!r}"
            raise InputError(self.folder, place=place, value=float(scores[pair]), expected="a finite score")
        return scores

    def _check_encoded(self, answers: EncodedTexts) -> None:
        """Checks that answers were encoded by this model, on its device.

        Raises:
            InputError: they were not.
        """
        theirs = f"{answers.preset}, fingerprint {answers.fingerprint}, on {answers.device}"
        ours = f"{self.preset}, fingerprint {self._loaded.fingerprint}, on {self.device}"
        if (answers.fingerprint, answers.device) != (self._loaded.fingerprint, self.device):
            raise InputError("answers", problem=f"encoded by {theirs}", expected=f"answers encoded by {ours}")

    def __getstate__(self) -> dict[str, Any]:
        """The model with its weights, on the CPU: a copy does not need the folder."""
        state = {key: value for key, value in self.__dict__.items() if key != "_scorer"}
        if self.device.type != "cpu":
            ranker = copy.deepcopy(self._loaded.ranker).cpu()
            state["_loaded"] = self._loaded._replace(ranker=ranker)
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Moves the weights to the device of the model.

        Raises:
            AptoolError: this machine has no such device.
        """
        self.__dict__.update(state)
        self.device = pick_device(str(self.device))
        to_device(self._loaded.ranker, self.device)

    def __repr__(self) -> str:
        return f"Model({str(self.folder)!r}: {self.preset} on {self.device})"
