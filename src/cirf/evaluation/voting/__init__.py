"""Majority votes of sampled answers: drawing, counting and timing them."""
