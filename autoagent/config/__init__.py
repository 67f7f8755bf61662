"""The configuration: every setting and its origin, the files that hold settings, and the permissions of a folder.

May import core, text and registry. Hands out `Settings` and the task of `ai_settings.yaml`.
"""
