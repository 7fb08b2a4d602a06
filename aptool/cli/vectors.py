"""``aptool vectors``: word vectors from a collection's own text, or from a sentence encoder."""

import time
from itertools import chain
from typing import TYPE_CHECKING

import click

from aptool.cli.parameters import LOCATION, HiddenArgument, Seed, device_option, one_output, whole_number
from aptool.errors import InputError
from aptool.options import WIDEST

if TYPE_CHECKING:
    from aptool.formats.location import Location

_output = click.option("--output", metavar="FILE", type=LOCATION, help="Word2vec binary file to write.")


@click.group()
def vectors() -> None:
    """Learn or distill word vectors."""


@vectors.command()
@click.argument("collection")
@click.argument("out", cls=HiddenArgument, required=False, type=LOCATION)
@_output
@click.option("--split", default="train", show_default=True, help="Split to learn from.")
@click.option(
    "--dim", type=click.IntRange(1, WIDEST), default=100, show_default=True, help="Vector dimension."
)
@click.option(
    "--window", type=click.IntRange(1, 32), default=5, show_default=True, help="Context window, in words."
)
@click.option("--epochs", type=whole_number(), default=5, show_default=True, help="Training epochs.")
@click.option(
    "--min-count",
    type=whole_number(),
    default=1,
    show_default=True,
    help="Minimum number of occurrences of a word.",
)
@click.option("--seed", type=Seed(), default=0, show_default=True, help="Random seed.")
def learn(
    collection: str,
    out: "Location | None",
    output: "Location | None",
    split: str,
    dim: int,
    window: int,
    epochs: int,
    min_count: int,
    seed: int,
) -> None:
    """Learn word vectors from the texts of COLLECTION with skip-gram."""
    from aptool.formats.atomic import check_apart, check_writable
    from aptool.formats.claim import claimed_beside
    from aptool.formats.collection import CollectionFiles

    out = one_output(output, out)

    opened = CollectionFiles(collection)
    opened.pools(split)
    check_writable(out)
    check_apart(out, opened.path.iterdir())

    from aptool.text.skipgram import learn_vectors
    from aptool.text.tokenizer import UNK, WordTokenizer
    from aptool.text.vectors import WordVectors, write_vectors
    from aptool.training.data import read_texts

    start = time.perf_counter()
    with claimed_beside(out):
        texts = read_texts(opened, split).all()
        tokenizer = WordTokenizer.learn(texts, min_count=min_count)
        tokens = tokenizer.encode(texts)
        counts = tokens.counts(len(tokenizer))
        first = UNK + 1  # the ids before are padding and the unknown word
        if len(tokenizer) == first:
            wanted = "a collection in which some word occurs as often"
            raise InputError(collection, problem=f"no word {min_count} times", expected=wanted)
        matrix = learn_vectors(
            tokens.ids,
            tokens.offsets,
            counts,
            dim=dim,
            window=window,
            epochs=epochs,
            seed=seed,
        )
        write_vectors(out, WordVectors(tokenizer.words[first:], matrix[first:], collection))
    seconds = time.perf_counter() - start
    click.echo(f"{out}: {len(tokenizer) - first:,} words from {len(tokens.ids):,} tokens in {seconds:.0f} s")


@vectors.command()
@click.argument("paths", cls=HiddenArgument, nargs=-1, type=LOCATION)
@_output
@click.option(
    "--model",
    required=True,
    metavar="NAME_OR_FOLDER",
    help="Sentence encoder: a folder or a Hugging Face name.",
)
@click.option(
    "--collection",
    "collections",
    required=True,
    multiple=True,
    type=LOCATION,
    metavar="FOLDER",
    help="Collection whose words get vectors; may be repeated.",
)
@click.option(
    "--dim", type=click.IntRange(1, WIDEST), default=300, show_default=True, help="Vector dimension."
)
@click.option(
    "--sif",
    type=click.FloatRange(min=0, min_open=True),
    default=1e-2,
    show_default=True,
    help="Weight of a word of relative frequency p: SIF / (SIF + p).",
)
@device_option
def distill(
    paths: "tuple[Location, ...]",
    output: "Location | None",
    model: str,
    collections: "tuple[Location, ...]",
    dim: int,
    sif: float,
    device: str,
) -> None:
    """Distill static vectors for all words of collections from a sentence encoder."""
    from aptool.formats.atomic import check_apart, check_writable
    from aptool.formats.claim import claimed_beside
    from aptool.formats.collection import CollectionFiles
    from aptool.text.tokenizer import check_installed

    # In `--collection A B OUT`, as earlier versions took it, B and OUT are arguments.
    more = [path for path in paths if path.is_dir()]
    others = [path for path in paths if not path.is_dir()]
    if len(others) > 1:
        raise click.UsageError(f"{others[0]}: expected the folder of a collection.")
    out = one_output(output, others[0] if others else None)
    opened = [CollectionFiles(path) for path in [*collections, *more]]
    check_writable(out)
    check_apart(out, chain.from_iterable(one.path.iterdir() for one in opened))
    check_installed("transformers", purpose=f"distilling from {model}", extra="distill")

    from aptool.models.device import pick_device
    from aptool.models.pretrained import open_network
    from aptool.text.distill import SentenceEncoder, distill_vectors
    from aptool.text.subwords import SubwordTokenizer
    from aptool.text.tokenizer import UNK, WordTokenizer
    from aptool.text.vectors import write_vectors
    from aptool.training.data import read_texts

    start = time.perf_counter()
    with claimed_beside(out):
        network = open_network(model)
        own = SubwordTokenizer(network.tokenizer.backend_tokenizer)
        texts = [
            text
            for collection in opened
            for split in collection.splits
            for text in read_texts(collection, split).all()
        ]
        tokenizer = WordTokenizer.learn(texts)
        tokens = tokenizer.encode(texts)
        first = UNK + 1
        found = distill_vectors(
            SentenceEncoder(model, own, network.network, network.max_tokens),
            tokenizer.words[first:],
            tokens.counts(len(tokenizer))[first:],
            dim=dim,
            sif=sif,
            device=pick_device(device),
        )
        write_vectors(out, found)
    seconds = time.perf_counter() - start
    click.echo(f"{out}: {len(found.words):,} words, dimension {found.matrix.shape[1]}, in {seconds:.0f} s")
