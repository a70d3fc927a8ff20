"""Accuracy, latency and the statistics that say which differences mean something."""
