"""Methods that think in vectors: Coconut, CODI and SIM-CoT."""
