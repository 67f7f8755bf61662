"""Proofs that a run cannot be lost: it is cut at every durable system call, resumed, and what must hold is checked.

    cd tests
    python -m crash kill                 every boundary of a run that holds each kind of command
    python -m crash power                power cuts, one for each state of the disk (root: ext4 on a loop device)
    python -m crash fail --every 10      ENOSPC, EIO, EINTR at every boundary, of these every tenth
    python -m crash agents               kills in the thread of a sub-agent, whose calls strace counts by themselves

Each prints what fails, and its counts at the end; the exit code is 1 where something failed. `--every N` takes each
N-th trial, `--from N` leaves out those before, `--jobs N` runs so many at once. A trial takes two seconds and more.

`world` is the run and what must hold; `boundaries` knows strace; `trial` and `power` are single trials; `test_crash`
takes a sample of them. docs/promise.md says what is promised.
"""
