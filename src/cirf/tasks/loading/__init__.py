"""Problems from benchmarks, users' files and generators; leaks between splits."""
