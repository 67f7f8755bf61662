"""The home of a user whose runs are looked at."""

from homes import home, served

__all__ = ["home", "served"]
