"""Tell which folders git ignores, by .gitignore files. Git is not run: what a folder configures may be a program.

Only whole folders count, and none with a tracked file, or with the last names of a folder that has some. A line that is
not understood ignores nothing, or if it begins with `!`, takes back all before it. Not covered: lists outside the
workspace, and .git/info/exclude.
"""

from __future__ import annotations

from fnmatch import fnmatchcase

Rules = tuple[tuple[bool, int, bool, tuple[str, ...]], ...]
"""For each rule: whether it ignores, the depth of its folder, whether it fits at any depth below, and its patterns.

There is a pattern for each name of a path. A rule without patterns fits every path. The last rule that fits decides.
"""

COMPRESSED = "DIRC\0\0\0\4"  # the beginning of an index that does not write its paths out
NO_RULES: Rules = ((False, 0, True, ()),)
_MAX_RULES = 1_000  # for one folder: a hostile list must not take minutes


def rules_in(text: str, depth: int, above: Rules) -> Rules:
    """Return the rules for a folder with this .gitignore, so deep in the workspace, after those of the folder above."""
    rules, lines = [*above], text.split("\n")
    for line in lines if len(lines) <= _MAX_RULES else "!":
        pattern = line.removesuffix("\r").rstrip(" ").removeprefix("!").removesuffix("/")
        ignores = not line.startswith("!")
        if ignores and pattern.endswith("/**"):  # the folders in it, and with each what is below
            pattern = pattern.removesuffix("*")
        floats = "/" not in pattern or pattern.startswith("**/")
        pattern = pattern.removeprefix("**/").removeprefix("/")
        is_understood = "**" not in pattern and not {"\\", "["}.intersection(pattern)
        if pattern and is_understood and not line.startswith("#"):
            rules.append((ignores, depth, floats, tuple(pattern.split("/"))))
        elif not ignores:
            rules += NO_RULES
    return tuple(rules) if len(rules) <= _MAX_RULES else NO_RULES


def is_ignored(folder: str, rules: Rules) -> bool:
    """Return whether the rules for the folder above it ignore a folder. They do not ignore the folder above."""
    for ignores, depth, floats, patterns in reversed(rules):
        names = folder.split("/")[depth:]
        if floats:
            names = names[-len(patterns) :]
        fits = len(names) == len(patterns) and all(map(fnmatchcase, names, patterns))
        if fits or not patterns:
            return ignores and ".git" not in folder.split("/")
    return False
