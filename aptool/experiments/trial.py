"""One trial of an experiment matrix: train, score, write run files, evaluate them.

Every result is stored with a key: a hash of all of its inputs. A second run computes only results whose key
has changed.
"""

import hashlib
import json
import logging
import time
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, NamedTuple

import polars as pl

from aptool.data.collection import Collection
from aptool.data.pools import list_units
from aptool.data.runs import read_run, run_of_scores
from aptool.data.trec import read_qrels, run_lines
from aptool.documents import json_text, read_json
from aptool.environment import __version__
from aptool.errors import AptoolError, InputError
from aptool.evaluation.fusion import learn_fusion, reciprocal_rank_fusion
from aptool.evaluation.measures import evaluate_frames
from aptool.experiments.matrix import DEV, EvaluatedSplit, Trial
from aptool.files import sha256_of
from aptool.models.build import code_of
from aptool.models.model import load_model, remove_model
from aptool.outputs import EXPECTED, output_file
from aptool.paths import Location
from aptool.progress import measures_line
from aptool.scoring.model_system import ModelSystem, PoolTokenizer, model_system
from aptool.scoring.ranker_scorer import RankerScorer
from aptool.scoring.run import score_files
from aptool.scoring.sentence_transformers import checkpoint_fingerprint, local_folder
from aptool.scoring.systems import System, baseline
from aptool.training.checkpoint import inputs_of
from aptool.training.fit import fit

logger = logging.getLogger(__name__)


class _Spent(NamedTuple):
    """Seconds and costs of a run, as in `Result`."""

    seconds: dict[str, float]
    costs: dict[str, float]


class Result(NamedTuple):
    """One system with one seed on one split."""

    collection: str  # name of the split in the matrix
    system: str
    seed: int
    run: Location
    measures: dict[str, float]  # means by measure
    questions: int
    seconds: dict[str, float]  # of ``train`` and ``score``
    published: str  # name of the collection itself
    folder: Location  # of the collection
    split: str
    preset: str | None  # of a trained system
    folds: tuple[dict[str, float], ...] = ()  # measures on each fold, if the result is over all folds
    # Of a trained system: ``bytes_per_answer`` stored, and ``pairs`` scored in ``seconds["score"]``.
    costs: Mapping[str, float] = MappingProxyType({})


@dataclass(frozen=True)
class TrialRunner:
    """Runs trials of a matrix into a folder.

    ``collections`` are by name in the matrix. See `runner.run_matrix` for the other attributes.
    """

    measures: tuple[str, ...]
    output: Location
    collections: Mapping[str, Collection]
    device: str = "auto"
    overwrite: bool = False

    def check_outputs(self, trial: Trial) -> None:
        """Raise if a stored result is of other inputs, or its run has changed; see `run_matrix`."""
        collection = self.collections[trial.collection]
        for evaluated in trial.splits:
            run = self._run_file(trial, evaluated.split)
            is_complete = run.is_file() and _record(run).is_file()
            if is_complete and not self.overwrite and self._stored(trial, evaluated, collection) is None:
                problem = "a result of another recipe, collection or version, or its run has changed"
                raise InputError(_record(run), problem=problem, expected=EXPECTED)

    def is_done(self, trial: Trial) -> bool:
        """Whether all results of a trial are stored and up to date."""
        collection = self.collections[trial.collection]
        return all(self._stored(trial, split, collection) is not None for split in trial.splits)

    def run(self, trial: Trial) -> list[Result]:
        """One result per split: the stored result if it is up to date, otherwise a new one."""
        collection = self.collections[trial.collection]
        results = [self._result(trial, split, collection) for split in trial.splits]
        if trial.splits[0].fold is not None:
            # The models of folds are not needed any more, and may be large.
            remove_model(results[0].run.parent / "model")
        return results

    def _result(self, trial: Trial, evaluated: EvaluatedSplit, collection: Collection) -> Result:
        run = self._run_file(trial, evaluated.split)
        line = f"{evaluated.name}: {trial.system.name}, seed {trial.seed}"
        stored = self._stored(trial, evaluated, collection)
        spent = stored
        if spent is None:
            logger.info(line)
            _record(run).unlink(missing_ok=True)
            spent = self._write_run(trial, evaluated, collection, run)
            key = self._key(trial, collection, evaluated.split)
            with output_file(_record(run)) as temporary:
                record = {"key": key, "run": sha256_of(run), **spent._asdict()}
                temporary.write_text(json_text(record), encoding="utf-8")
        qrels = read_qrels(collection.qrels_file(evaluated.split))
        evaluation = evaluate_frames(qrels, read_run(run).frame, self.measures, run_name=str(run))
        measures = dict(evaluation.means)
        if stored is None:
            logger.info(f"{line}: {measures_line(measures)}")
        return Result(
            collection=evaluated.name,
            system=trial.system.name,
            seed=trial.seed,
            run=run,
            measures=measures,
            questions=len(evaluation.per_question),
            seconds=spent.seconds,
            published=collection.name,
            folder=collection.path,
            split=evaluated.split,
            preset=trial.system.preset,
            costs=spent.costs,
        )

    def _run_file(self, trial: Trial, split: str) -> Location:
        return self.output / trial.collection / trial.system.name / f"seed{trial.seed}" / f"{split}.run"

    def _stored(self, trial: Trial, evaluated: EvaluatedSplit, collection: Collection) -> _Spent | None:
        """Seconds and costs of the stored result; None if it is missing or out of date."""
        run = self._run_file(trial, evaluated.split)
        key = self._key(trial, collection, evaluated.split)
        try:
            saved = read_json(_record(run))
            is_current = saved["key"] == key and saved["run"] == sha256_of(run)
            return _Spent(saved["seconds"], saved["costs"]) if is_current else None
        except (FileNotFoundError, InputError, KeyError, TypeError):
            return None

    def _write_run(
        self, trial: Trial, evaluated: EvaluatedSplit, collection: Collection, run: Location
    ) -> _Spent:
        """Write a run file; return its seconds and costs."""
        system = trial.system
        started = time.perf_counter()
        if system.parts:
            frame = self._fused(trial, evaluated, collection)
            write_derived_run(run, frame, system.name, overwrite=self.overwrite)
            return _Spent({"train": 0.0, "score": time.perf_counter() - started}, {})
        model = str(run.parent / "model")
        scorer: System
        train_seconds = 0.0
        if system.recipe is not None:
            train_seconds = self._fit(trial, collection, model)
            scorer = ModelSystem(model, self.device)
        elif system.model is not None:
            scorer = model_system(system.model, device=self.device)
        else:
            assert system.baseline is not None
            scorer = baseline(system.baseline, seed=trial.seed)
        started = time.perf_counter()
        scored = score_files(
            list_units([collection.pools_file(evaluated.split)]),
            scorer,
            run,
            tag=system.name,
            answers=collection.answers,
            overwrite=self.overwrite,
        )
        seconds = {"train": train_seconds, "score": time.perf_counter() - started}
        if system.recipe is None:
            return _Spent(seconds, {})
        loaded = load_model(model)
        first_row_group = next(collection.batches(evaluated.split))
        tokens = PoolTokenizer(loaded.tokenizer, loaded.recipe.text).tokenize(first_row_group).answers
        bytes_per_answer = RankerScorer(loaded.ranker).bytes_per_answer(tokens)
        return _Spent(seconds, {"bytes_per_answer": bytes_per_answer, "pairs": scored.pairs})

    def _fused(self, trial: Trial, evaluated: EvaluatedSplit, collection: Collection) -> pl.DataFrame:
        """Fuse the runs of a system's parts.

        The model of ``combine`` is fitted on the dev split; dev itself is fused by cross-fitting.
        """
        system = trial.system

        def runs(split: str) -> list[pl.DataFrame]:
            return [read_run(self._run_file(part, split)).frame for part in trial.parts]

        fused = runs(evaluated.split)
        if system.fuse:
            return reciprocal_rank_fusion(fused)
        try:
            train_runs = None if evaluated.split == DEV else runs(DEV)
            fusion = learn_fusion(fused, collection.qrels(DEV), train_runs=train_runs)
        except AptoolError as error:
            raise AptoolError(f"{system.name} on {evaluated.name}: {error}") from error
        weights = zip(system.parts, fusion.weights, strict=True)
        logger.info(f"{system.name}: {', '.join(f'{part.name} {mean:.3f}' for part, (mean, _) in weights)}")
        return fusion.run.frame

    def _fit(self, trial: Trial, collection: Collection, model: str) -> float:
        """Train a system, unless it was trained for another split; return the seconds of its epochs."""
        assert trial.system.recipe is not None
        fitted = fit(
            collection,
            trial.system.recipe,
            model,
            seed=trial.seed,
            vectors_cache=self.output / trial.collection / "vectors",
            device=self.device,
            overwrite=self.overwrite,
        )
        return fitted.seconds

    def _key(self, trial: Trial, collection: Collection, split: str) -> str:
        """Hash all inputs of a result."""
        system = trial.system
        inputs: list[Any] = [__version__, collection.fingerprint, split, trial.seed, system.baseline]
        if system.recipe is not None:
            recipe = system.recipe
            inputs += [recipe.to_dict(), code_of(recipe), inputs_of(recipe)]
        inputs += [self._key(part, collection, split) for part in trial.parts]
        if system.model is not None:
            inputs.append(checkpoint_fingerprint(local_folder(system.model)))
        if system.combine:
            inputs.append(["combine", "logistic"])
        return hashlib.sha256(json.dumps(inputs, sort_keys=True).encode()).hexdigest()[:16]


def write_derived_run(run: Location, frame: pl.DataFrame, tag: str, *, overwrite: bool) -> None:
    """Write a run that follows from other runs, unless it exists with these lines."""
    lines = run_lines(frame, tag)
    if not (run.is_file() and run.read_bytes() == lines):
        run_of_scores(frame, tag).save(run, overwrite=overwrite)


def _record(run: Location) -> Location:
    """The file with the key and the measures of a run."""
    return run.parent / f"{run.stem}.json"
