"""Accuracy, latency and the statistics of their differences."""
