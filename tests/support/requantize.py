"""Write a GGUF with all weight matrices in another type: `python -m tests.support.requantize SRC DST Q8_0`.

Metadata and tensor order stay; norms, biases and the convolution stay F32. The types are those that `gguf.quants`
can write: F32, F16, BF16, Q8_0, Q4_0, Q4_1, Q5_0, Q5_1.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import gguf
import numpy as np
from gguf import GGMLQuantizationType, GGUFReader, GGUFValueType, GGUFWriter, LlamaFileType

from pyjet.model.architecture import needs_f32

FILE_TYPES = {
    "F32": LlamaFileType.ALL_F32,
    "F16": LlamaFileType.MOSTLY_F16,
    "BF16": LlamaFileType.MOSTLY_BF16,
    "Q8_0": LlamaFileType.MOSTLY_Q8_0,
    "Q4_0": LlamaFileType.MOSTLY_Q4_0,
    "Q4_1": LlamaFileType.MOSTLY_Q4_1,
    "Q5_0": LlamaFileType.MOSTLY_Q5_0,
    "Q5_1": LlamaFileType.MOSTLY_Q5_1,
}
_HEADER_FIELDS = ("GGUF.version", "GGUF.tensor_count", "GGUF.kv_count", "general.architecture")


def requantize(src: str | Path, dst: str | Path, type_name: str) -> Path:
    """Write `dst` from `src` with every weight matrix in `type_name`; returns the path of `dst`.

    Quantised sources are dequantised first. Raises ValueError for a type that cannot be written.
    """
    if type_name not in FILE_TYPES:
        raise ValueError(f"cannot write {type_name}; these work: {', '.join(FILE_TYPES)}")
    target = GGMLQuantizationType[type_name]
    reader = GGUFReader(src)
    writer = GGUFWriter(dst, reader.fields["general.architecture"].contents())
    copy_metadata(reader, writer, {"general.file_type": int(FILE_TYPES[type_name])})
    for tensor in reader.tensors:
        values = gguf.quants.dequantize(tensor.data, tensor.tensor_type)
        kind = GGMLQuantizationType.F32 if needs_f32(tensor.name, tuple(tensor.shape.tolist())) else target
        data = np.ascontiguousarray(gguf.quants.quantize(values.astype(np.float32), kind))
        writer.add_tensor(tensor.name, data, raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return Path(dst)


def copy_metadata(reader: GGUFReader, writer: GGUFWriter, changes: dict[str, object] | None = None) -> None:
    """Copy every key with its type, except the architecture (the writer's own); changes replace values."""
    changes = changes or {}
    for name, field in reader.fields.items():
        if name in _HEADER_FIELDS:
            continue
        value = changes.get(name, field.contents())
        kind = field.types[0]
        sub_type = field.types[-1] if kind == GGUFValueType.ARRAY else None
        writer.add_key_value(name, value, kind, sub_type)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("src", help="GGUF file to read")
    parser.add_argument("dst", help="GGUF file to write")
    parser.add_argument("type", choices=FILE_TYPES, help="type of all weight matrices")
    args = parser.parse_args()
    print(requantize(args.src, args.dst, args.type))


if __name__ == "__main__":
    main()
