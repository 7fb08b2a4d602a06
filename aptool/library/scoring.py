"""The public functions `score` and `bm25_run`."""

import logging
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from aptool.environment import ENGINE_PRECISIONS, ENGINES, Engine, EnginePrecision, is_native
from aptool.errors import UsageError
from aptool.formats.atomic import check_apart, files_of
from aptool.formats.ids import check_one_word
from aptool.formats.runs import check_run_output
from aptool.library.arguments import (
    PathLike,
    check_choice,
    check_device,
    check_integer,
    check_path,
    check_score_tokens,
    check_text,
    is_path,
)
from aptool.library.pools import AnyPools, as_pools
from aptool.library.where import Address, Where
from aptool.scoring.score import Executor, ScoredRun, score_files, score_in_memory
from aptool.scoring.systems import BASELINES, Bm25, System, baseline
from aptool.text.words import EXPECTED, word_splitter
from aptool.version import check_installed, requiring_torch

if TYPE_CHECKING:
    from typing_extensions import TypeIs

    from aptool.library.model import Model
    from aptool.library.run import Run

logger = logging.getLogger(__name__)


def score(
    pools: AnyPools,
    model: "Model | System | PathLike",
    output: PathLike,
    executor: Executor | None = None,
    *,
    answers: PathLike | None = None,
    tag: str | None = None,
    device: str = "auto",
    precision: EnginePrecision = "auto",
    tokens_per_batch: int | None = None,
    kind: str = "auto",
    engine: Engine = "aptool",
    true_token: str | None = None,
    false_token: str | None = None,
    words: str | None = None,
    overwrite: bool = False,
    cluster: Address = None,
    workers: int | None = None,
    gpus_per_worker: float | None = None,
    wait: float | None = None,
) -> ScoredRun:
    """Score pools into a TREC run file, as ``aptool score`` does, one row group in memory at a time.

    After an interruption, a call with the same arguments resumes.

    Args:
        pools: ``Pools``, a table as for `Pools`, or files, folders, globs or URLs of pools.
        model: a model folder or a name on the Hugging Face hub (see `load`); a `Model` or another system; or
            a baseline, ``"bm25"`` (see `bm25_run`) or ``"random"`` (scores from the ids, with seed 0). Write
            ``"./bm25"`` for a model folder with that name. Baselines ignore ``device``, ``precision``,
            ``tokens_per_batch``, ``kind``, ``true_token`` and ``false_token``.
        output: the run: a TREC file, gzip if the name ends in ``.gz``; a table if it ends in ``.parquet``; a
            folder of shards of either form if it ends in a slash, as for `Run.save`.
        executor: backend that scores the row groups, instead of ``cluster``.
        answers: file of the answers that the pools share. Default: ``answers.parquet`` next to the pools.
        tag: the name of the run in the file, one word. Default: the preset of the model.
        device: device of a model folder, as for `load`. ``cuda`` uses all GPUs of the machine.
        precision: precision of the encoder of a model folder, as for `load`. The engine ``"openvino"`` also
            has ``int8``, calibrated with texts of the pools.
        tokens_per_batch: number of tokens per batch of a model folder, which bounds memory. Default: by
            device, as in ``aptool score --help``.
        kind: checkpoint type of a model folder, if it cannot be detected, as for `load`.
        engine: ``"sentence-transformers"`` loads and scores a checkpoint with that library, also with
            settings that aptool does not implement; ``"openvino"`` does so in OpenVINO, on a CPU. Default:
            aptool.
        true_token: token of the score of a language model, as for `load`.
        false_token: token whose logit is subtracted, as for `load`.
        words: the words of ``"bm25"``, as for `bm25_run`. Default: ``unicode``.
        overwrite: replace an existing run even if aptool did not write it, or it has changed since.
        cluster: address of a Ray cluster, or True for RAY_ADDRESS (``auto`` if unset). Default: no cluster.
        workers: number of worker processes of the cluster. Default: as many as fit.
        gpus_per_worker: GPUs per worker, may be fractional. Default: 1 if the cluster has GPUs, else 0.
        wait: seconds to wait for cluster resources. Default: no limit.

    Returns:
        Statistics such as ``pairs`` (number of scores), ``truncated`` (number of truncated answers),
        ``units`` (number of row groups), ``resumed`` (row groups of an earlier call) and ``seconds``.

    Example:
        >>> result = aptool.score("data/wikiqa/dev.pools.parquet", "models/wikiqa", "dev.run")
        >>> result.pairs
        120
        >>> aptool.Run.load("dev.run")
        Run('ap-cnn': 20 questions, 120 candidates)
    """
    path = check_path("output", output)
    check_run_output(path, overwrite=overwrite)
    if tag is not None:
        check_one_word("tag", check_text("tag", tag))
    check_choice("precision", precision, ENGINE_PRECISIONS)
    if tokens_per_batch is not None:
        check_integer("tokens_per_batch", tokens_per_batch, 1)
    pools = as_pools(pools, answers)
    where = Where(check_device(device), cluster, workers, gpus_per_worker, wait)
    if executor is not None and cluster is not None:
        raise UsageError("cluster: expected None with an executor")
    check_choice("engine", engine, ENGINES)
    settings: dict[str, Any] = {"device": where.device, "precision": precision, "kind": kind}
    settings |= {"true_token": true_token, "false_token": false_token, "tokens_per_batch": tokens_per_batch}
    system = _system(model, words, engine, is_local=executor is None and not where.on_cluster, **settings)
    check_apart(path, files_of(*system.paths))
    with pools.on_disk() as files, where.connected() as connected:
        executor = executor if executor is not None else connected.executor()
        return score_files(files.units, system, path, executor, tag=tag, answers=files.answers)


def _system(
    model: object,
    words: str | None,
    engine: Engine,
    *,
    is_local: bool,
    true_token: str | None,
    false_token: str | None,
    **settings: Any,
) -> System:
    """Return the system that a user means by ``model``; the other arguments are those of `score`."""
    if words is not None and model != "bm25":
        raise UsageError("words: requires the model bm25; a recipe has text.words")
    if settings["precision"] == "int8" and engine != "openvino":
        raise UsageError("precision 'int8': requires the engine openvino (--engine openvino)")
    if engine != "aptool":
        if not is_path(model) or model in BASELINES:
            raise UsageError(f"engine {engine!r}: requires the folder or the name of a model")
        if true_token is not None:
            raise UsageError(f"true_token: expected None with the engine {engine}")
        check_installed("sentence_transformers", purpose=f"engine {engine}", extra=engine)
        if engine == "openvino":
            _check_openvino(**settings)
        from aptool.scoring.library_system import LibrarySystem

        return LibrarySystem(check_path("model", model), engine=engine, **settings)
    if isinstance(model, str) and model in BASELINES:
        _log_ignored(model, {**settings, "true_token": true_token, "false_token": false_token})
        return baseline(model, words="unicode" if words is None else check_words(words))
    if isinstance(model, System):
        _log_ignored(type(model).__name__, {**settings, "true_token": true_token, "false_token": false_token})
        return model
    with requiring_torch("a model"):
        from aptool.scoring.model_system import ModelSystem

    if not _is_model(model):
        folder = check_path("model", model, "a model folder (str or os.PathLike) or a Model")
        return ModelSystem(folder, tokens=check_score_tokens(true_token, false_token), **settings)
    if is_local:
        return model.system(settings["tokens_per_batch"])
    settings |= {"kind": model.kind, "tokens": model.score_tokens}
    return ModelSystem(str(model.folder), **settings)


def _check_openvino(device: str, precision: str, **settings: Any) -> None:
    """Check the settings, the packages and the processor for the engine ``openvino``."""
    if device not in ("auto", "cpu"):
        raise UsageError(f"device {device!r}: expected auto or cpu with the engine openvino")
    if precision == "tf32":
        raise UsageError("precision 'tf32': expected auto, fp32, bf16 or int8 with the engine openvino")
    packages = {"openvino": "engine openvino"} | (
        {"datasets": "precision int8"} if precision == "int8" else {}
    )
    for package, purpose in packages.items():
        check_installed(package, purpose=purpose, extra="openvino")
    if not is_native(precision):
        logger.warning(f"precision {precision}: this processor lacks it in hardware, so fp32 is faster")


def bm25_run(pools: AnyPools, *, words: str = "unicode") -> "Run":
    """Score pools with BM25 (Lucene's variant, k1 = 1.2, b = 0.75), as a run with the tag ``bm25``.

    Document frequencies are counted over the distinct answers of the pools. ``aptool.score(pools, "bm25",
    "bm25.run")`` writes the same run to a file.

    Args:
        pools: the pools to score, as for `score`.
        words: ``unicode``: lower-cased runs of letters, digits and underscores, with combining marks.
            ``bigrams``: the same, but overlapping bigrams for Chinese, Japanese, Korean, Thai, Lao, Khmer and
            Burmese. Or the import path of a function that returns the words of a text: ``"jieba:lcut"``.

    Example:
        >>> pool = "who wrote it?", {"a": "Nobody knows.", "b": "She wrote it."}
        >>> aptool.bm25_run(aptool.Pools({"q1": pool})).to_polars()["answer_id"].to_list()
        ['b', 'a']
        >>> pool = "東京タワーの高さは?", {"a": "東京の人口", "b": "東京タワーは三百三十三メートル"}
        >>> run = aptool.bm25_run(aptool.Pools({"q1": pool}), words="bigrams")
        >>> run.to_polars()["answer_id"].to_list()
        ['b', 'a']
    """
    from aptool.library.run import run_of_scores

    system = Bm25(check_words(words))
    with as_pools(pools).on_disk() as files:
        return run_of_scores(*score_in_memory(files.units, system, answers=files.answers))


def check_words(words: str) -> str:
    """Return the name of a word splitter that exists."""
    word_splitter(check_text("words", words, expected=EXPECTED))
    return words


def _is_model(value: object) -> "TypeIs[Model]":
    """Whether a value is a ``Model``; does not import that class."""
    module = sys.modules.get("aptool.library.model")
    return module is not None and isinstance(value, module.Model)


def _log_ignored(name: str, settings: dict[str, Any]) -> None:
    """Log the settings of models that a system without a model ignores."""
    names = ("device", "precision", "true_token", "false_token", "kind", "tokens_per_batch")
    is_default = {name: settings[name] in (None, "auto") for name in names}
    is_default["device"] |= settings["device"] == "cpu"
    ignored = [name for name in names if not is_default[name]]
    if ignored:
        logger.info(f"{name} needs no model: {', '.join(ignored)} ignored")
    if name in BASELINES and Path(name).exists():
        logger.info(f"{name}: the untrained system; for the model folder write ./{name}")
