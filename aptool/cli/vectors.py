"""``aptool vectors``: word vectors from a sentence encoder."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from aptool.cli.parameters import LOCATION, Count, device_option, overwrite_flag
from aptool.config import WIDEST

if TYPE_CHECKING:
    from aptool.paths import Location


@click.group()
def vectors() -> None:
    """Distill word vectors."""


@vectors.command()
@click.option(
    "--output",
    metavar="FILE",
    type=LOCATION,
    required=True,
    help="File to write, in word2vec's binary format.",
)
@overwrite_flag
@click.option(
    "--model",
    required=True,
    metavar="MODEL",
    help="Sentence encoder: a folder or a Hugging Face name.",
)
@click.option(
    "--collection",
    "collections",
    required=True,
    multiple=True,
    type=LOCATION,
    metavar="FOLDER",
    help="Collection whose words get vectors; repeatable.",
)
@click.option("--dim", type=Count(1, WIDEST), metavar="N", default=300, help="Vector dimension.")
@device_option
def distill(
    output: Location,
    overwrite: bool,
    model: str,
    collections: tuple[Location, ...],
    dim: int,
    device: str,
) -> None:
    """Distill a sentence encoder into static vectors of the words of collections."""
    from aptool.data.collection import Collection
    from aptool.environment import check_installed
    from aptool.outputs import check_apart, check_output
    from aptool.text.tokenizer import UNK, WordTokenizer

    check_output(output, overwrite=overwrite)
    files = [Collection(path) for path in collections]
    check_apart(output, (collection.path for collection in files))
    check_installed("transformers", purpose=f"distilling from {model}", extra="transformers")

    from aptool.models.device import pick_device
    from aptool.models.distill import distill_vectors
    from aptool.models.pretrained import open_network
    from aptool.text.vectors import write_vectors
    from aptool.training.data import read_texts

    network = open_network(model)
    texts = [
        text
        for collection in files
        for split in collection.splits
        for text in read_texts(collection, split).all()
    ]
    tokenizer = WordTokenizer.learn(texts)
    distilled = distill_vectors(
        network,
        tokenizer.words[UNK + 1 :],
        tokenizer.encode(texts).counts(len(tokenizer))[UNK + 1 :],
        dim=dim,
        device=pick_device(device),
    )
    write_vectors(output, distilled)
    words, dim = distilled.matrix.shape
    click.echo(f"{output}: {words:,} words, dimension {dim}")
