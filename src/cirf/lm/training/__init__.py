"""Fine-tuning a language model: batches, losses, checkpoints."""
