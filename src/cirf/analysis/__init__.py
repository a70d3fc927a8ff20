"""Tables and figures of the paper and beyond it, from runs."""
