"""``aptool vectors``: word vectors from the texts of a collection, or from a sentence encoder."""

import time
from itertools import chain
from typing import TYPE_CHECKING

import click

from aptool.cli.parameters import LOCATION, Count, HiddenArgument, device_option, one_output, seed_option
from aptool.errors import InputError
from aptool.options import WIDEST

if TYPE_CHECKING:
    from aptool.formats.location import Location

_output = click.option(
    "--output", metavar="FILE", type=LOCATION, help="Word vectors to write, in word2vec's binary format."
)


@click.group()
def vectors() -> None:
    """Learn or distill word vectors."""


@vectors.command()
@click.argument("collection")
@click.argument("out", cls=HiddenArgument, required=False, type=LOCATION)
@_output
@click.option("--split", metavar="SPLIT", default="train", show_default=True, help="Split to learn from.")
@click.option(
    "--dim", type=Count(1, WIDEST), metavar="N", default=100, show_default=True, help="Vector dimension."
)
@click.option(
    "--window", type=Count(1, 32), metavar="N", default=5, show_default=True, help="Context window, in words."
)
@click.option("--epochs", type=Count(), metavar="N", default=5, show_default=True, help="Training epochs.")
@click.option(
    "--min-count",
    type=Count(),
    metavar="N",
    default=1,
    show_default=True,
    help="Minimum frequency of a word.",
)
@seed_option
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
    """Train word vectors (skip-gram) on the texts of COLLECTION."""
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
    from aptool.training.texts import read_texts

    start = time.perf_counter()
    with claimed_beside(out):
        texts = read_texts(opened, split).all()
        tokenizer = WordTokenizer.learn(texts, min_count=min_count)
        tokens = tokenizer.encode(texts)
        counts = tokens.counts(len(tokenizer))
        first = UNK + 1  # after padding and the unknown word
        if len(tokenizer) == first:
            expected = "a collection in which some word occurs as often"
            raise InputError(collection, problem=f"no word {min_count} times", expected=expected)
        matrix = learn_vectors(
            tokens.ids, tokens.offsets, counts, dim=dim, window=window, epochs=epochs, seed=seed
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
@click.option(
    "--dim", type=Count(1, WIDEST), metavar="N", default=300, show_default=True, help="Vector dimension."
)
@click.option(
    "--sif",
    type=click.FloatRange(min=0, min_open=True),
    default=1e-2,
    show_default=True,
    metavar="X",
    help="Smooth inverse frequency: a word of relative frequency p has the weight X / (X + p).",
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
    """Distill a sentence encoder into static vectors of all words of the collections."""
    from aptool.formats.atomic import check_apart, check_writable
    from aptool.formats.claim import claimed_beside
    from aptool.formats.collection import CollectionFiles
    from aptool.text.tokenizer import check_installed

    # Earlier versions took `--collection A B OUT`.
    folders = [path for path in paths if path.is_dir()]
    outputs = [path for path in paths if not path.is_dir()]
    if len(outputs) > 1:
        raise click.UsageError(f"{outputs[0]}: expected the folder of a collection.")
    out = one_output(output, outputs[0] if outputs else None)
    opened = [CollectionFiles(path) for path in [*collections, *folders]]
    check_writable(out)
    check_apart(out, chain.from_iterable(collection.path.iterdir() for collection in opened))
    check_installed("transformers", purpose=f"distilling from {model}", extra="distill")

    from aptool.models.device import pick_device
    from aptool.models.pretrained import open_network
    from aptool.text.distill import SentenceEncoder, distill_vectors
    from aptool.text.subwords import SubwordTokenizer
    from aptool.text.tokenizer import UNK, WordTokenizer
    from aptool.text.vectors import write_vectors
    from aptool.training.texts import read_texts

    start = time.perf_counter()
    with claimed_beside(out):
        network = open_network(model)
        subwords = SubwordTokenizer(network.tokenizer.backend_tokenizer)
        texts = [
            text
            for collection in opened
            for split in collection.splits
            for text in read_texts(collection, split).all()
        ]
        tokenizer = WordTokenizer.learn(texts)
        tokens = tokenizer.encode(texts)
        first = UNK + 1
        distilled = distill_vectors(
            SentenceEncoder(model, subwords, network.network, network.max_tokens),
            tokenizer.words[first:],
            tokens.counts(len(tokenizer))[first:],
            dim=dim,
            sif=sif,
            device=pick_device(device),
        )
        write_vectors(out, distilled)
    seconds = time.perf_counter() - start
    words, dim = distilled.matrix.shape
    click.echo(f"{out}: {words:,} words, dimension {dim}, in {seconds:.0f} s")
