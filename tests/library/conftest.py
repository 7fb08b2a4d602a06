"""The tiny collection and a tiny model as the library opens them, in a folder that is the current one."""

import shutil

import pytest

import aptool as library


@pytest.fixture
def folder(tmp_path, monkeypatch, collection_folder, model_folder):
    """``data/wikiqa`` is the tiny collection and ``models/tiny`` a model of it."""
    shutil.copytree(collection_folder, tmp_path / "data" / "wikiqa")
    shutil.copytree(model_folder, tmp_path / "models" / "tiny")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def data(folder):
    return library.Collection("data/wikiqa")


@pytest.fixture
def model(folder):
    return library.load("models/tiny")
