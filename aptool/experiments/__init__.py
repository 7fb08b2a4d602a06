"""Tables of experiments: which systems on which collections with which seeds, run and set side by side."""
