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
    from aptool.models.checkpoints.read import load_any
    from aptool.models.export import export_model

    library = export_model(load_any(folder), output, source=folder)
    click.echo(f"{output}: a model of {library}")
