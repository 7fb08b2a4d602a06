"""``aptool vectors``: word vectors from a collection's own text, or from a sentence encoder."""

import time
from itertools import chain
from pathlib import Path

import click

from aptool.cli.parameters import device_option
from aptool.errors import InputError, UsageError


@click.group()
def vectors() -> None:
    """Learn or distill word vectors."""


@vectors.command()
@click.argument("collection")
@click.argument("out", type=click.Path(path_type=Path))
@click.option("--split", default="train", show_default=True, help="Whose texts to learn from.")
@click.option("--dim", type=click.IntRange(min=1), default=100, show_default=True, help="Numbers per word.")
@click.option(
    "--window", type=click.IntRange(1, 32), default=5, show_default=True, help="Farthest context word."
)
@click.option("--epochs", type=click.IntRange(min=1), default=5, show_default=True, help="Passes over them.")
@click.option(
    "--min-count", type=click.IntRange(min=1), default=1, show_default=True, help="Leave rarer words out."
)
@click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True)
def learn(
    collection: str, out: Path, split: str, dim: int, window: int, epochs: int, min_count: int, seed: int
) -> None:
    """Learn word vectors from the texts of COLLECTION and write them to OUT, a word2vec binary file."""
    from aptool.formats.atomic import check_apart, check_writable
    from aptool.formats.collection import Collection

    opened = Collection(collection)
    opened.pools(split)
    check_writable(out)
    check_apart(out, opened.path.glob("*"))

    from aptool.text.skipgram import learn_vectors
    from aptool.text.tokenizer import UNK, WordTokenizer
    from aptool.text.vectors import WordVectors, write_vectors
    from aptool.training.data import read_texts

    start = time.perf_counter()
    texts = read_texts(opened, split).all()
    tokenizer = WordTokenizer.learn(texts, min_count=min_count)
    tokens = tokenizer.encode(texts)
    counts = tokens.counts(len(tokenizer))
    first = UNK + 1  # padding and the unknown word are the tokenizer's, no words
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
@click.argument("paths", metavar="OUT", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option("--model", required=True, metavar="NAME_OR_FOLDER", help="A sentence encoder.")
@click.option(
    "--collection", "collections", required=True, multiple=True, metavar="C...", help="Whose words to take."
)
@click.option("--dim", type=click.IntRange(min=1), default=300, show_default=True, help="Numbers per word.")
@click.option(
    "--sif",
    type=click.FloatRange(min=0, min_open=True),
    default=1e-2,
    show_default=True,
    help="A word of frequency p is scaled by SIF / (SIF + p).",
)
@device_option
def distill(
    paths: tuple[Path, ...], model: str, collections: tuple[str, ...], dim: int, sif: float, device: str
) -> None:
    """Distill vectors for all words of the collections and write them to OUT, a word2vec binary file."""
    from aptool.formats.atomic import check_apart, check_writable
    from aptool.formats.collection import Collection

    # `--collection A B OUT` hands B over with OUT.
    *more, out = paths
    opened = [Collection(path) for path in [*map(Path, collections), *more]]
    if out.is_dir():
        raise UsageError(f"OUT is missing, or is a folder: {out}")
    check_writable(out)
    check_apart(out, chain.from_iterable(one.path.glob("*") for one in opened))

    from aptool.models.device import pick_device
    from aptool.text.distill import distill_vectors
    from aptool.text.tokenizer import UNK, WordTokenizer
    from aptool.text.vectors import write_vectors
    from aptool.training.data import read_texts

    start = time.perf_counter()
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
        model,
        tokenizer.words[first:],
        tokens.counts(len(tokenizer))[first:],
        dim=dim,
        sif=sif,
        device=pick_device(device),
    )
    write_vectors(out, found)
    seconds = time.perf_counter() - start
    click.echo(f"{out}: {len(found.words):,} words of {found.matrix.shape[1]} numbers in {seconds:.0f} s")
