"""Hostile and faulty inputs, each given to the real program from outside; D01 to D64 are the ids of the cases.

One process is given all replies of a section, as a process for each would take minutes; what came of each is then read
from its log. Around it lies what nothing may change: the user's home, a folder beside it, a listener on loopback.

Left out, as the features are not there: D56 (plugins) and D64 (Ray). More of D41 to D48 is in
tests/cli/test_api_faults.py, of D58 in tests/memory, of D60 (full disks, errors of reading, a clock put back) in
tests/cli/test_disk_faults.py, of D61 in tests/crash.
"""
