"""``aptool score``: scores pools with a model into a TREC run file."""

from typing import TYPE_CHECKING, Any, Literal

import click
import click.shell_completion

from aptool.cli.next_steps import default_model, default_run
from aptool.cli.parameters import (
    LOCATION,
    UTF8,
    cluster_options,
    device_option,
    kind_option,
    tokens_per_batch_option,
)
from aptool.formats.ids import check_one_word

if TYPE_CHECKING:
    from aptool.formats.location import Location
    from aptool.library.where import Where


class SystemType(click.ParamType):  # type: ignore[type-arg]  # not generic in click 8.1
    """A model, or the name of an untrained system."""

    name = "model"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> "Location | str":
        """Returns the name of an untrained system unchanged, any other value as a location.

        A location loses the ``./`` with which a user names a folder of such a name.
        """
        from aptool.scoring.baselines import BASELINES

        return value if value in BASELINES else LOCATION.convert(value, param, ctx)

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[click.shell_completion.CompletionItem]:
        """Lets the shell complete names of files."""
        return LOCATION.shell_complete(ctx, param, incomplete)


@click.command("score")
@click.argument("pools", nargs=-1, required=True)
@click.option(
    "--model",
    type=SystemType(),
    help="Model folder, of aptool or another library, or a name on the hub; bm25 or random (seed 0) for an "
    "untrained system. A folder of that name is ./bm25.  [default: models/ap-cnn]",
)
@kind_option
@click.option(
    "--output",
    type=click.Path(),  # it keeps a slash at its end
    help="Run file; gzip if it ends in .gz.  [default: POOLS with .run]",
)
@click.option(
    "--answers",
    type=LOCATION,
    help="File with the texts of shared answers.  [default: answers.parquet beside POOLS]",
)
@click.option("--tag", type=UTF8, help="Run tag, one word.  [default: the model's preset, bm25 or random]")
@device_option
@click.option(
    "--precision",
    type=click.Choice(["auto", "fp32", "tf32", "bf16"]),
    default="auto",
    show_default=True,
    help="Precision of encoding; auto is bf16 on a GPU where it changes no ranking of a sample, else fp32. "
    "tf32 has a GPU compute products of fp32 in TF32.",
)
@tokens_per_batch_option
@click.option(
    "--encoded",
    type=LOCATION,
    help="Store of answers that `aptool encode` encoded: they are read there.  [default: encode them]",
)
@click.option("--fill", is_flag=True, help="Encode answers that the store lacks, and add them to it.")
@cluster_options
def score(
    pools: tuple[str, ...],
    model: "Location | str | None",
    kind: str,
    output: str | None,
    answers: "Location | None",
    tag: str | None,
    precision: Literal["auto", "fp32", "tf32", "bf16"],
    tokens_per_batch: int | None,
    encoded: "Location | None",
    fill: bool,
    where: "Where",
) -> None:
    """Score POOLS (files, folders, globs, URLs) into a TREC run file.

    With --model bm25, document frequencies are counted over the distinct answers of all POOLS.

    Run the same command again after an interruption to resume.
    """
    if tag is not None:
        check_one_word("--tag", tag)
    model = model if model is not None else default_model()
    output = output if output is not None else str(default_run(pools))

    from aptool.library.scoring import score as score_pools

    with where.connected() as place:
        done = score_pools(
            pools,
            model,
            output,
            place.executor(),
            answers=answers,
            tag=tag,
            device=where.device,
            precision=precision,
            tokens_per_batch=tokens_per_batch,
            kind=kind,
            encoded=encoded,
            fill=fill,
        )
    click.echo(f"{output}: {done.pairs} pairs")
