"""Turn chain-of-thought rationales into reusable functional tokens, and a model that reasons in them."""

__version__ = "0.1.0"
