"""Answers of a language model: batches, sampling, caches, the trace grammar, the calculator."""
