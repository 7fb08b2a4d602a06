"""Epochs recorded for TensorBoard, MLflow or Weights & Biases, in local files unless told otherwise.

What is recorded is the training log: each epoch's entry of the history, under ``loss``, ``dev/MAP``,
``seconds/train`` and so on, with its number as the step. Each tool's own environment variables direct it to a
server: ``MLFLOW_TRACKING_URI``, ``WANDB_MODE=online``.
"""

import json
import logging
import os
import re
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeAlias, get_args

from aptool.config import Recipe
from aptool.errors import AptoolError, first_line
from aptool.progress import Progress, Update, get_progress, use_progress
from aptool.version import install_command

if TYPE_CHECKING:
    from aptool.training.fit import Fit

logger = logging.getLogger(__name__)

Log: TypeAlias = Literal["tensorboard", "mlflow", "wandb"]
LOGS: tuple[Log, ...] = get_args(Log)
FOLDER = Path("logs")
PROJECT = "aptool"


class Recorder(Protocol):
    """Where epochs are recorded.

    Attributes:
        place: what messages call it.
    """

    place: str

    def record(self, epoch: int, figures: Mapping[str, float]) -> None:
        """Records the figures of an epoch; epochs may come in any order."""

    def close(self, *, failed: bool) -> None:
        """Ends the record."""


def fit_recorded(train: "Callable[[], Fit]", log: Log, name: str, recipe: Recipe, seed: int) -> "Fit":
    """Trains, and records every epoch, those before an interruption last.

    Args:
        train: reports its epochs to the current progress.
        log: the tool.
        name: of the record: the path of the model folder.
        recipe: recorded as parameters.
        seed: recorded with them.

    Raises:
        AptoolError: the tool is not installed, or cannot record there; or as ``train``.
    """
    with recorded(log, name, recipe, seed) as epochs:
        fit = train()
        epochs.complete(fit)
    return fit


@contextmanager
def recorded(log: Log, name: str, recipe: Recipe, seed: int) -> "Iterator[EpochLog]":
    """Records the epochs that are reported while the block runs.

    Args:
        log: the tool.
        name: of the record, such as the path of the model folder.
        recipe: recorded as parameters.
        seed: recorded with them.

    Yields:
        What `EpochLog.complete` has to be called on with the result, so that epochs before an interruption
        are recorded too.

    Raises:
        AptoolError: the tool is not installed, or cannot record there.
    """
    parameters = {**_flat(recipe.to_dict()), "seed": seed}
    try:
        recorder = _RECORDERS[log](_plain_name(name), parameters)
    except ImportError as error:
        raise AptoolError(f"--log {log} needs {error.name}: {install_command(log)}") from error
    except Exception as error:  # each of them has ways of its own to fail
        raise AptoolError(f"--log {log}: {first_line(error)}") from error
    epochs = EpochLog(log, recorder, get_progress())
    try:
        with use_progress(epochs):
            yield epochs
    except BaseException:
        epochs.close(failed=True)
        raise
    epochs.close(failed=False)
    logger.info(f"--log {log}: {recorder.place}")


class EpochLog(Progress):
    """Shows progress as before, and records every epoch once.

    A tool that fails while training goes on is left: it says so once.
    """

    def __init__(self, log: str, recorder: Recorder, shown: Progress) -> None:
        self._log = log
        self._recorder: Recorder | None = recorder
        self._shown = shown
        self._recorded: set[int] = set()

    def task(self, name: str) -> AbstractContextManager[Update]:
        """See ``Progress.task``."""
        return self._shown.task(name)

    def epoch(self, entry: dict[str, Any]) -> None:
        """See ``Progress.epoch``."""
        self._record(entry)
        self._shown.epoch(entry)

    def complete(self, fit: "Fit") -> None:
        """Records the epochs of a result that were trained before."""
        for entry in fit.history:
            self._record(entry)

    def close(self, *, failed: bool) -> None:
        """Ends the record."""
        if self._recorder is not None:
            with self._forgiving():
                self._recorder.close(failed=failed)

    def _record(self, entry: Mapping[str, Any]) -> None:
        epoch = int(entry["epoch"])
        if self._recorder is None or epoch in self._recorded:
            return
        self._recorded.add(epoch)
        with self._forgiving():
            self._recorder.record(epoch, figures_of(entry))

    @contextmanager
    def _forgiving(self) -> Iterator[None]:
        try:
            yield
        except Exception as error:  # a server that is away is no reason to lose a training
            logger.warning(f"--log {self._log}: {first_line(error)}; nothing more is recorded")
            self._recorder = None


def figures_of(entry: Mapping[str, Any]) -> dict[str, float]:
    """An entry of a training history under the names that are recorded: ``loss``, ``dev/MAP``."""
    return {name: float(value) for name, value in _flat(entry, "/").items() if name != "epoch"}


class _TensorBoard:
    def __init__(self, name: str, parameters: Mapping[str, Any]) -> None:
        import tensorboard  # noqa: F401 - torch's own error does not name it
        from torch.utils.tensorboard import SummaryWriter

        folder = FOLDER / "tensorboard" / name / time.strftime("%Y%m%d-%H%M%S")
        self.place = f"tensorboard --logdir {FOLDER / 'tensorboard'}"
        self._writer = SummaryWriter(str(folder))
        self._writer.add_text("parameters", f"```json\n{json.dumps(parameters, indent=2)}\n```")

    def record(self, epoch: int, figures: Mapping[str, float]) -> None:
        for name, value in figures.items():
            self._writer.add_scalar(name, value, epoch, new_style=True, double_precision=True)
        self._writer.flush()

    def close(self, *, failed: bool) -> None:
        self._writer.close()


class _MLflow:
    def __init__(self, name: str, parameters: Mapping[str, Any]) -> None:
        from mlflow import MlflowClient
        from mlflow.entities import Param

        place = os.environ.get("MLFLOW_TRACKING_URI")
        where = {}
        if place is None:
            FOLDER.mkdir(exist_ok=True)
            place = f"sqlite:///{(FOLDER / 'mlflow.db').resolve()}"
            where = {"artifact_location": (FOLDER / "mlartifacts").resolve().as_uri()}
        self.place = f"mlflow ui --backend-store-uri {place}"
        self._client = MlflowClient(place)
        title = os.environ.get("MLFLOW_EXPERIMENT_NAME", PROJECT)
        known = self._client.get_experiment_by_name(title)
        experiment = known.experiment_id if known else self._client.create_experiment(title, **where)
        self._run = self._client.create_run(experiment, run_name=name).info.run_id
        self._client.log_batch(self._run, params=[Param(key, str(one)) for key, one in parameters.items()])

    def record(self, epoch: int, figures: Mapping[str, float]) -> None:
        from mlflow.entities import Metric

        now = round(1000 * time.time())
        # Of names of measures it allows neither @ nor parentheses.
        named = {re.sub(r"[^\w\-. /]", "_", name): value for name, value in figures.items()}
        self._client.log_batch(self._run, [Metric(name, one, now, epoch) for name, one in named.items()])

    def close(self, *, failed: bool) -> None:
        self._client.set_terminated(self._run, "FAILED" if failed else "FINISHED")


class _WandB:
    def __init__(self, name: str, parameters: Mapping[str, Any]) -> None:
        import wandb

        FOLDER.mkdir(exist_ok=True)
        self._run = wandb.init(
            project=os.environ.get("WANDB_PROJECT", PROJECT),
            name=name,
            dir=str(FOLDER.resolve()),  # its service has a current folder of its own
            mode=os.environ.get("WANDB_MODE", "offline"),
            config=dict(parameters),
            settings=wandb.Settings(console="off", silent=True),
        )
        # Its own steps only go up; epochs before an interruption come last.
        self._run.define_metric("*", step_metric="epoch")
        folder = Path(self._run.dir).parent
        self.place = self._run.url or f"wandb sync {folder}"

    def record(self, epoch: int, figures: Mapping[str, float]) -> None:
        self._run.log({**figures, "epoch": epoch})

    def close(self, *, failed: bool) -> None:
        self._run.finish(exit_code=int(failed))


_RECORDERS: dict[Log, Callable[[str, Mapping[str, Any]], Recorder]] = {
    "tensorboard": _TensorBoard,
    "mlflow": _MLflow,
    "wandb": _WandB,
}


def _flat(entries: Mapping[str, Any], separator: str = ".") -> dict[str, Any]:
    """Nested entries under the names of their places."""
    flat: dict[str, Any] = {}
    for key, value in entries.items():
        if isinstance(value, Mapping):
            flat |= {f"{key}{separator}{name}": one for name, one in _flat(value, separator).items()}
        else:
            flat[key] = value
    return flat


def _plain_name(name: str) -> str:
    """A path or URL as parts of a path below a folder."""
    parts = [part for part in re.split(r"[/\\:]+", name) if part not in ("", ".", "..")]
    return "/".join(parts) or "model"
