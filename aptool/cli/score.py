"""``aptool score``: score pools with a model into a TREC run file."""

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
    kind_option,
    tokens_per_batch_option,
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
        from aptool.scoring.baselines import BASELINES

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
    help="Model folder or Hugging Face name (hf://ORG/NAME); bm25 or random for an untrained baseline.  "
    "[default: models/ap-cnn]",
)
@kind_option
@click.option(
    "--output",
    type=click.Path(),  # it keeps a slash at its end
    help="TREC run file; gzip if the name ends in .gz.  [default: POOLS with .run]",
)
@click.option("--tag", type=UTF8, help="Run tag, one word.  [default: preset of the model, bm25 or random]")
@click.option(
    "--encoded", type=LOCATION, help="Answer store that `aptool encode` wrote.  [default: encode the answers]"
)
@click.option("--fill", is_flag=True, help="Encode answers that are missing from --encoded and add them.")
@click.option(
    "--answers",
    type=LOCATION,
    help="Texts of shared answers.  [default: answers.parquet in the folder of POOLS]",
)
@device_option
@click.option(
    "--precision",
    type=click.Choice(["auto", "fp32", "tf32", "bf16"]),
    default="auto",
    show_default=True,
    help="Precision of encoding; auto: bf16 on a GPU if it ranks a sample as fp32 does, else fp32.",
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

    BM25 counts document frequencies over the distinct answers of all POOLS. A model folder named bm25 is
    ./bm25.

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
