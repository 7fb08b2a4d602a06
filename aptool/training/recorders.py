"""A callback per epoch of training; TensorBoard, MLflow and Weights & Biases record through it.

Each tool's environment variables direct it to a server: ``MLFLOW_TRACKING_URI``, ``WANDB_MODE=online``.
"""

import json
import logging
import os
import re
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeAlias, get_args

from typing_extensions import override

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


class Epoch(NamedTuple):
    """The end of an epoch, for callbacks.

    Attributes:
        number: number of the epoch, from 1.
        loss: mean training loss.
        dev: measures on the dev split, by name.
        figures: all figures of the epoch's entry in the training history, by name: ``loss``, ``dev/MAP``,
            ``seconds/train``.
    """

    number: int
    loss: float
    dev: dict[str, float]
    figures: dict[str, float]


OnEpoch: TypeAlias = Callable[[Epoch], None]


class Tracker(NamedTuple):
    """An open record of a tool.

    Attributes:
        place: where the record is, for the user.
        record: adds an epoch; epochs may come in any order.
        close: ends the record, given whether training failed.
    """

    place: str
    record: OnEpoch
    close: Callable[[bool], None]


def fit_with_callbacks(
    train: "Callable[[], Fit]",
    on_epoch: OnEpoch | None,
    log: Log | None,
    name: str,
    recipe: Recipe,
    seed: int,
) -> "Fit":
    """Trains with a callback per epoch, and records epochs with a tool.

    Epochs before an interruption are reported after training: each epoch is reported once per call.

    Args:
        train: reports its epochs to the current progress.
        on_epoch: called after each epoch; an exception that it raises ends the training.
        log: the tool.
        name: name of the record: the path of the model folder.
        recipe: recorded as parameters.
        seed: recorded with the recipe.
    """
    with ExitStack() as stack:
        callbacks = [] if on_epoch is None else [on_epoch]
        if log is not None:
            callbacks.append(stack.enter_context(_tracked(log, name, recipe, seed)))
        epochs = _Epochs(get_progress(), callbacks)
        with use_progress(epochs):
            fit = train()
        for entry in fit.history:
            epochs.report(entry)
    return fit


class _Epochs(Progress):
    """Shows progress as before, and calls the callbacks once per epoch."""

    def __init__(self, shown: Progress, callbacks: list[OnEpoch]) -> None:
        self._shown = shown
        self._callbacks = callbacks
        self._reported: set[int] = set()

    @override
    def task(self, name: str) -> AbstractContextManager[Update]:
        return self._shown.task(name)

    @override
    def epoch(self, entry: dict[str, Any]) -> None:
        self._shown.epoch(entry)
        self.report(entry)

    def report(self, entry: Mapping[str, Any]) -> None:
        """Call the callbacks, unless the epoch was reported before."""
        number = int(entry["epoch"])
        if number not in self._reported:
            self._reported.add(number)
            for callback in self._callbacks:
                callback(Epoch(number, float(entry["loss"]), dict(entry["dev"]), figures_of(entry)))


def figures_of(entry: Mapping[str, Any]) -> dict[str, float]:
    """The numbers of an entry of a training history, by name: ``loss``, ``dev/MAP``."""
    return {name: float(value) for name, value in _flat(entry, "/").items() if name != "epoch"}


@contextmanager
def _tracked(log: Log, name: str, recipe: Recipe, seed: int) -> Iterator[OnEpoch]:
    """A callback that records with a tool; if recording fails, training continues without a record."""
    try:
        tracker = _TRACKERS[log](_plain_name(name), {**_flat(recipe.to_dict(), "."), "seed": seed})
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
            except Exception as error:  # a server that is away is no reason to lose a training
                logger.warning(f"--log {log}: {first_line(error)}; nothing more is recorded")
                recording = False

    try:
        yield lambda epoch: attempt(tracker.record, epoch)
    except BaseException:
        attempt(tracker.close, True)
        raise
    attempt(tracker.close, False)
    logger.info(f"--log {log}: {tracker.place}")


def _tensorboard(name: str, parameters: Mapping[str, Any]) -> Tracker:
    import tensorboard  # noqa: F401 - torch's own error does not name it
    from torch.utils.tensorboard import SummaryWriter

    folder = FOLDER / "tensorboard"
    writer = SummaryWriter(str(folder / name / time.strftime("%Y%m%d-%H%M%S")))
    writer.add_text("parameters", f"```json\n{json.dumps(parameters, indent=2)}\n```")

    def record(epoch: Epoch) -> None:
        for figure, value in epoch.figures.items():
            writer.add_scalar(figure, value, epoch.number, new_style=True, double_precision=True)
        writer.flush()

    return Tracker(f"tensorboard --logdir {folder}", record, lambda failed: writer.close())


def _mlflow(name: str, parameters: Mapping[str, Any]) -> Tracker:
    from mlflow import MlflowClient
    from mlflow.entities import Metric, Param

    address, artifacts = os.environ.get("MLFLOW_TRACKING_URI"), None
    if address is None:
        FOLDER.mkdir(exist_ok=True)
        address = f"sqlite:///{(FOLDER / 'mlflow.db').resolve()}"
        artifacts = (FOLDER / "mlartifacts").resolve().as_uri()
    client = MlflowClient(address)
    title = os.environ.get("MLFLOW_EXPERIMENT_NAME", PROJECT)
    known = client.get_experiment_by_name(title)
    experiment = known.experiment_id if known else client.create_experiment(title, artifacts)
    run = client.create_run(experiment, run_name=name).info.run_id
    client.log_batch(run, params=[Param(key, str(value)) for key, value in parameters.items()])

    def record(epoch: Epoch) -> None:
        now = round(1000 * time.time())
        # MLflow allows neither @ nor parentheses in names.
        named = {re.sub(r"[^\w\-. /]", "_", key): value for key, value in epoch.figures.items()}
        client.log_batch(run, [Metric(key, value, now, epoch.number) for key, value in named.items()])

    def close(failed: bool) -> None:
        client.set_terminated(run, "FAILED" if failed else "FINISHED")

    return Tracker(f"mlflow ui --backend-store-uri {address}", record, close)


def _wandb(name: str, parameters: Mapping[str, Any]) -> Tracker:
    import wandb

    FOLDER.mkdir(exist_ok=True)
    run = wandb.init(
        project=os.environ.get("WANDB_PROJECT", PROJECT),
        name=name,
        dir=str(FOLDER.resolve()),  # its service has a current folder of its own
        mode=os.environ.get("WANDB_MODE", "offline"),
        config=dict(parameters),
        settings=wandb.Settings(console="off", silent=True),
    )
    # W&B's steps only increase, but epochs before an interruption are reported last.
    run.define_metric("*", step_metric="epoch")
    return Tracker(
        run.url or f"wandb sync {Path(run.dir).parent}",
        lambda epoch: run.log({**epoch.figures, "epoch": epoch.number}),
        lambda failed: run.finish(exit_code=int(failed)),
    )


_TRACKERS: dict[Log, Callable[[str, Mapping[str, Any]], Tracker]] = {
    "tensorboard": _tensorboard,
    "mlflow": _mlflow,
    "wandb": _wandb,
}


def _flat(entries: Mapping[str, Any], separator: str) -> dict[str, Any]:
    """Nested entries by their joined keys."""
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
