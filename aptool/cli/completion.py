"""``aptool completion``: the script that completes aptool's commands and options in a shell."""

import click
from click.shell_completion import get_completion_class


@click.command(
    epilog="""\b
bash:  aptool completion bash >> ~/.bashrc
zsh:   aptool completion zsh >> ~/.zshrc
fish:  aptool completion fish > ~/.config/fish/completions/aptool.fish"""
)
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def completion(ctx: click.Context, shell: str) -> None:
    """Print the script that completes commands, options and presets in SHELL."""
    found = get_completion_class(shell)
    assert found is not None  # click has all three
    root = ctx.find_root()
    click.echo(found(root.command, {}, "aptool", "_APTOOL_COMPLETE").source())
