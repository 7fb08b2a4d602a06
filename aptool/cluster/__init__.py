"""Ray clusters: the way there, and what there is."""
