"""Item sizes of dtypes, by torch's names and by the C++ names that traces use. A test holds both against torch."""

ITEM_SIZES: dict[str, int] = {
    "float32": 4, "float64": 8, "float16": 2, "bfloat16": 2, "complex32": 4, "complex64": 8, "complex128": 16,
    "int8": 1, "int16": 2, "int32": 4, "int64": 8, "uint8": 1, "uint16": 2, "uint32": 4, "uint64": 8, "bool": 1,
    "float8_e4m3fn": 1, "float8_e4m3fnuz": 1, "float8_e5m2": 1, "float8_e5m2fnuz": 1, "float8_e8m0fnu": 1,
    "quint8": 1, "qint8": 1, "qint32": 4, "float4_e2m1fn_x2": 1, "bcomplex32": 4,
    "bits1x8": 1, "bits2x4": 1, "bits4x2": 1, "bits8": 1, "bits16": 2,
}  # fmt: skip

CPP_NAMES: dict[str, str] = {
    "float": "float32", "double": "float64", "c10::Half": "float16", "c10::BFloat16": "bfloat16",
    "c10::complex<c10::Half>": "complex32", "c10::complex<float>": "complex64", "c10::complex<double>": "complex128",
    "signed char": "int8", "short": "int16", "short int": "int16", "int": "int32", "long": "int64", "long int": "int64",
    "unsigned char": "uint8", "unsigned short": "uint16", "short unsigned int": "uint16", "unsigned int": "uint32",
    "unsigned long": "uint64", "long unsigned int": "uint64", "bool": "bool", "long long": "int64",
    "c10::Float8_e4m3fn": "float8_e4m3fn", "c10::Float8_e4m3fnuz": "float8_e4m3fnuz",
    "c10::Float8_e5m2": "float8_e5m2", "c10::Float8_e5m2fnuz": "float8_e5m2fnuz",
    "c10::Float8_e8m0fnu": "float8_e8m0fnu",
    "c10::Float4_e2m1fn_x2": "float4_e2m1fn_x2", "c10::bits1x8": "bits1x8", "c10::bits2x4": "bits2x4",
    "c10::bits4x2": "bits4x2", "c10::bits8": "bits8", "c10::bits16": "bits16",
    "c10::complex<c10::BFloat16>": "bcomplex32",
    "c10::quint8": "quint8", "c10::qint8": "qint8", "c10::qint32": "qint32",
}  # fmt: skip

ONEDNN_NAMES: dict[str, str] = {
    "f64": "float64", "f32": "float32", "bf16": "bfloat16", "f16": "float16",
    "s64": "int64", "s32": "int32", "s8": "int8", "u8": "uint8", "boolean": "bool",
}  # fmt: skip


def from_onednn(name: str) -> str:
    """torch's name for a dtype that oneDNN's log names, such as `float32` for `f32`; the same if torch has none."""
    return ONEDNN_NAMES.get(name, name)


def from_cpp(name: str) -> str | None:
    """torch's name for a dtype that a trace names, such as `bfloat16` for `c10::BFloat16`; None if unknown."""
    return CPP_NAMES.get(name)
