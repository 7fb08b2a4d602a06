"""Rankers: an encoder of tokens to states, a pooling of two state sequences, and a cosine; model folders."""
