"""Process texts: make them safe to show, mask, quote, wrap and page them, and count their tokens.

May import core. Exports pure functions, `Redactor` and the token count.
"""
