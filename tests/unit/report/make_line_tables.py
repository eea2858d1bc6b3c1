# SPDX-License-Identifier: Apache-2.0
"""Line tables of CPython, and what CPython itself reads from them: data for test_python_line.c.

Each interpreter prints its part; line_tables.h is all of them after the header's first lines:

    for python in python3.9 python3.10 ... python3.14; do $python make_line_tables.py; done
"""

import ctypes
import sys
from types import CodeType

LONG_GAP = "\n" * 300
SOURCE = f"""
def plain(a, b):
    c = a + b
    return c


def far(a):
    b = a
{LONG_GAP}
    return b


def backwards(a):
    return a(
        a(1,
          2),
        b=a(
            3
        ),
    )(
        a
    )


def wide(a):
    return [{", ".join(f"a[{i}]" for i in range(70))}]


def guarded(path):
    try:
        with open(path) as file:
            for line in file:
                if line:
                    yield line
    except (OSError,
            ValueError):
        raise
    finally:
        path = None


class Model:
    def forward(self, x):
        return [self.layer(y)
                for y in x
                if y]

    async def later(self, x):
        async with self as y:
            await x(
                y)


@staticmethod
@property
def decorated(
    a=1,
):
    assert a, \\
        "none"
    {"a = " * 40}0
    del a
"""


def codes_of(code: CodeType) -> list[CodeType]:
    found = [code]
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            found += codes_of(constant)
    return found


def changes_of(code: CodeType) -> list[tuple[int, int]]:
    """Each offset at which the line is another than before; line 0: none."""
    line_at = ctypes.pythonapi.PyCode_Addr2Line
    line_at.argtypes = [ctypes.py_object, ctypes.c_int]
    changes: list[tuple[int, int]] = []
    for offset in range(0, len(code.co_code), 2):
        line = max(0, line_at(code, offset))
        if not changes or changes[-1][1] != line:
            changes.append((offset, line))
    return changes


def literal(table: bytes) -> str:
    """A C string, closed and opened again so that lines stay short."""
    digits = [f"\\{byte:03o}" for byte in table]
    parts = ["".join(digits[at : at + 22]) for at in range(0, len(digits), 22)]
    return "\n     ".join(f'"{part}"' for part in parts) or '""'


def main() -> None:
    version = sys.version_info[0] << 8 | sys.version_info[1]
    modern = sys.version_info >= (3, 10)
    for code in codes_of(compile(SOURCE, "model.py", "exec")):
        table: bytes = code.co_linetable if modern else code.co_lnotab
        changes = changes_of(code)
        listed = [f"{{{offset}, {line}}}" for offset, line in changes]
        rows = [", ".join(listed[at : at + 8]) for at in range(0, len(listed), 8)]
        print(f"    /* {sys.version_info[0]}.{sys.version_info[1]} {code.co_name} */")
        print(f"    {{{version:#x}, {code.co_firstlineno}, {len(table)}, {len(code.co_code)},")
        print(f"     {len(changes)},\n     {literal(table)},")
        print("     {" + ",\n      ".join(rows) + "}},")


main()
