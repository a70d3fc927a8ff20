"""Language models on OpenAI-compatible servers: prompts, requests, retries, several servers at once."""
