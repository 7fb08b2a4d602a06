"""``aptool export``: a model in the layout of another library."""

from pathlib import Path

import click


@click.command("export")
@click.argument("folder", metavar="MODEL")
@click.option("--output", required=True, type=click.Path(path_type=Path), help="Folder to write.")
def export(folder: str, output: Path) -> None:
    """Write MODEL, a model folder, as sentence-transformers or PyLate loads it.

    Models with mean or first pooling over a pretrained network become sentence encoders, those with maxsim
    ColBERTs of PyLate.
    """
    from aptool.models.checkpoints.load import load_any
    from aptool.models.export import export_model

    library = export_model(load_any(folder), output, source=folder)
    click.echo(f"{output}: a model of {library}")


@click.command("push")
@click.argument("folder", metavar="MODEL")
@click.argument("name", metavar="ORG/NAME")
@click.option("--private", is_flag=True, help="Make a new repository private.")
@click.option("--message", help="Message of the commit.  [default: the preset and the fingerprint]")
def push(folder: str, name: str, private: bool, message: str | None) -> None:
    """Upload MODEL, a model folder, to the Hugging Face hub as ORG/NAME.

    Its card has the dev figures, which the hub shows. The token is that of `hf auth login` or HF_TOKEN.
    `hf://ORG/NAME` then stands for the model in every command.
    """
    from aptool.library.model import load

    click.echo(load(folder, "cpu").push(name, private=private, message=message))
