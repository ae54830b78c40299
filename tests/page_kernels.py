"""Assemble the matrix product of the page after a change of kernels.wat: python -m tests.page_kernels

It needs wasmtime. There are two files: the text as it stands, and with each product and its sum as one operation.
"""

import re
from pathlib import Path

FOLDER = Path(__file__).parent.parent / "page/compute"
PRODUCT_AND_SUM = re.compile(r"\(f32x4\.add (\(local\.get \$\w+\)) \(f32x4\.mul (.*)\)\)\)$", re.MULTILINE)


def assembled() -> dict[Path, bytes]:
    from wasmtime import wat2wasm

    text = (FOLDER / "kernels.wat").read_text(encoding="utf-8")
    fused, n = PRODUCT_AND_SUM.subn(r"(f32x4.relaxed_madd \2 \1))", text)
    assert n == 8
    return {FOLDER / "kernels.wasm": bytes(wat2wasm(text)), FOLDER / "kernels_fma.wasm": bytes(wat2wasm(fused))}


if __name__ == "__main__":
    for file, content in assembled().items():
        file.write_bytes(content)
