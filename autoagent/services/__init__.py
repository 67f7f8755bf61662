"""The providers behind the commands: what speaks to the web, to a browser, to other services."""
