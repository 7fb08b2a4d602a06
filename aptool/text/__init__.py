"""Text to numbers: words, vocabularies, vectors and lexical scores."""
