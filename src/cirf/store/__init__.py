"""Files of a run: the run folder, JSON lines, integrity, paths."""
