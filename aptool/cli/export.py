"""``aptool export`` and ``aptool push``: models for other libraries and for the Hugging Face Hub."""

from pathlib import Path

import click

from aptool.cli.parameters import overwrite_option


@click.command("export")
@click.argument("folder", metavar="MODEL")
@click.option("--output", required=True, type=click.Path(path_type=Path), help="Folder to write to.")
@overwrite_option("EXPORT")
def export(folder: str, output: Path) -> None:
    """Export MODEL, a model folder, to sentence-transformers or PyLate.

    Mean or first pooling over a pretrained network becomes a sentence-transformers model, maxsim a ColBERT
    model of PyLate.
    """
    from aptool.models.hub import find_folder

    find_folder(folder)  # before PyTorch is imported

    from aptool.models.checkpoints import load_any
    from aptool.models.export import export_model

    library = export_model(load_any(folder), output, source=folder)
    click.echo(f"{output}: a model of {library}")


@click.command("push")
@click.argument("folder", metavar="MODEL")
@click.argument("name", metavar="ORG/NAME")
@click.option("--private", is_flag=True, help="Create a private repository.")
@click.option("--message", metavar="TEXT", help="Commit message.  [default: preset and fingerprint]")
def push(folder: str, name: str, private: bool, message: str | None) -> None:
    """Upload MODEL, a model folder, to the Hugging Face Hub as ORG/NAME.

    The model card has the dev metrics. The token is from `hf auth login` or HF_TOKEN. Other commands load the
    model as hf://ORG/NAME.
    """
    from aptool.library.model import load

    click.echo(load(folder, "cpu").push(name, private=private, message=message))
