"""The servers that the extensions of the memory are tried on."""

from databases import postgres_url, redis_url

__all__ = ["postgres_url", "redis_url"]
