# SPDX-License-Identifier: Apache-2.0
"""Reads the symbol tables of 64-bit little-endian ELF files: what is imported and from where."""

from __future__ import annotations

import mmap
import struct
from dataclasses import dataclass, field
from pathlib import Path

SHT_SYMTAB = 2
SHT_DYNAMIC = 6
SHT_DYNSYM = 11
SHT_GNU_VERNEED = 0x6FFFFFFE
SHT_GNU_VERSYM = 0x6FFFFFFF
DT_NEEDED = 1
STB_LOCAL = 0


class ElfError(Exception):
    """The file is not an ELF file that this module reads."""


@dataclass(frozen=True)
class Import:
    """A symbol that a library needs; version and library are empty where it has no version."""

    name: str
    version: str
    library: str


@dataclass
class Symbols:
    """The symbols of one file."""

    imports: list[Import] = field(default_factory=list)
    defined: set[str] = field(default_factory=set)
    needed: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class _Section:
    kind: int
    offset: int
    size: int
    link: int


class _Reader:
    def __init__(self, data: mmap.mmap) -> None:
        if data[:6] != b"\x7fELF\x02\x01":
            raise ElfError("not a 64-bit little-endian ELF file")
        self.data = data
        table_offset = struct.unpack_from("<Q", data, 0x28)[0]
        entry_size, count = struct.unpack_from("<HH", data, 0x3A)
        self.sections: list[_Section] = []
        for index in range(count):
            at = table_offset + index * entry_size
            kind = struct.unpack_from("<I", data, at + 4)[0]
            offset, size = struct.unpack_from("<QQ", data, at + 24)
            link = struct.unpack_from("<I", data, at + 40)[0]
            self.sections.append(_Section(kind, offset, size, link))

    def find(self, kind: int) -> _Section | None:
        return next((section for section in self.sections if section.kind == kind), None)

    def text(self, strings: _Section, offset: int) -> str:
        start = strings.offset + offset
        return self.data[start : self.data.find(b"\0", start)].decode("ascii", "replace")

    def needed_versions(self) -> dict[int, tuple[str, str]]:
        """The (library, version) behind each index of the version table."""
        found: dict[int, tuple[str, str]] = {}
        section = self.find(SHT_GNU_VERNEED)
        if section is None:
            return found
        strings = self.sections[section.link]
        at = section.offset
        while True:
            count, library, first, step = struct.unpack_from("<HIII", self.data, at + 2)
            entry = at + first
            for _ in range(count):
                index, version, entry_step = struct.unpack_from("<HII", self.data, entry + 6)
                found[index] = (self.text(strings, library), self.text(strings, version))
                entry += entry_step
            if step == 0:
                return found
            at += step

    def needed_libraries(self) -> list[str]:
        section = self.find(SHT_DYNAMIC)
        if section is None:
            return []
        strings = self.sections[section.link]
        entries = struct.iter_unpack(
            "<QQ", self.data[section.offset : section.offset + section.size // 16 * 16]
        )
        return [self.text(strings, value) for tag, value in entries if tag == DT_NEEDED]

    def symbols(self) -> Symbols:
        table = self.find(SHT_DYNSYM) or self.find(SHT_SYMTAB)
        result = Symbols(needed=self.needed_libraries())
        if table is None:
            return result
        strings = self.sections[table.link]
        versions = self.needed_versions()
        indexes = self.find(SHT_GNU_VERSYM)
        for number in range(table.size // 24):
            at = table.offset + number * 24
            name, info, _, home = struct.unpack_from("<IBBH", self.data, at)
            if name == 0 or info >> 4 == STB_LOCAL:
                continue
            if home != 0:
                result.defined.add(self.text(strings, name))
                continue
            index = 0
            if indexes is not None:
                index = struct.unpack_from("<H", self.data, indexes.offset + 2 * number)[0]
            library, version = versions.get(index & 0x7FFF, ("", ""))
            result.imports.append(Import(self.text(strings, name), version, library))
        return result


def read_symbols(path: Path) -> Symbols:
    """The dynamic symbols of a library, or the symbols of an object file.

    Raises ElfError for anything else, OSError where the file cannot be read.
    """
    with path.open("rb") as file:
        try:
            data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        except ValueError as error:
            raise ElfError("empty file") from error
        with data:
            try:
                return _Reader(data).symbols()
            except struct.error as error:
                raise ElfError("truncated ELF file") from error
