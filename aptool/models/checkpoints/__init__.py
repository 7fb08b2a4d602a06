"""Checkpoints of other libraries, read as rankers: sentence-transformers, cross-encoders, ColBERT, model2vec.

Nothing is converted, and no code of a folder is run: each layout is read by what it says of itself.
"""
