"""Rationales with the words left out that matter least (TokenSkip, arXiv 2502.12067)."""
