"""Run inside a sandbox: tries to get out in many ways, and prints for each `out`, or why it was held.

    python probe.py TCP_PORT UDP_PORT OUTSIDE KEY VICTIM

OUTSIDE is a folder with `secret.txt`, `socket` and nothing else of interest; VICTIM a pid. Standard library only.
"""

import ctypes
import fcntl
import json
import os
import signal
import socket
import sys
import time
from pathlib import Path

TCP, UDP, OUTSIDE, KEY, VICTIM = int(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3]), sys.argv[4], int(sys.argv[5])
libc = ctypes.CDLL(None, use_errno=True)


def checked(value):
    if value < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


def tcp():
    socket.create_connection(("127.0.0.1", TCP), 5).close()


def udp():
    sender = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    sender.connect(("127.0.0.1", UDP))
    for _ in range(2):  # that nobody was there is told with the second
        sender.send(b"out")
        time.sleep(0.05)


def unix_path():
    socket.socket(socket.AF_UNIX).connect(str(OUTSIDE / "socket"))


def unix_abstract():
    socket.socket(socket.AF_UNIX).connect(f"\0{OUTSIDE}")


def write():
    (OUTSIDE / "new.txt").write_text("out")


def overwrite():
    (OUTSIDE / "secret.txt").write_text("out")


def empty():
    os.truncate(OUTSIDE / "secret.txt", 0)


def read():
    (OUTSIDE / "secret.txt").read_text()


def hard_link():
    os.link(OUTSIDE / "secret.txt", "linked.txt")


def through_a_link():
    Path("way").symlink_to(OUTSIDE)
    Path("way/secret.txt").read_text()


def system():
    Path("/usr/new.txt").write_text("out")


def shadow():
    Path("/etc/shadow").read_text()


def key():
    for place in Path("/proc").glob("[0-9]*/environ"):
        try:
            if KEY.encode() in place.read_bytes():
                return
        except OSError:
            pass
    raise OSError("not found")


def send_signal():
    os.kill(VICTIM, signal.SIGTERM)


def kernel():
    setting = Path("/proc/sys/kernel/core_pattern")
    with setting.open("r+") as file:
        file.write(setting.read_text())


def mount():
    checked(libc.mount(b"none", b"/mnt", b"tmpfs", 0, None))


def namespace():
    checked(libc.unshare(0x10000000))


def ptrace():
    checked(libc.ptrace(16, VICTIM, 0, 0))


def reboot():
    checked(libc.reboot(0))  # CAD off: harmless where it works


def type_for_others():
    _, follower = os.openpty()
    fcntl.ioctl(follower, 0x5412, b"x")


ATTEMPTS = (
    tcp, udp, unix_path, unix_abstract, write, overwrite, empty, read, hard_link, through_a_link, system, shadow, key,
    send_signal, kernel, mount, namespace, ptrace, reboot, type_for_others,
)  # fmt: skip


def main():
    results = {}
    for attempt in ATTEMPTS:
        try:
            attempt()
            results[attempt.__name__] = "out"
        except (OSError, ValueError) as error:
            results[attempt.__name__] = str(error)
    print(json.dumps(results))


main()
