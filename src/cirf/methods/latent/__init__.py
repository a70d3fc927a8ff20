"""Methods that reason in vectors: Coconut, CODI and SIM-CoT."""
