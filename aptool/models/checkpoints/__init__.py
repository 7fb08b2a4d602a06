"""Checkpoints of other libraries as rankers: sentence-transformers, cross-encoders, ColBERT, model2vec.

Nothing is converted, and no code of a checkpoint runs. ``load`` is the entry; ``files`` reads a folder's
layout, ``parts`` what several layouts share, and each layout has a module.
"""
