"""Tokenizers, word vectors and BM25."""
