"""Whisper on this machine: `python -m autoagent_whisper`, a program that needs nothing of autoagent."""
