#!/usr/bin/env python3
"""The objects of the CPU kernels of one instruction set may share no code with other objects.

A weak or common function symbol (an inline function or template that the compiler did not inline)
is merged by the linker with its namesakes: the copy kept may be the one with AVX-512 instructions.
Usage: isa_symbols_test.py NM OBJECT...   Data (constant tables) may be shared.
"""
import subprocess
import sys


def shared_functions(nm, path):
    """Weak or unique symbols in code sections."""
    lines = subprocess.run([nm, "--format=sysv", path], check=True, capture_output=True,
                           text=True).stdout.splitlines()
    found = []
    for line in lines:
        fields = [field.strip() for field in line.split("|")]
        if len(fields) != 7:
            continue
        name, _, kind, symbol_type, _, _, section = fields
        if kind in "WwVvu" and (symbol_type == "FUNC" or section.startswith(".text")):
            found.append(name)
    return found


def main():
    nm, objects = sys.argv[1], sys.argv[2:]
    if not objects:
        sys.exit("no objects given")
    failed = False
    for path in objects:
        for name in shared_functions(nm, path):
            print(f"{path}: shared function {name}")
            failed = True
    print(f"{len(objects)} objects read")
    sys.exit(1 if failed else 0)


main()
