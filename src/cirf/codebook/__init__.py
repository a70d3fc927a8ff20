"""From segments to functional tokens: embeddings, centring, balanced assignment, VQ-VAE, codebook (paper 3.2)."""
