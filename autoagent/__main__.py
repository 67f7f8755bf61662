"""`python -m autoagent`."""

from autoagent.cli import main

if __name__ == "__main__":
    main()
