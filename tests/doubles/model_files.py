"""GGUF files of a few kilobytes or megabytes that hold no model, and wheels that carry pieces of one."""

from __future__ import annotations

import zipfile
from pathlib import Path

import gguf
import numpy

VERSION = "1.0"


def write_gguf(path: Path, elements: int = 1000) -> bytes:
    """A sound GGUF file with a vocabulary and two tensors, of about 4 bytes an element; gives its bytes."""
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_block_count(1)
    writer.add_token_list([f"token{number}" for number in range(500)])
    writer.add_token_scores([0.5] * 500)
    numbers = numpy.random.default_rng(1)
    writer.add_tensor("one", numbers.random(elements, dtype=numpy.float32))
    writer.add_tensor("two", numpy.ones((4, 32), dtype=numpy.float16))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path.read_bytes()


def write_parts(folder: Path, name: str, data: bytes, count: int) -> tuple[str, ...]:
    """Wheels `NAME1` … `NAMEn` with the pieces of `data`, for pip to find in `folder`; gives their requirements."""
    step = -(-len(data) // count)
    pieces = [data[at : at + step] for at in range(0, len(data), step)]
    for number, piece in enumerate(pieces, 1):
        _write_wheel(folder, f"{name}{number}", f"model.part{number:02}", piece)
    return tuple(f"{name}{number}=={VERSION}" for number in range(1, len(pieces) + 1))


def _write_wheel(folder: Path, package: str, member: str, piece: bytes) -> None:
    about = f"{package}-{VERSION}.dist-info"
    with zipfile.ZipFile(folder / f"{package}-{VERSION}-py3-none-any.whl", "w") as wheel:
        wheel.writestr(f"{package}/__init__.py", "")
        wheel.writestr(f"{package}/{member}", piece)
        wheel.writestr(f"{about}/METADATA", f"Metadata-Version: 2.1\nName: {package}\nVersion: {VERSION}\n")
        wheel.writestr(
            f"{about}/WHEEL", "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        wheel.writestr(f"{about}/RECORD", "")
