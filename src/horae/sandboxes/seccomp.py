"""The calls to the kernel that work behind walls does not get: those that containers deny by default.

A filter is a small program that the kernel runs for each call (seccomp, classic BPF). Denied are calls that change the
machine, reach into others or open rarely used parts of the kernel; each fails with EPERM, as in a container. What came
to the kernel after this list was written, and clone3, whose flags no filter can see, is answered as not there
(ENOSYS): libraries then do without.

What must stay true:
- A program for another architecture than the machine's own gets no call at all: its numbers mean other calls.
- No new namespace: neither by unshare nor by clone.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

EPERM, ENOSYS = 1, 38
LAST = 462  # the newest call that is known here
NEW_NAMESPACES = 0x7E020000  # flags of clone: mounts, control groups, names, queues, users, processes, network
AF_VSOCK = 40  # the way from a virtual machine to its host
PERSONALITIES = (0x0, 0x8, 0x20000, 0x20008, 0xFFFFFFFF)  # usual ones, and the question which one it is

_ALLOW, _ERRNO = 0x7FFF0000, 0x00050000
_LOAD, _JUMP_EQUAL, _JUMP_ABOVE, _JUMP_BITS, _RETURN = 0x20, 0x15, 0x25, 0x45, 0x06
_NUMBER, _ARCHITECTURE, _FIRST_ARGUMENT = 0, 4, 16  # where these stand in what the filter sees (little-endian)


@dataclass(frozen=True, slots=True)
class Calls:
    """What an architecture calls its calls."""

    audit: int  # its name, for the filter
    clone: int
    clone3: int
    personality: int
    socket: int
    denied: dict[str, int]


_EVERYWHERE = {  # these have one number on all architectures
    "fsconfig": 431, "fsmount": 432, "fsopen": 430, "fspick": 433, "io_uring_enter": 426, "io_uring_register": 427,
    "io_uring_setup": 425, "mount_setattr": 442, "move_mount": 429, "open_tree": 428, "pidfd_getfd": 438,
    "process_madvise": 440, "quotactl_fd": 443, "set_mempolicy_home_node": 450,
}  # fmt: skip
ARCHITECTURES = {
    "x86_64": Calls(0xC000003E, clone=56, clone3=435, personality=135, socket=41, denied={
        **_EVERYWHERE,
        "_sysctl": 156, "acct": 163, "add_key": 248, "bpf": 321, "chroot": 161, "clock_adjtime": 305,
        "clock_settime": 227, "create_module": 174, "delete_module": 176, "fanotify_init": 300, "finit_module": 313,
        "get_kernel_syms": 177, "get_mempolicy": 239, "init_module": 175, "ioperm": 173, "iopl": 172, "kcmp": 312,
        "kexec_file_load": 320, "kexec_load": 246, "keyctl": 250, "lookup_dcookie": 212, "mbind": 237,
        "migrate_pages": 256, "mount": 165, "move_pages": 279, "nfsservctl": 180, "open_by_handle_at": 304,
        "perf_event_open": 298, "pivot_root": 155, "query_module": 178, "quotactl": 179, "reboot": 169,
        "request_key": 249, "set_mempolicy": 238, "setdomainname": 171, "sethostname": 170, "setns": 308,
        "settimeofday": 164, "swapoff": 168, "swapon": 167, "sysfs": 139, "syslog": 103, "umount2": 166,
        "unshare": 272, "uselib": 134, "userfaultfd": 323, "ustat": 136, "vhangup": 153,
    }),
    "aarch64": Calls(0xC00000B7, clone=220, clone3=435, personality=92, socket=198, denied={
        **_EVERYWHERE,
        "acct": 89, "add_key": 217, "bpf": 280, "chroot": 51, "clock_adjtime": 266, "clock_settime": 112,
        "delete_module": 106, "fanotify_init": 262, "finit_module": 273, "get_mempolicy": 236, "init_module": 105,
        "kcmp": 272, "kexec_file_load": 294, "kexec_load": 104, "keyctl": 219, "lookup_dcookie": 18, "mbind": 235,
        "migrate_pages": 238, "mount": 40, "move_pages": 239, "nfsservctl": 42, "open_by_handle_at": 265,
        "perf_event_open": 241, "pivot_root": 41, "quotactl": 60, "reboot": 142, "request_key": 218,
        "set_mempolicy": 237, "setdomainname": 162, "sethostname": 161, "setns": 268, "settimeofday": 170,
        "swapoff": 225, "swapon": 224, "syslog": 116, "umount2": 39, "unshare": 97, "userfaultfd": 282, "vhangup": 58,
    }),
}  # fmt: skip


def build_filter(machine: str) -> bytes | None:
    """Return the filter for a machine, as `uname -m` names it; None where its calls are not known here."""
    calls = ARCHITECTURES.get(machine)
    return None if calls is None else _assemble(_program(calls))


# An instruction: code, operand, and the labels to go on at when it holds and when it does not; "" is the next one.
_Instruction = tuple[int, int, str, str]


def _program(calls: Calls) -> list[_Instruction | str]:
    """Labels stand before what they name."""
    return [
        (_LOAD, _ARCHITECTURE, "", ""),
        (_JUMP_EQUAL, calls.audit, "", "denied"),
        (_LOAD, _NUMBER, "", ""),
        (_JUMP_ABOVE, LAST, "unknown", ""),  # also what is for x32, whose numbers have a bit more
        (_JUMP_EQUAL, calls.clone3, "unknown", ""),
        *((_JUMP_EQUAL, number, "denied", "") for number in sorted(calls.denied.values())),
        (_JUMP_EQUAL, calls.clone, "clone", ""),
        (_JUMP_EQUAL, calls.socket, "socket", ""),
        (_JUMP_EQUAL, calls.personality, "personality", "allowed"),
        "clone",
        (_LOAD, _FIRST_ARGUMENT, "", ""),
        (_JUMP_BITS, NEW_NAMESPACES, "denied", "allowed"),
        "socket",
        (_LOAD, _FIRST_ARGUMENT, "", ""),
        (_JUMP_EQUAL, AF_VSOCK, "denied", "allowed"),
        "personality",
        (_LOAD, _FIRST_ARGUMENT, "", ""),
        *((_JUMP_EQUAL, usual, "allowed", "") for usual in PERSONALITIES),
        "denied",
        (_RETURN, _ERRNO | EPERM, "", ""),
        "unknown",
        (_RETURN, _ERRNO | ENOSYS, "", ""),
        "allowed",
        (_RETURN, _ALLOW, "", ""),
    ]


def _assemble(program: list[_Instruction | str]) -> bytes:
    """Instructions of eight bytes each; labels become the number of instructions to pass over."""
    places: dict[str, int] = {}
    instructions: list[_Instruction] = []
    for line in program:
        if isinstance(line, str):
            places[line] = len(instructions)
        else:
            instructions.append(line)

    def distance(label: str, place: int) -> int:
        return places[label] - place - 1 if label else 0

    return b"".join(
        struct.pack("=HBBI", code, distance(then, place), distance(other, place), operand)
        for place, (code, operand, then, other) in enumerate(instructions)
    )
