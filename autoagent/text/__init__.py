"""Functions on texts: made safe to show, masked, quoted, counted in tokens, wrapped, paged.

May import core. Exports pure functions, `Redactor` and the token count.
"""
