"""Methods with soft prompts from a guide model: SoftCoT and SemCoT."""
