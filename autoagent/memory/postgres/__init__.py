"""The memory in PostgreSQL with pgvector, which many machines may share.

May import what memory may; psycopg and pgvector in `session` alone. Hands out the store that the registry opens.
"""
