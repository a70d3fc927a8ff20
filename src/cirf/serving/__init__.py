"""Inference with a saved model: on the command line, or by a local server with a playground page."""
