"""What a run is worth: trec_eval's measures, and runs fused into one."""
