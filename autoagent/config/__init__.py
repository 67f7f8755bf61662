"""The configuration: every setting and its origin, the files that hold it, and which of them to trust.

May import core, text and registry. Hands out `Settings`, the task of `ai_settings.yaml`, and what a folder may set by
itself.
"""
