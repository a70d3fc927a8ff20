"""Internalised CoT (stepwise internalisation): rationales that are removed token by token."""
