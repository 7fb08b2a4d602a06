"""The public functions `score` and `bm25_run`."""

import logging
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from aptool.arguments import (
    PathLike,
    check_choice,
    check_device,
    check_integer,
    check_path,
    check_text,
)
from aptool.data.ids import check_one_word
from aptool.data.pools import AnyPools, as_pools
from aptool.data.runs import Run, run_of_scores
from aptool.environment import BACKENDS, SCORE_PRECISIONS, Backend, ScorePrecision
from aptool.errors import UsageError
from aptool.execution.where import Address, Where
from aptool.scoring.run import ScoredRun, check_scored_output, score_files, score_in_memory
from aptool.scoring.systems import BASELINES, Bm25, System, baseline
from aptool.text.words import SPLITTERS
from aptool.version import requiring_torch

if TYPE_CHECKING:
    from typing_extensions import TypeIs

    from aptool.scoring.model import Model

logger = logging.getLogger(__name__)


def score(
    pools: AnyPools,
    model: "Model | System | PathLike",
    output: PathLike,
    *,
    answers: PathLike | None = None,
    tag: str | None = None,
    device: str = "auto",
    precision: ScorePrecision = "auto",
    tokens_per_batch: int | None = None,
    backend: Backend = "torch",
    words: str | None = None,
    overwrite: bool = False,
    cluster: Address = None,
    workers: int | None = None,
    gpus_per_worker: float | None = None,
    wait: float | None = None,
) -> ScoredRun:
    """Score pools into a TREC run file, as ``aptool score`` does, a few units of work in memory at a time.

    A unit is consecutive row groups, or a part of a large one. After an interruption, a call with the same
    arguments resumes; a complete run of the same arguments is left as it is.

    Args:
        pools: ``Pools``, a table as for `Pools`, or files, folders, globs or URLs of pools.
        model: a model folder or a name on the Hugging Face hub (see `load`); a `Model` or another system; or
            a baseline, ``"bm25"`` (see `bm25_run`) or ``"random"`` (scores from the ids, with seed 0). Write
            ``"./bm25"`` for a model folder with that name. Baselines ignore ``device``, ``precision``
            and ``tokens_per_batch``.
        output: the run: a TREC file, gzip if the name ends in ``.gz``; a table if it ends in ``.parquet``; a
            folder of parts of either form if it ends in a slash, as for `Run.save`.
        answers: file of the answers that the pools share. Default: ``answers.parquet`` next to the pools.
        tag: the name of the run in the file, one word. Default: the preset of the model.
        device: device of a model folder, as for `load`. ``cuda`` uses all GPUs of the machine.
        precision: precision of the encoder of a model folder, as for `load`. The backend ``"openvino"``
            also has ``int8``, for a folder with a quantized network.
        tokens_per_batch: number of tokens per batch of a model folder, which bounds memory. Default: by
            device, as in ``aptool score --help``.
        backend: ``"openvino"`` computes the network of a checkpoint of another library, or of a model with
            mean pooling, in OpenVINO, on a CPU. Default: PyTorch.
        words: the words of ``"bm25"``, as for `bm25_run`. Default: ``unicode``.
        overwrite: replace an existing run, and remove the parts of other arguments.
        cluster: address of a Ray cluster, or True for RAY_ADDRESS (``auto`` if unset). Default: no cluster.
        workers: number of worker processes of the cluster. Default: as many as fit.
        gpus_per_worker: GPUs per worker, may be fractional. Default: 1 if the cluster has GPUs, else 0.
        wait: seconds to wait for nodes with room. Default: no limit.

    Returns:
        Statistics such as ``pairs`` (number of scores), ``truncated`` (number of truncated answers),
        ``units`` (units of work), ``resumed`` (units of an earlier call) and ``seconds``.

    Example:
        >>> result = aptool.score("data/wikiqa/dev.pools.parquet", "models/wikiqa", "dev.run")
        >>> result.pairs
        120
        >>> aptool.Run.load("dev.run")
        Run('ap-cnn': 20 questions, 120 candidates)
    """
    where = Where(check_device(device), cluster, workers, gpus_per_worker, wait)
    path = check_path("output", output)
    check_scored_output(path, overwrite=overwrite)
    if tag is not None:
        check_one_word("tag", check_text("tag", tag))
    check_choice("precision", precision, SCORE_PRECISIONS)
    check_choice("backend", backend, BACKENDS)
    if tokens_per_batch is not None:
        check_integer("tokens_per_batch", tokens_per_batch, 1)
    pools = as_pools(pools, answers)
    settings = {"device": where.device, "precision": precision, "tokens_per_batch": tokens_per_batch}
    system = _system(model, words, backend, is_local=not where.on_cluster, **settings)
    with pools.on_disk() as files, where.connected() as connected:
        return score_files(
            files.units,
            system,
            path,
            connected.executor(),
            tag=tag,
            answers=files.answers,
            overwrite=overwrite,
        )


def _system(model: object, words: str | None, backend: Backend, *, is_local: bool, **settings: Any) -> System:
    """Return the system that a user means by ``model``; the other arguments are those of `score`."""
    if words is not None and model != "bm25":
        raise UsageError("words: requires the model bm25")
    if isinstance(model, str) and model in BASELINES:
        _log_ignored(model, settings)
        return baseline(model, words=check_words("unicode" if words is None else words))
    if isinstance(model, System):
        _log_ignored(type(model).__name__, settings)
        return model
    with requiring_torch("a model"):
        from aptool.scoring.model_system import model_system

    if not _is_model(model):
        folder = check_path("model", model, "a model folder (str or os.PathLike) or a Model")
        return model_system(folder, backend=backend, **settings)
    if is_local and backend == "torch":
        return model.system(settings["tokens_per_batch"])
    return model_system(str(model.folder), backend=backend, **settings)


def bm25_run(pools: AnyPools, *, words: str = "unicode") -> Run:
    """Score pools with BM25 (Lucene's variant, k1 = 1.2, b = 0.75), as a run with the tag ``bm25``.

    Document frequencies are counted over the distinct answers of the pools. ``aptool.score(pools, "bm25",
    "bm25.run")`` writes the same run to a file.

    Args:
        pools: the pools to score, as for `score`.
        words: ``unicode``: lower-cased runs of letters, digits and underscores, with combining marks.
            ``bigrams``: the same, but overlapping bigrams for Chinese, Japanese, Korean, Thai, Lao, Khmer and
            Burmese.

    Example:
        >>> pool = "who wrote it?", {"a": "Nobody knows.", "b": "She wrote it."}
        >>> aptool.bm25_run(aptool.Pools({"q1": pool})).to_polars()["answer_id"].to_list()
        ['b', 'a']
        >>> pool = "東京タワーの高さは?", {"a": "東京の人口", "b": "東京タワーは三百三十三メートル"}
        >>> run = aptool.bm25_run(aptool.Pools({"q1": pool}), words="bigrams")
        >>> run.to_polars()["answer_id"].to_list()
        ['b', 'a']
    """
    system = Bm25(check_words(words))
    with as_pools(pools).on_disk() as files:
        return run_of_scores(*score_in_memory(files.units, system, answers=files.answers))


def check_words(words: str) -> str:
    """Return the name of a function that splits texts into words."""
    return check_choice("words", words, list(SPLITTERS))


def _is_model(value: object) -> "TypeIs[Model]":
    """Whether a value is a ``Model``; does not import that class."""
    module = sys.modules.get("aptool.scoring.model")
    return module is not None and isinstance(value, module.Model)


def _log_ignored(name: str, settings: dict[str, Any]) -> None:
    """Log the settings of models that a system without a model ignores."""
    is_default = {name: value in (None, "auto") for name, value in settings.items()}
    is_default["device"] |= settings["device"] == "cpu"
    ignored = [name for name in settings if not is_default[name]]
    if ignored:
        logger.info(f"{name} needs no model: {', '.join(ignored)} ignored")
    if name in BASELINES and Path(name).exists():
        logger.info(f"{name}: the untrained system; for the model folder write ./{name}")
