"""Modules, files, options, recipe keys and make targets that Markdown files mention exist."""

import re
from dataclasses import fields, is_dataclass
from typing import get_type_hints

import click
import pytest
from pages import ROOT, pages
from test_reference import COMMANDS

from aptool.cli.main import cli
from aptool.config import Recipe
from aptool.models.build import ENCODERS, POOLINGS
from aptool.models.features import HEADS
from aptool.models.pooling import SIMILARITIES

PAGES = [*pages(), "CONTRIBUTING.md", "examples/README.md", "jobs/README.md"]
FOLDERS = ("", "aptool", "jobs", "tests", "tests/models", "tests/cluster")
LINK = re.compile(r"\]\((?!\w+:)([^)#\s]+)")
MODULE = re.compile(r"`(\w+(?:/\w+)*\.py)`")
MEMBER = re.compile(r"`([\w.]+)` in `(\w+(?:/\w+)*\.py)`")
FILE = re.compile(r"(?<![\w/.-])((?:bench|docs|examples|jobs|schemas|tools)/[\w./-]+\.(?!run)[a-z]\w*)")
NAMES = "|".join({name.split()[-1] for name in COMMANDS})
OPTION = re.compile(rf"`(?:aptool [^`\n]*?|(?:{NAMES}) )?(--[a-z][\w-]*)[^`\n]*`")
KEY = re.compile(r"[` ](\w+)\.(\w+)(?:=[^`\s]*)?`")
# Options of Docker, Ray and Slurm.
OTHER_OPTIONS = {"--build-arg", "--generate", "--gpus-per-node", "--gres"}


def read(page):
    return (ROOT / page).read_text(encoding="utf-8")


def existing(module):
    """The paths of a module in the folders that pages leave out."""
    return [ROOT / folder / module for folder in FOLDERS if (ROOT / folder / module).exists()]


def recipe_keys():
    """The keys of every section of a recipe."""
    registries = {"encoder": ENCODERS, "pooling": POOLINGS, "similarity": SIMILARITIES, "head": HEADS}
    keys = {
        section: {"type", *(entry.name for kind in kinds.values() for entry in fields(kind.Options))}
        for section, kinds in registries.items()
    }
    sections = {name: kind for name, kind in get_type_hints(Recipe).items() if is_dataclass(kind)}
    return keys | {name: {entry.name for entry in fields(kind)} for name, kind in sections.items()}


KEYS = recipe_keys()
OPTIONS = {
    option
    for command in (cli, *(command for command, _ in COMMANDS.values()))
    for parameter in command.params
    if isinstance(parameter, click.Option)
    for option in (*parameter.opts, *parameter.secondary_opts, "--help")
}
TARGETS = set(re.findall(r"^([a-z-]+):", read("Makefile"), re.MULTILINE))


@pytest.mark.parametrize("page", PAGES)
def test_the_named_things_exist(page):
    text = read(page)
    prose = re.sub(r"^```.*?^```$", "", text, flags=re.MULTILINE | re.DOTALL)  # test_pages.py runs the blocks
    modules = set(MODULE.findall(text))
    members = {(name.rpartition(".")[2], module) for name, module in MEMBER.findall(text)}

    assert [module for module in modules if not existing(module)] == []
    assert [entry for entry in members if entry[0] not in existing(entry[1])[0].read_text("utf-8")] == []
    assert [file for file in set(FILE.findall(text)) if not (ROOT / file).exists()] == []
    assert set(OPTION.findall(prose)) - OPTIONS - OTHER_OPTIONS == set()
    assert [key for key in set(KEY.findall(prose)) if key[0] in KEYS and key[1] not in KEYS[key[0]]] == []
    assert set(re.findall(r"(?:`|^)make ([a-z-]+)", text, re.MULTILINE)) <= TARGETS


def test_the_links_between_files_resolve():
    """The strict build checks docs, which links to generated pages."""
    pages = [*ROOT.glob("*.md"), *ROOT.glob(".github/**/*.md"), *ROOT.glob("[abejst]*/**/*.md")]
    links = {(page, link) for page in pages for link in LINK.findall(page.read_text(encoding="utf-8"))}

    assert [(page, link) for page, link in links if not (page.parent / link).exists()] == []
