"""The language model: loading it, giving it functional tokens, training it, and letting it answer."""
