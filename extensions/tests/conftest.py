"""What the extensions are tried on: the servers of the memory, and the home of a user with a scripted model."""

from databases import postgres_url, redis_url
from homes import home, served, server

__all__ = ["home", "postgres_url", "redis_url", "served", "server"]
