"""What the user sets: every setting and where it came from, the files it stands in, and whom of them to trust.

May import core, text and registry. Hands out `Settings`, the task of `ai_settings.yaml`, and what a folder may set by
itself.
"""
