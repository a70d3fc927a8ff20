"""Fast models on a CPU: packed weights, LoRA layers, attention, number formats, memory."""
