"""``aptool score`` and ``aptool encode``: score pools, and encode answers for repeated scoring."""

import json
import logging
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from typing_extensions import override

from aptool.cli.parameters import (
    LOCATION,
    UTF8,
    Bounded,
    Command,
    Count,
    LocationType,
    SectionedCommand,
    aggregate_option,
    cluster_options,
    default_model,
    device_option,
    false_token_option,
    kind_option,
    model_option,
    overwrite_flag,
    passages_option,
    tokens_per_batch_option,
    true_token_option,
    with_options,
)
from aptool.environment import ENGINE_PRECISIONS, ENGINES
from aptool.errors import InputError, UsageError, counted
from aptool.formats.ids import check_one_word

if TYPE_CHECKING:
    from aptool.formats.location import Location
    from aptool.library.where import Where
    from aptool.scoring.server import RerankServer

logger = logging.getLogger(__name__)


class SystemType(LocationType):
    """A model, the name of an untrained baseline, or the URL of a server."""

    name = "model"

    @override
    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> "Location | str":
        from aptool.scoring.systems import BASELINES, is_server_url

        # A location loses the ./ that distinguishes the folder ./bm25 from the baseline.
        return value if value in BASELINES or is_server_url(value) else super().convert(value, param, ctx)


def server_options(command: Command) -> Command:
    """Add the options of a server to a command; they replace a URL as ``model`` by a ``RerankServer``."""
    options = (
        click.option(
            "--server-model", metavar="NAME", type=UTF8, help="Model of the server (Cohere, Jina: required)."
        ),
        click.option(
            "--server-batch",
            metavar="N",
            type=Count(),
            help="Documents per request to the server.  [default: 32]",
        ),
        click.option(
            "--server-requests",
            metavar="N",
            type=Count(most=1024),
            help="Concurrent requests, per worker on a cluster.  [default: 8]",
        ),
        click.option(
            "--server-timeout",
            metavar="SECONDS",
            type=Bounded(click.FloatRange(min=0, min_open=True)),
            help="Seconds for the answer to a request.  [default: 60]",
        ),
        click.option(
            "--server-set",
            metavar="KEY=VALUE",
            type=UTF8,
            multiple=True,
            help="Another field of the requests, as JSON or text, such as truncate_prompt_tokens=-1.",
        ),
    )

    @wraps(command)
    def with_server(*, model: "Location | str | None", **arguments: Any) -> None:
        from aptool.scoring.systems import is_server_url

        names = ("model", "batch", "requests", "timeout")
        values = {name: arguments.pop(f"server_{name}") for name in names}
        values["fields"] = dict(map(_field, arguments.pop("server_set")))
        given = {name: value for name, value in values.items() if value is not None and value != {}}
        if is_server_url(model):
            from aptool.scoring.server import RerankServer

            command(model=RerankServer(str(model), **given), **arguments)
            return
        if given:
            option = "set" if "fields" in given else next(iter(given))
            raise UsageError(f"--server-{option}: requires the URL of a server as --model")
        command(model=model, **arguments)

    return with_options(*options)(with_server)


def _field(text: str) -> tuple[str, Any]:
    """The name and the value of a field: JSON, or else text."""
    name, equals, value = text.partition("=")
    if not (name and equals):
        raise UsageError(f"--server-set {text!r}: expected KEY=VALUE, such as truncate_prompt_tokens=-1")
    try:
        return name, json.loads(value)
    except ValueError:
        return name, value


_answers_option = click.option(
    "--answers",
    type=LOCATION,
    help="Texts of shared answers.  [default: answers.parquet next to the pools]",
)


def _check_inputs(files: tuple[str, ...], suffix: str, model: object) -> None:
    """Raise, before large libraries are imported, if the first file or the model does not exist."""
    from aptool.formats.inputs import expand, stat
    from aptool.models.hub import find_folder

    stat(expand(files, suffix)[0])
    if isinstance(model, Path):  # no baseline or server
        find_folder(model)


@click.command("score", cls=SectionedCommand)
@click.argument("pools", nargs=-1, required=True)
@click.option(
    "--model",
    type=SystemType(),
    help="Model folder, Hugging Face name (hf://ORG/NAME), bm25, random, or URL of a server with the rerank "
    "API, such as http://HOST:PORT/rerank.  [default: models/ap-cnn]",
)
@kind_option
@click.option(
    "--engine",
    metavar="NAME",
    type=click.Choice(ENGINES),
    default="aptool",
    help="Library that loads and scores a checkpoint: aptool, sentence-transformers for settings that aptool "
    "refuses, or openvino: sentence-transformers with OpenVINO, on a CPU.",
)
@true_token_option
@false_token_option
@click.option(
    "--words",
    metavar="NAME",
    type=UTF8,
    help="Words of bm25: unicode, bigrams (for Chinese, Thai, ...) or MODULE:FUNCTION.  [default: unicode]",
)
@click.option(
    "--output",
    type=click.Path(),  # it keeps a slash at its end
    help="TREC run file (.gz: gzip), table (.parquet) or folder of shards (ends in /).  "
    "[default: POOLS with .run]",
)
@overwrite_flag
@click.option(
    "--bad-rows",
    type=LOCATION,
    metavar="FILE",
    help="File for pools that cannot be read or scored; the run has the other pools.  [default: an error]",
)
@click.option("--tag", type=UTF8, help="Run tag, one word.  [default: preset or name of the model]")
@click.option(
    "--encoded", type=LOCATION, help="Answer store of `aptool encode`.  [default: encode the answers]"
)
@passages_option
@aggregate_option
@_answers_option
@device_option
@click.option(
    "--precision",
    metavar="TYPE",
    type=click.Choice(ENGINE_PRECISIONS),
    default="auto",
    help="Precision: fp32, tf32, bf16, int8 (with --engine openvino), or auto: bf16 on a GPU if it ranks a "
    "sample as fp32 does, else fp32.",
)
@tokens_per_batch_option
@server_options
@cluster_options
def score(
    pools: tuple[str, ...],
    model: "Location | RerankServer | str | None",
    output: str | None,
    tag: str | None,
    where: "Where",
    **options: Any,
) -> None:
    """Score POOLS (files, folders, globs, URLs) into a TREC run file.

    The models bm25 and random are untrained baselines; pass a model folder named bm25 as ./bm25. BM25 counts
    document frequencies over the distinct answers of all POOLS. The key of a server is read from
    APTOOL_API_KEY.

    --passages scores long candidates by their passages. A Chinese or Japanese character counts as a word.

    Run the same command again after an interruption to resume.
    """
    if tag is not None:
        check_one_word("--tag", tag)
    if options["overwrite"] and output is None:
        raise UsageError("--overwrite: requires --output")
    model = model if model is not None else default_model()
    output = output if output is not None else _default_run(pools)
    _check_inputs(pools, ".pools.parquet", model)

    from aptool.library.scoring import score as score_pools

    with where.connected() as connection:
        scored = score_pools(
            pools,
            model,
            output,
            connection.executor(),
            tag=tag,
            device=where.device,
            **options,
        )
    bad = options["bad_rows"]
    set_aside = f", {counted(scored.bad_rows, 'bad row')} in {bad}" if bad is not None else ""
    click.echo(f"{output}: {scored.pairs} pairs{set_aside}")


def _default_run(pools: tuple[str, ...]) -> str:
    """Return the run file in the folder of a single local pools file."""
    from aptool.formats.location import is_glob, is_remote, with_home

    path = with_home(pools[0])
    if len(pools) == 1 and not (is_remote(path) or is_glob(path) or Path(path).exists()):
        raise InputError(path, problem="file not found", expected="a pools file")
    if len(pools) != 1 or is_remote(path) or not Path(path).is_file():
        raise UsageError("--output RUN is required unless POOLS is one local file")
    run = f"{path.removesuffix('.parquet').removesuffix('.pools')}.run"
    logger.info(f"--output not given: {run}")
    return run


@click.command("encode", cls=SectionedCommand)
@click.argument("texts", nargs=-1, required=True, metavar="ANSWERS...")
@model_option
@kind_option
@click.option(
    "--output",
    type=LOCATION,
    required=True,
    help="Answer store (folder); an existing store is extended.",
)
@_answers_option
@passages_option
@device_option
@click.option(
    "--precision",
    metavar="TYPE",
    type=click.Choice(["fp32", "fp16", "int8"]),
    help="Stored vectors: fp32 (changes no score), fp16 or int8.  [default: as in the store, else fp32]",
)
@tokens_per_batch_option
@cluster_options
def encode(
    texts: tuple[str, ...],
    folder: "Location | None",
    output: "Location",
    where: "Where",
    **options: Any,
) -> None:
    """Encode ANSWERS once, for `aptool score --encoded`.

    ANSWERS are answers files or pools: files, folders, globs or URLs. Stored answers are skipped: run the
    same command again after an interruption, or with more answers.
    """
    folder = folder if folder is not None else default_model()
    _check_inputs(texts, ".parquet", folder)

    from aptool.library.scoring import encode as encode_answers

    with where.connected() as connection:
        encoded = encode_answers(
            texts,
            folder,
            output,
            connection.encoder(),
            device=where.device,
            **options,
        )
    new = f"{encoded.encoded:,}{' passages' if options['passages'] is not None else ''}"
    click.echo(f"{output}: {encoded.texts:,} answers, {new} encoded now, {encoded.size / 1e6:,.1f} MB")
