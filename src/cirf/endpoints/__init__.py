"""Language models behind OpenAI-compatible servers: prompts, requests, retries, several servers at once."""
