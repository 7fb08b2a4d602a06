"""``aptool score`` and ``aptool encode``: score pools, and encode answers for repeated scoring."""

from typing import TYPE_CHECKING, Any

import click
import click.shell_completion
from typing_extensions import override

from aptool.cli.next_steps import default_model, default_run
from aptool.cli.parameters import (
    LOCATION,
    UTF8,
    SectionedCommand,
    cluster_options,
    device_option,
    false_token_option,
    kind_option,
    model_option,
    overwrite_option,
    tokens_per_batch_option,
    true_token_option,
)
from aptool.formats.ids import check_one_word

if TYPE_CHECKING:
    from aptool.formats.location import Location
    from aptool.library.where import Where


class SystemType(click.ParamType):  # type: ignore[type-arg]  # not generic in click 8.1
    """A model, or the name of an untrained baseline."""

    name = "model"

    @override
    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> "Location | str":
        from aptool.scoring.systems import BASELINES

        # A location loses the ./ that distinguishes the folder ./bm25 from the baseline.
        return value if value in BASELINES else LOCATION.convert(value, param, ctx)

    @override
    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[click.shell_completion.CompletionItem]:
        return LOCATION.shell_complete(ctx, param, incomplete)


@click.command("score", cls=SectionedCommand)
@click.argument("pools", nargs=-1, required=True)
@click.option(
    "--model",
    type=SystemType(),
    help="Model folder, Hugging Face name (hf://ORG/NAME), bm25 or random.  [default: models/ap-cnn]",
)
@kind_option
@true_token_option
@false_token_option
@click.option(
    "--output",
    type=click.Path(),  # it keeps a slash at its end
    help="TREC run file; gzip if the name ends in .gz.  [default: POOLS with .run]",
)
@overwrite_option("RUN")
@click.option("--tag", type=UTF8, help="Run tag, one word.  [default: preset of the model, or bm25, random]")
@click.option(
    "--encoded", type=LOCATION, help="Answer store of `aptool encode`.  [default: encode the answers]"
)
@click.option("--fill", is_flag=True, help="Encode answers that --encoded lacks, and add them to it.")
@click.option(
    "--answers",
    type=LOCATION,
    help="Texts of shared answers.  [default: answers.parquet next to POOLS]",
)
@device_option
@click.option(
    "--precision",
    metavar="TYPE",
    type=click.Choice(["auto", "fp32", "tf32", "bf16"]),
    default="auto",
    show_default=True,
    help="Precision: fp32, tf32, bf16, or auto: bf16 on a GPU if it ranks a sample as fp32 does, else fp32.",
)
@tokens_per_batch_option
@cluster_options
def score(
    pools: tuple[str, ...],
    model: "Location | str | None",
    output: str | None,
    tag: str | None,
    where: "Where",
    **options: Any,
) -> None:
    """Score POOLS (files, folders, globs, URLs) into a TREC run file.

    The models bm25 and random are untrained baselines; pass a model folder named bm25 as ./bm25. BM25 counts
    document frequencies over the distinct answers of all POOLS.

    Run the same command again after an interruption to resume.
    """
    if tag is not None:
        check_one_word("--tag", tag)
    model = model if model is not None else default_model()
    output = output if output is not None else str(default_run(pools))

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
    click.echo(f"{output}: {scored.pairs} pairs")


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
@click.option(
    "--answers",
    type=LOCATION,
    help="Texts of shared answers.  [default: answers.parquet next to the pools]",
)
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
    click.echo(
        f"{output}: {encoded.texts:,} answers, {encoded.encoded:,} encoded now, {encoded.size / 1e6:,.1f} MB"
    )
