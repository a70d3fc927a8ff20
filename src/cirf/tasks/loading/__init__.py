"""Problems from benchmarks, from users' files and made on the spot; leaks between splits."""
