"""The examples of the reference of commands name every command, and options that it has."""

import shlex
import tomllib

import click
import pytest
from pages import ROOT

from aptool.cli.main import cli

EXAMPLES = tomllib.loads((ROOT / "docs" / "site" / "commands.toml").read_text(encoding="utf-8"))


def leaves(command, context):
    """The commands in a group, each by its path without the program."""
    if not isinstance(command, click.Group):
        return {context.command_path.removeprefix("aptool "): (command, context)}
    inner = {}
    for name in command.list_commands(context):
        below = command.get_command(context, name)
        inner |= leaves(below, click.Context(below, info_name=name, parent=context))
    return inner


COMMANDS = leaves(cli, click.Context(cli, info_name="aptool", **cli.context_settings))


def test_every_command_has_an_example():
    assert EXAMPLES.keys() == COMMANDS.keys()


@pytest.mark.parametrize("name", EXAMPLES)
def test_examples_have_the_arguments_and_options_of_their_command(name):
    command, context = COMMANDS[name]
    words = shlex.split(EXAMPLES[name])
    path = ["aptool", *name.split()]
    assert words[: len(path)] == path

    values, rest, _ = command.make_parser(context).parse_args(words[len(path) :])

    assert rest == []
    required = {parameter.name for parameter in command.params if parameter.required}
    assert required <= {key for key, value in values.items() if value not in (None, ())}
