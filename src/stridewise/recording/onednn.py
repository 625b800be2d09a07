"""Reads the text that oneDNN's verbose mode prints: which primitives ran, how long, and between which layouts.

No profiler sees the reorders that oneDNN runs inside a convolution; this text is the only place that names them.
Three generations of it are read (`onednn_verbose`, `dnnl_verbose`, `mkldnn_verbose`), mixed with any other output.
"""

import re
from collections.abc import Iterator
from functools import lru_cache
from math import prod

import msgspec

MARKER = re.compile(rb"(?:onednn|dnnl|mkldnn)_verbose,")
"""Where a line of oneDNN begins; log prefixes (`[rank0]: `) may stand before it."""

# The fields after the operation's component, as the header of oneDNN 3.5 and later names them (printed once a process).
TEMPLATE = (
    *("operation", "engine", "primitive", "implementation", "prop_kind"),
    *("memory_descriptors", "attributes", "auxiliary", "problem_desc", "exec_time"),
)
# Lines without a version: oneDNN before 2.0 printed no attributes, and MKL-DNN 0.x no engine either.
UNVERSIONED_TEMPLATE = tuple(name for name in TEMPLATE if name != "attributes")
ENGINELESS_TEMPLATE = tuple(name for name in UNVERSIONED_TEMPLATE if name != "engine")
REQUIRED = {"operation", "primitive", "implementation", "memory_descriptors", "problem_desc", "exec_time"}

COMPONENTS = ("primitive", "graph", "common", "ukernel", "gemm_api")
ENGINE = re.compile(r"(?:cpu|gpu)(?:2(?:cpu|gpu))?(?::\d+)?")
NUMBER = re.compile(r"\d{1,20}(?:\.\d{1,20})?(?:e[+-]?\d{1,3})?")
LINE = re.compile(
    rf"\w+_verbose((?:,(?:v\d{{1,9}}|{NUMBER.pattern}|{'|'.join(COMPONENTS)})(?![^,]))*),([^,]*)(?:,(.*))?", re.DOTALL
)
OPERATION = re.compile(r"(?:info|create|exec|error|warn|debuginfo|profile)\w*(?::.*)?")
DIMENSIONS = re.compile(r"\d{1,19}(?:x\d{1,19}){0,11}")
TAG = re.compile(r"([a-lA-L]{1,12})((?:\d{1,4}[a-l]){0,12})")
DESCRIPTOR = re.compile(r"(src|dst)[:_]([a-z]+\d+(?:_[a-z0-9]+)?|boolean):[a-z0]*:([a-z_]+)(?::(.*))?")
OLD_DESCRIPTOR = re.compile(r"(in|out):([a-z]+\d+)_(\w+)")

# oneDNN's names of element types (dnnl_data_type_t), in bits.
DTYPE_BITS = {
    **{"f64": 64, "s64": 64, "f32": 32, "s32": 32, "bf16": 16, "f16": 16, "s8": 8, "u8": 8, "boolean": 8},
    **{"f8_e5m2": 8, "f8_e4m3": 8, "e8m0": 8, "s4": 4, "u4": 4, "f4_e2m1": 4, "f4_e3m0": 4},
}

LONGEST_LINE = 1 << 16
FIRST_EPOCH_MS, LAST_EPOCH_MS = 1e12, 1e14  # 2001 to 5138: a stamp outside counts from something else (Windows: boot)


class Primitive(msgspec.Struct, frozen=True):
    """One primitive that ran. `memory` and `problem` are oneDNN's own words."""

    engine: str
    primitive: str
    implementation: str
    memory: str
    problem: str
    duration_ns: int
    start_ns: int | None
    """Epoch time at which it began (not at which the line was printed); None without timestamps."""
    offset: int
    """Where its line begins, in bytes of the text that was read."""
    operation: str = "exec"


class Reorder(msgspec.Struct, frozen=True):
    """One reorder that ran: a copy of one tensor from one layout or type to another.

    Formats are oneDNN's tags: the dimensions a, b, c … from the outermost in memory to the innermost (`abcd` is NCHW,
    `acdb` NHWC); capitals and numbers are blocked (`aBcd16b`: b in groups of 16), which no strides describe: None.
    """

    sizes: tuple[int, ...]
    source_format: str
    format: str
    source_dtype: str
    dtype: str
    source_itemsize: int
    itemsize: int
    source_strides: tuple[int, ...] | None
    strides: tuple[int, ...] | None
    duration_ns: int
    start_ns: int | None
    implementation: str
    engine: str
    offset: int

    @property
    def bytes_moved(self) -> int:
        """Bytes read plus bytes written; blocked formats count their padding, stride 0 counts once."""
        read = _elements(self.source_format, self.sizes, self.source_strides) * DTYPE_BITS[self.source_dtype]
        written = _elements(self.format, self.sizes, self.strides) * DTYPE_BITS[self.dtype]
        return -(-read // 8) + -(-written // 8)


class Log(msgspec.Struct, frozen=True):
    """What a text held; `skipped` counts oneDNN's lines that were cut off or garbled."""

    records: tuple[Primitive | Reorder, ...]
    skipped: int


def read(text: bytes | str) -> Log:
    """Everything that ran, in the order of the text. A last line without its line feed counts if it is complete."""
    reader = Reader()
    return Log(tuple(reader.read(text)), reader.skipped)


class Reader:
    """Reads a log that may come in pieces: the header is printed once a process, so what it said is kept."""

    def __init__(self) -> None:
        self.skipped = 0
        self._template: tuple[str, ...] | None = None

    def read(self, text: bytes | str, offset: int = 0) -> Iterator[Primitive | Reorder]:
        """What ran, by one piece of whole lines that begins at `offset` bytes of the log."""
        data = text.encode("utf-8", "replace") if isinstance(text, str) else text
        begin = 0
        while begin < len(data):
            end = data.find(b"\n", begin)
            end = len(data) if end < 0 else end
            marks = [found.start() for found in MARKER.finditer(data, begin, end)]
            if marks:
                self.skipped += len(marks) - 1  # a line that was cut off runs on into the next
                record = self._line(data[marks[-1] : end], offset + marks[-1])
                if record is not None:
                    yield record
            begin = end + 1

    def _line(self, line: bytes, offset: int) -> Primitive | Reorder | None:
        found = LINE.fullmatch(line.decode("utf-8", "replace").rstrip("\r")) if len(line) <= LONGEST_LINE else None
        operation = found[2] if found else ""
        if found is None or not OPERATION.fullmatch(operation):
            self.skipped += 1
            return None
        versioned, component, start_ns = False, "primitive", None
        for word in found[1].split(",")[1:]:  # over the years these came in several orders
            if NUMBER.fullmatch(word):
                start_ns = _epoch_ns(float(word))
            else:
                versioned = True
                component = word if word in COMPONENTS else component
        if component != "primitive":
            return None
        if operation == "info":
            self._header(found[3] or "")
        if operation != "exec":
            return None
        body, _, duration = (found[3] or "").rpartition(",")
        record = _record(body, self._template or (TEMPLATE if versioned else UNVERSIONED_TEMPLATE), versioned)
        if record is None or not NUMBER.fullmatch(duration) or float(duration) >= LAST_EPOCH_MS:
            self.skipped += 1
            return None
        return msgspec.structs.replace(
            record, duration_ns=round(float(duration) * 1e6), start_ns=start_ns, offset=offset
        )

    def _header(self, text: str) -> None:
        before, found, names = text.partition("template:")
        template = tuple(name for name in names.split(",") if name != "timestamp")
        ours = found and before in ("", "prim_") and REQUIRED.issubset(template)
        if ours and (template[0], template[-1]) == ("operation", "exec_time"):
            self._template = template


@lru_cache(4096)
def _record(body: str, template: tuple[str, ...], versioned: bool) -> Primitive | Reorder | None:
    """What lies between the operation and the time, which a program repeats; None if it is cut off."""
    values = body.split(",")
    if not versioned and not ENGINE.fullmatch(values[0]):
        template = ENGINELESS_TEMPLATE
    names = template[1:-1]
    extra = len(values) - len(names)
    if extra < 0:
        return None
    if extra:  # some attributes hold commas: what surplus there is lies between the memory and the problem
        middle = names.index("memory_descriptors") + 1
        values = [*values[:middle], ",".join(values[middle : middle + extra + 1]), *values[middle + extra + 1 :]]
    field = dict(zip(names, values, strict=True))
    primitive = Primitive(
        engine=field.get("engine", "cpu"),
        primitive=field["primitive"],
        implementation=field["implementation"],
        memory=field["memory_descriptors"],
        problem=field["problem_desc"],
        duration_ns=0,
        start_ns=None,
        offset=0,
    )
    return _reorder(primitive) if primitive.primitive == "reorder" else primitive


def strides_of_tag(tag: str, sizes: tuple[int, ...]) -> tuple[int, ...] | None:
    """The strides of a dense tensor in the order that the tag gives; None for a blocked or an unknown tag."""
    parsed = _tag(tag, len(sizes))
    if parsed is None or parsed[1]:
        return None
    strides = [0] * len(sizes)
    step = 1
    for dimension in reversed(parsed[0]):
        strides[dimension] = step
        step *= max(sizes[dimension], 1)
    return tuple(strides)


def padded_sizes(tag: str, sizes: tuple[int, ...]) -> tuple[int, ...]:
    """The sizes as they lie in memory: `aBcd16b` rounds b up to a multiple of 16. Unknown tags pad nothing."""
    parsed = _tag(tag, len(sizes))
    blocks = parsed[1] if parsed else {}
    return tuple(-(-size // blocks.get(at, 1)) * blocks.get(at, 1) for at, size in enumerate(sizes))


def _reorder(primitive: Primitive) -> Reorder | Primitive | None:
    """The layouts of a reorder; the primitive itself if sizes or types cannot be told; None for a cut-off line."""
    words = primitive.memory.split(" ")
    sides = [side for side in map(_side, words) if side]
    if len(words) != 2 or len(sides) != 2 or "*" in primitive.problem:
        return primitive if len(words) == 2 else None
    sizes = _numbers(primitive.problem)
    (source_format, source_dtype, source_strides), (format, dtype, strides) = sides
    letters = [len(tag[1]) for tag in map(TAG.fullmatch, (source_format, format)) if tag]
    given = [len(side) for side in (source_strides, strides) if side is not None]
    if sizes is None or any(rank != len(sizes) for rank in (*letters, *given)):
        return None
    return Reorder(
        sizes=sizes,
        source_format=source_format,
        format=format,
        source_dtype=source_dtype,
        dtype=dtype,
        source_itemsize=-(-DTYPE_BITS[source_dtype] // 8),
        itemsize=-(-DTYPE_BITS[dtype] // 8),
        source_strides=_strides(source_format, sizes, source_strides),
        strides=_strides(format, sizes, strides),
        duration_ns=primitive.duration_ns,
        start_ns=primitive.start_ns,
        implementation=primitive.implementation,
        engine=primitive.engine,
        offset=primitive.offset,
    )


def _side(word: str) -> tuple[str, str, tuple[int, ...] | None] | None:
    """The tag, the type and the explicit strides (printed for memory that is not dense) of one memory descriptor.

    `src:f32::blocked:ab:128x1:f0`, `src_f32::blocked:abcd:f0`, `in:f32_nchw`. Formats that have no tag (Winograd,
    packed) go by their kind.
    """
    if old := OLD_DESCRIPTOR.fullmatch(word):
        return (_tag_of_name(old[3]), old[2], None) if old[2] in DTYPE_BITS else None
    found = DESCRIPTOR.fullmatch(word)
    if not found or found[2] not in DTYPE_BITS:
        return None
    tag, _, rest = (found[4] or "").partition(":")
    strides = rest.partition(":")[0]
    return tag or found[3], found[2], _numbers(strides)


@lru_cache(1024)
def _tag(tag: str, rank: int) -> tuple[tuple[int, ...], dict[int, int]] | None:
    """The dimensions from outermost to innermost, and how many elements of which of them a block holds."""
    found = TAG.fullmatch(tag)
    if not found:
        return None
    order = tuple(ord(letter) - ord("a") for letter in found[1].lower())
    blocks: dict[int, int] = {}
    for count, letter in re.findall(r"(\d+)([a-l])", found[2]):
        at = ord(letter) - ord("a")
        blocks[at] = blocks.get(at, 1) * int(count)
    capitals = {ord(letter) - ord("A") for letter in found[1] if letter.isupper()}
    if sorted(order) != list(range(rank)) or capitals != set(blocks) or 0 in blocks.values():
        return None
    return order, blocks


def _tag_of_name(name: str) -> str:
    """The tag that MKL-DNN 0.x wrote as a name: `nChw16c` is aBcd16b, `OIhw16i16o` is ABcd16b16a."""
    letters = {letter for letter in name.lower() if letter.isalpha()}
    family = next((all_ for all_ in ("x", "ncdhw", "goidhw") if letters <= set(all_)), "")
    used = [letter for letter in family if letter in letters]
    if not used:
        return name
    to_tag = {letter: chr(ord("a") + at) for at, letter in enumerate(used)}
    to_tag |= {letter.upper(): tag.upper() for letter, tag in to_tag.items()}
    return "".join(to_tag.get(letter, letter) for letter in name)


def _strides(tag: str, sizes: tuple[int, ...], given: tuple[int, ...] | None) -> tuple[int, ...] | None:
    plain = strides_of_tag(tag, sizes)
    return given if given is not None and plain is not None else plain


def _elements(tag: str, sizes: tuple[int, ...], strides: tuple[int, ...] | None) -> int:
    if strides is None:
        return prod(padded_sizes(tag, sizes))
    return 0 if 0 in sizes else prod(size for size, stride in zip(sizes, strides, strict=True) if stride)


def _numbers(text: str) -> tuple[int, ...] | None:
    return tuple(map(int, text.split("x"))) if DIMENSIONS.fullmatch(text) else None


def _epoch_ns(stamp_ms: float) -> int | None:
    """oneDNN prints gettimeofday's whole microseconds as a double of milliseconds, which is 0.1 µs off: undo that."""
    return round(stamp_ms * 1000) * 1000 if FIRST_EPOCH_MS <= stamp_ms < LAST_EPOCH_MS else None
