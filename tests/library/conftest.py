"""The tiny collection and a tiny model, in the current folder."""

import shutil

import pytest

import aptool as library


@pytest.fixture
def folder(tmp_path, monkeypatch, collection_folder, model_folder):
    """The current folder, with the tiny collection in ``data/wikiqa`` and its model in ``models/tiny``."""
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
