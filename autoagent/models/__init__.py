"""The models: any OpenAI-compatible endpoint, the embedded one, a person, a recorded run."""
