"""Callbacks per training epoch, and experiment trackers: TensorBoard, MLflow and Weights & Biases.

The environment variables of a tracker select its server: ``MLFLOW_TRACKING_URI``, ``WANDB_MODE=online``.
"""

import json
import logging
import os
import re
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypeAlias, get_args

from typing_extensions import override

from aptool.config import Recipe
from aptool.errors import AptoolError, first_line
from aptool.progress import Progress, Update, get_progress, use_progress
from aptool.version import install_command

logger = logging.getLogger(__name__)

Log: TypeAlias = Literal["tensorboard", "mlflow", "wandb"]
LOGS: tuple[Log, ...] = get_args(Log)
FOLDER = Path("logs")
PROJECT = "aptool"


class Epoch(NamedTuple):
    """The end of an epoch, for callbacks."""

    number: int  # from 1
    loss: float  # mean over pairs
    dev: dict[str, float]  # measures on the dev split, by name
    figures: dict[str, float]  # every number of the history's entry: ``loss``, ``dev/MAP``, ``seconds/train``


OnEpoch: TypeAlias = Callable[[Epoch], None]


@contextmanager
def reporting_epochs(
    on_epoch: OnEpoch | None, log: Log | None, name: str, recipe: Recipe, seed: int
) -> Iterator[Callable[[dict[str, Any]], None]]:
    """Call a callback per epoch, and record epochs with a tracker, while the block trains.

    Training reports its epochs to the current progress. The block gets a function that reports an entry of
    the history, for epochs before an interruption; each epoch is reported once. An exception of the callback
    ends the training. The record has the ``name`` of the model folder, and the recipe and the seed as
    parameters.
    """
    with ExitStack() as stack:
        callbacks = [] if on_epoch is None else [on_epoch]
        if log is not None:
            callbacks.append(stack.enter_context(_tracked(log, name, recipe, seed)))
        epochs = _EpochProgress(get_progress(), callbacks)
        with use_progress(epochs):
            yield epochs.report


class _EpochProgress(Progress):
    """Calls the callbacks once per epoch, and forwards all progress."""

    def __init__(self, forward: Progress, callbacks: list[OnEpoch]) -> None:
        self._forward = forward
        self._callbacks = callbacks
        self._reported: set[int] = set()

    @override
    def task(self, name: str) -> AbstractContextManager[Update]:
        return self._forward.task(name)

    @override
    def epoch(self, entry: dict[str, Any]) -> None:
        self._forward.epoch(entry)
        self.report(entry)

    def report(self, entry: Mapping[str, Any]) -> None:
        """Call the callbacks, unless the epoch was already reported."""
        number = int(entry["epoch"])
        if number not in self._reported:
            self._reported.add(number)
            epoch = Epoch(number, float(entry["loss"]), dict(entry["dev"]), epoch_metrics(entry))
            for callback in self._callbacks:
                callback(epoch)


def epoch_metrics(entry: Mapping[str, Any]) -> dict[str, float]:
    """Return the numbers in an entry of the training history by name: ``loss``, ``dev/MAP``."""
    return {name: float(value) for name, value in _flat(entry, "/").items() if name != "epoch"}


@contextmanager
def _tracked(log: Log, name: str, recipe: Recipe, seed: int) -> Iterator[OnEpoch]:
    """Yield a callback that records epochs with a tracker; training continues if recording fails."""
    parameters = {**_flat(recipe.to_dict(), "."), "seed": seed}
    try:
        tracker = _TRACKERS[log](_plain_name(name), parameters)
    except ImportError as error:
        raise AptoolError(f"--log {log} needs {error.name}: {install_command(log)}") from error
    except Exception as error:  # each tool has its own exceptions
        raise AptoolError(f"--log {log}: {first_line(error)}") from error
    recording = True

    def attempt(step: Callable[[Any], None], value: Any) -> None:
        nonlocal recording
        if recording:
            try:
                step(value)
            except Exception as error:
                logger.warning(f"--log {log}: {first_line(error)}; nothing more is recorded")
                recording = False

    try:
        yield lambda epoch: attempt(tracker.record, epoch)
    except BaseException:
        attempt(tracker.close, True)
        raise
    attempt(tracker.close, False)
    logger.info(f"--log {log}: {tracker.hint}")


# ``hint`` is the command that shows the record. Trackers accept epochs in any order.


class _TensorBoard:
    def __init__(self, name: str, parameters: Mapping[str, Any]) -> None:
        import tensorboard  # noqa: F401 - the error of torch does not name it
        from torch.utils.tensorboard import SummaryWriter

        folder = FOLDER / "tensorboard"
        self.hint = f"tensorboard --logdir {folder}"
        self._writer = SummaryWriter(str(folder / name / time.strftime("%Y%m%d-%H%M%S")))
        self._writer.add_text("parameters", f"```json\n{json.dumps(parameters, indent=2)}\n```")

    def record(self, epoch: Epoch) -> None:
        for metric, value in epoch.figures.items():
            self._writer.add_scalar(metric, value, epoch.number, new_style=True, double_precision=True)
        self._writer.flush()

    def close(self, failed: bool) -> None:
        self._writer.close()


class _MLflow:
    def __init__(self, name: str, parameters: Mapping[str, Any]) -> None:
        from mlflow import MlflowClient
        from mlflow.entities import Param

        address, artifacts = os.environ.get("MLFLOW_TRACKING_URI"), None
        if address is None:
            FOLDER.mkdir(exist_ok=True)
            address = f"sqlite:///{(FOLDER / 'mlflow.db').resolve()}"
            artifacts = (FOLDER / "mlartifacts").resolve().as_uri()
        self.hint = f"mlflow ui --backend-store-uri {address}"
        self._client = MlflowClient(address)
        title = os.environ.get("MLFLOW_EXPERIMENT_NAME", PROJECT)
        existing = self._client.get_experiment_by_name(title)
        experiment = existing.experiment_id if existing else self._client.create_experiment(title, artifacts)
        self._run = self._client.create_run(experiment, run_name=name).info.run_id
        params = [Param(key, str(value)) for key, value in parameters.items()]
        self._client.log_batch(self._run, params=params)

    def record(self, epoch: Epoch) -> None:
        from mlflow.entities import Metric

        now = round(1000 * time.time())
        # MLflow allows neither @ nor parentheses in names.
        metrics = {re.sub(r"[^\w\-. /]", "_", key): value for key, value in epoch.figures.items()}
        self._client.log_batch(
            self._run, [Metric(key, value, now, epoch.number) for key, value in metrics.items()]
        )

    def close(self, failed: bool) -> None:
        self._client.set_terminated(self._run, "FAILED" if failed else "FINISHED")


class _WandB:
    def __init__(self, name: str, parameters: Mapping[str, Any]) -> None:
        import wandb

        FOLDER.mkdir(exist_ok=True)
        self._run = wandb.init(
            project=os.environ.get("WANDB_PROJECT", PROJECT),
            name=name,
            dir=str(FOLDER.resolve()),  # its service has another current folder
            mode=os.environ.get("WANDB_MODE", "offline"),
            config=dict(parameters),
            settings=wandb.Settings(console="off", silent=True),
        )
        # W&B's steps only increase, but epochs before an interruption are reported last.
        self._run.define_metric("*", step_metric="epoch")
        self.hint = self._run.url or f"wandb sync {Path(self._run.dir).parent}"

    def record(self, epoch: Epoch) -> None:
        self._run.log({**epoch.figures, "epoch": epoch.number})

    def close(self, failed: bool) -> None:
        self._run.finish(exit_code=int(failed))


_TRACKERS: dict[Log, Any] = {"tensorboard": _TensorBoard, "mlflow": _MLflow, "wandb": _WandB}


def _flat(entries: Mapping[str, Any], separator: str) -> dict[str, Any]:
    """Flatten nested entries, joining their keys."""
    flat: dict[str, Any] = {}
    for key, value in entries.items():
        if isinstance(value, Mapping):
            flat |= {f"{key}{separator}{name}": item for name, item in _flat(value, separator).items()}
        else:
            flat[key] = value
    return flat


def _plain_name(name: str) -> str:
    """Convert a path or URL to a relative path."""
    parts = [part for part in re.split(r"[/\\:]+", name) if part not in ("", ".", "..")]
    return "/".join(parts) or "model"
