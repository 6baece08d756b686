"""The filter of calls to the kernel, walked through as the kernel does it, for both architectures."""

from __future__ import annotations

import ctypes
import ctypes.util
import struct

import pytest

from horae.sandboxes.seccomp import ARCHITECTURES, EPERM, LAST, build_filter

ALLOWED, DENIED, NOT_THERE = 0x7FFF0000, 0x00050000 | EPERM, 0x00050000 | 38
SPAWN = 0x01200011  # flags of a fork by glibc
HARMLESS = {"x86_64": {"read": 0, "execve": 59, "ptrace": 101}, "aarch64": {"read": 63, "execve": 221, "ptrace": 117}}
I386, ARM = 0x40000003, 0x40000028


def verdict(program: bytes, audit: int, number: int, argument: int = 0) -> int:
    """Return what the kernel makes of a call."""
    data = struct.pack("=IIQQ", number, audit, 0, argument)
    place = accumulator = 0
    while True:
        code, then, other, operand = struct.unpack_from("=HBBI", program, 8 * place)
        place += 1
        if code == 0x06:
            return int(operand)
        if code == 0x20:
            accumulator = struct.unpack_from("=I", data, operand)[0]
            continue
        holds = {0x15: accumulator == operand, 0x25: accumulator > operand, 0x45: bool(accumulator & operand)}[code]
        place += then if holds else other


@pytest.fixture(params=ARCHITECTURES)
def machine(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def test_what_containers_deny_is_denied_and_the_rest_allowed(machine: str) -> None:
    program, calls = build_filter(machine), ARCHITECTURES[machine]
    assert program is not None
    assert {verdict(program, calls.audit, number) for number in calls.denied.values()} == {DENIED}
    assert {verdict(program, calls.audit, number) for number in HARMLESS[machine].values()} == {ALLOWED}


def test_no_namespace_is_made_by_any_way(machine: str) -> None:
    program, calls = build_filter(machine), ARCHITECTURES[machine]
    assert program is not None
    assert verdict(program, calls.audit, calls.clone, SPAWN) == ALLOWED
    for bit in (0x20000, 0x2000000, 0x4000000, 0x8000000, 0x10000000, 0x20000000, 0x40000000):
        assert verdict(program, calls.audit, calls.clone, SPAWN | bit) == DENIED
    assert verdict(program, calls.audit, calls.clone3) == NOT_THERE


def test_sockets_to_the_host_and_unusual_personalities_are_denied(machine: str) -> None:
    program, calls = build_filter(machine), ARCHITECTURES[machine]
    assert program is not None
    assert [verdict(program, calls.audit, calls.socket, family) for family in (1, 2, 10, 40)] == [ALLOWED] * 3 + [
        DENIED
    ]
    found = [verdict(program, calls.audit, calls.personality, one) for one in (0, 8, 0xFFFFFFFF, 0x40000)]
    assert found == [ALLOWED] * 3 + [DENIED]


def test_calls_of_other_architectures_and_of_later_kernels_are_not_there(machine: str) -> None:
    program, calls = build_filter(machine), ARCHITECTURES[machine]
    assert program is not None
    assert verdict(program, calls.audit, LAST + 1) == NOT_THERE
    assert verdict(program, calls.audit, 0x40000000 | 1) == NOT_THERE  # x32
    assert {verdict(program, other, 1) for other in (I386, ARM)} == {DENIED}


def test_a_machine_whose_calls_are_not_known_has_no_filter() -> None:
    assert build_filter("riscv64") is None


def test_the_numbers_are_those_of_the_kernel(machine: str) -> None:
    name = ctypes.util.find_library("seccomp")
    if name is None:
        pytest.skip("libseccomp, which knows the numbers too, is not on this machine: apt-get install libseccomp2")
    library, calls = ctypes.CDLL(name), ARCHITECTURES[machine]
    library.seccomp_syscall_resolve_name_arch.argtypes = (ctypes.c_uint32, ctypes.c_char_p)
    single = {"clone": calls.clone, "clone3": calls.clone3, "personality": calls.personality, "socket": calls.socket}
    known = {**calls.denied, **single}
    found = {one: library.seccomp_syscall_resolve_name_arch(calls.audit, one.encode()) for one in known}
    assert found == known
