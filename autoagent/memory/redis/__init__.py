"""The memory in Redis, by its vector sets or its search module.

May import what memory may; redis in `session` alone. Hands out the store that the registry opens.
"""
