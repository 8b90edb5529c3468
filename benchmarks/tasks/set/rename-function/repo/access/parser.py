"""Lines of an access log: address, method, path, status and bytes, separated by spaces."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Record:
    address: str
    method: str
    path: str
    status: int
    size: int


def parse_line(line):
    """The record of a line. Raises ValueError when it has not five fields."""
    fields = line.split()
    if len(fields) != 5:
        raise ValueError(f"a record has 5 fields, this line {len(fields)}")
    address, method, path, status, size = fields
    return Record(address, method, path, int(status), int(size))


def parse_lines(lines):
    """The records of all lines that are not empty."""
    return [parse_line(line) for line in lines if line.strip()]
