"""``aptool push``: uploads a model to the Hugging Face hub."""

import click


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
