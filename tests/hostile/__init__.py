"""Hostile and faulty inputs, each given to the real program from outside; D01 to D64 are the ids of the cases.

One process is given all replies of a section, as a process for each would take minutes; what came of each is then read
from its log. Around it lies what nothing may change: the user's home, a folder beside it, a listener on loopback.

Left out, as the features are not there: D56 (plugins) and D64 (Ray).
"""
