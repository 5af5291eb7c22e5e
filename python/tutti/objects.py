"""How Python's objects travel without pickle, and arrive as what they were.

    None, bool, int, float, complex, str, bytes, list, dict      as C++ programs see them, too
    tuple, set, frozenset, bytearray, range, slice, int of any size, OrderedDict, Counter, deque
    named tuples, data classes, enums, tutti.objects.Record
    pathlib's paths, datetime's values, decimal, fractions, uuid
    NumPy arrays, also of strings, dates, records and objects; scalars (a numpy.int64 stays one), dtypes
    tutti's own: ReduceOp, Backend
    PyTorch's tensors (where the receiver has imported torch)

A named tuple, data class or enum is sent as its module and name; the receiver must have imported the module itself,
which is never done for it, and no method of the class runs. Anything else is an ObjectError that names the place, unless
`allow_pickle` is true; then it is pickled, and whoever can send to this process can run code in it.

An array is copied once, into the message; what the receivers get is the memory of the message that came, to be written
as they like.
"""
from __future__ import annotations

import collections
import sys
import warnings
from typing import Any, Callable

from ._core import RedOpType, ReduceOp
from .distributed.backends import Backend
from .errors import ObjectError, PickleWarning

__all__ = ["Record", "describe", "rebuild"]

Fields = dict[str, Any]


class Record:
    """A value of a type that this process does not know, as a C++ program sends with TUTTI_OBJECT: the type's name, and its
    fields.

    Example:
        >>> shard = tutti.objects.Record("Shard", path="part-0", rows=3)
        >>> shard.rows
        3
    """

    def __init__(self, type: str, **fields: Any) -> None:
        self.type, self.fields = type, fields

    def __getattr__(self, name: str) -> Any:
        try:
            return self.__dict__["fields"][name]
        except KeyError:
            raise AttributeError(f"a record {self.__dict__.get('type')} has no field {name}") from None

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Record) and (self.type, self.fields) == (other.type, other.fields)

    def __repr__(self) -> str:
        return f"Record({self.type!r}, {', '.join(f'{k}={v!r}' for k, v in self.fields.items())})"


# ---- From Python ----------------------------------------------------------------------------------------------------

def describe(value: Any, allow_pickle: bool) -> tuple[str, Fields]:
    """The record of a value that C++ has no kind for: its type's name, and fields that are described in turn."""
    describer = _DESCRIBERS.get(type(value)) or _by_kind(value)
    if describer is not None:
        return describer(value)
    if allow_pickle:
        import pickle

        warnings.warn(
            f"an object of type {type(value).__qualname__} is pickled: whoever can send to a process that allows it "
            "can run code there. Data classes, named tuples, enums and arrays need no pickle.", PickleWarning, 3)
        return "python.pickle", {"data": pickle.dumps(value)}
    raise ObjectError.at("", f"is of type {_name(type(value))}: expected one that travels without pickle (see "
                             "tutti.objects), such as a data class, or allow_pickle=True")


def _name(cls: type) -> str:
    return f"{cls.__module__}.{cls.__qualname__}" if cls.__module__ != "builtins" else cls.__qualname__


def _by_kind(value: Any) -> Callable[[Any], tuple[str, Fields]] | None:
    cls = type(value)
    if isinstance(value, type):
        return None
    module = cls.__module__.partition(".")[0]
    if module == "torch" and hasattr(value, "__dlpack__"):
        return _describe_torch
    if module in ("numpy", "ml_dtypes"):
        return _numpy_describer(value)
    if "enum" in sys.modules and isinstance(value, sys.modules["enum"].Enum):
        return _describe_enum
    if isinstance(value, tuple) and hasattr(cls, "_fields"):
        return _describe_named_tuple
    if hasattr(cls, "__dataclass_fields__"):
        return _describe_dataclass
    if module in _LATE:
        _LATE.pop(module)()
        return _DESCRIBERS.get(cls)
    if module == "zoneinfo":
        return lambda zone: ("python.zoneinfo", {"key": zone.key})
    return None


def _describe_enum(value: Any) -> tuple[str, Fields]:
    if value.name in type(value).__members__:
        return "python.enum", {"class": _reference(type(value)), "name": value.name}
    return "python.enum", {"class": _reference(type(value)), "value": value.value}  # flags that are set together


def _describe_named_tuple(value: Any) -> tuple[str, Fields]:
    return "python.namedtuple", {"class": _reference(type(value)), "items": list(value)}


def _describe_dataclass(value: Any) -> tuple[str, Fields]:
    fields = {name: getattr(value, name) for name in type(value).__dataclass_fields__ if hasattr(value, name)}
    return "python.dataclass", {"class": _reference(type(value)), "fields": fields}


def _describe_torch(value: Any) -> tuple[str, Fields]:
    tensor, name = value.detach().cpu(), str(value.dtype).partition(".")[2]
    if name == "bfloat16" or name.startswith("float8"):  # NumPy has no such type: as bits
        torch = sys.modules["torch"]
        tensor = tensor.contiguous().view(torch.int16 if tensor.element_size() == 2 else torch.uint8)
    return "torch.tensor", {"data": tensor.numpy(), "dtype": name, "requires_grad": bool(value.requires_grad)}


def _numpy_describer(value: Any) -> Callable[[Any], tuple[str, Fields]] | None:
    import numpy

    if isinstance(value, numpy.dtype):
        return lambda dtype: ("numpy.dtype", {"name": _dtype_description(dtype)})
    if isinstance(value, numpy.generic):
        return lambda scalar: ("numpy.scalar", {"array": numpy.asarray(scalar)})
    if type(value) is not numpy.ndarray:
        return None
    return _describe_objects if value.dtype.kind == "O" else None if value.dtype.hasobject else _describe_array


def _describe_array(array: Any) -> tuple[str, Fields]:
    """Of a type that C++ does not have: strings, dates, another byte order, fields. As bytes, without a copy if it is in
    one piece."""
    import numpy

    data: Any = b""
    if array.nbytes > 0:
        data = numpy.ascontiguousarray(array).reshape(-1).view(numpy.uint8)
    return "numpy.ndarray", {"dtype": _dtype_description(array.dtype), "shape": list(array.shape), "data": data}


def _describe_objects(array: Any) -> tuple[str, Fields]:
    return "numpy.objects", {"shape": list(array.shape), "items": array.reshape(-1).tolist()}


def _dtype_description(dtype: Any) -> Any:
    """What a file of NumPy's has in its head: "<f4", or a list of fields; the name of a type that is not NumPy's."""
    import numpy

    if dtype.kind != "V":
        return dtype.str
    return numpy.lib.format.dtype_to_descr(dtype) if dtype.names is not None or dtype.type is numpy.void else dtype.name


def _reference(cls: type) -> str:
    return f"{cls.__module__}:{cls.__qualname__}"


# ---- To Python ------------------------------------------------------------------------------------------------------

def rebuild(type_name: str, fields: Fields, allow_pickle: bool) -> Any:
    """The reverse of describe(). The fields may come from anybody."""
    try:
        if type_name == "python.pickle":
            return _unpickled(fields["data"], allow_pickle)
        for load in list(_LATE.values()) if type_name not in _REBUILDERS and type_name.startswith("python.") else ():
            load()
        rebuilder = _REBUILDERS.get(type_name)
        if rebuilder is None:
            return Record(type_name, **fields)
        return rebuilder(fields)
    except ObjectError:
        raise
    except Exception as error:
        raise ObjectError.at("", f"is no valid {type_name}: {type(error).__name__}: {error}") from error


def _unpickled(data: bytes, allow_pickle: bool) -> Any:
    if not allow_pickle:
        raise ObjectError.at("", "is pickled, and unpickling can run any code: expected an object that travels without "
                                 "pickle, or allow_pickle=True where all ranks are trusted")
    import pickle

    return pickle.loads(data)


def _class(reference: str, kind: str, fits: Callable[[type], bool]) -> Any:
    """A class that this process has imported already."""
    module_name, _, path = reference.partition(":")
    found: Any = sys.modules.get(module_name)
    if found is None:
        raise ObjectError.at("", f"is of the {kind} {path} of module {module_name}, which is not imported here; "
                                 "import it before receiving")
    for part in path.split("."):
        found = getattr(found, part, None)
    if not isinstance(found, type) or not fits(found):
        raise ObjectError.at("", f"is of {path} of module {module_name}, which is no {kind} here")
    return found


def _rebuild_enum(fields: Fields) -> Any:
    import enum

    cls = _class(fields["class"], "enum", lambda c: issubclass(c, enum.Enum))
    return cls.__members__[fields["name"]] if "name" in fields else cls(int(fields["value"]))


def _rebuild_named_tuple(fields: Fields) -> Any:
    cls = _class(fields["class"], "named tuple", lambda c: issubclass(c, tuple) and hasattr(c, "_fields"))
    if len(fields["items"]) != len(cls._fields):
        raise ObjectError.at("", f"has {len(fields['items'])} fields: expected {len(cls._fields)}, as {cls.__name__}")
    return tuple.__new__(cls, fields["items"])


def _rebuild_dataclass(fields: Fields) -> Any:
    cls = _class(fields["class"], "data class", lambda c: hasattr(c, "__dataclass_fields__"))
    value = object.__new__(cls)
    for name, field in fields["fields"].items():
        if name not in cls.__dataclass_fields__:
            raise ObjectError.at(f".{name}", f"is no field of {cls.__name__}")
        object.__setattr__(value, name, field)
    return value


def _rebuild_torch(fields: Fields) -> Any:
    torch = sys.modules.get("torch")
    if torch is None:
        raise ObjectError.at("", "is a PyTorch tensor, and torch is not imported here; import it before receiving")
    tensor = torch.from_numpy(fields["data"])
    dtype = getattr(torch, fields["dtype"], None)
    if not isinstance(dtype, torch.dtype):
        raise ObjectError.at("", f"is a PyTorch tensor of {fields['dtype']}, which torch does not have here")
    if tensor.dtype != dtype:
        tensor = tensor.view(dtype)
    return tensor.requires_grad_(fields["requires_grad"])


def _rebuild_array(fields: Fields) -> Any:
    import numpy

    dtype = _rebuild_dtype({"name": fields["dtype"]})
    if dtype.hasobject:
        raise ObjectError.at("", f"is an array of {dtype}: expected one without objects")
    if isinstance(fields["data"], bytes):
        return numpy.empty(fields["shape"], dtype) if _count(fields["shape"]) * dtype.itemsize == 0 else (
            numpy.frombuffer(bytearray(fields["data"]), dtype).reshape(fields["shape"]))
    return numpy.asarray(fields["data"]).view(dtype).reshape(fields["shape"])


def _count(shape: list[int]) -> int:
    import math

    return math.prod(shape)


def _rebuild_objects(fields: Fields) -> Any:
    import numpy

    if _count(fields["shape"]) != len(fields["items"]):
        raise ObjectError.at("", f"is an array of {len(fields['items'])} objects and the shape {fields['shape']}")
    array = numpy.empty(len(fields["items"]), object)
    for i, item in enumerate(fields["items"]):
        array[i] = item
    return array.reshape(fields["shape"])


def _rebuild_dtype(fields: Fields) -> Any:
    import numpy

    name = fields["name"]
    if isinstance(name, str) and name.startswith(("bfloat", "float8", "int4", "uint4")):
        import ml_dtypes

        return numpy.dtype(getattr(ml_dtypes, name))
    return numpy.lib.format.descr_to_dtype(name)


def _describe_reduce_op(op: ReduceOp) -> tuple[str, Fields]:
    kind, factor = op.__reduce__()[1]  # raises for one that only this process has
    return "tutti.reduce_op", {"kind": int(kind), "factor": factor}


# ---- The types ------------------------------------------------------------------------------------------------------

_DESCRIBERS: dict[type, Callable[[Any], tuple[str, Fields]]] = {
    int: lambda v: ("python.int", {"digits": hex(v)}),
    set: lambda v: ("python.set", {"items": list(v)}),
    frozenset: lambda v: ("python.frozenset", {"items": list(v)}),
    bytearray: lambda v: ("python.bytearray", {"data": bytes(v)}),
    range: lambda v: ("python.range", {"items": [v.start, v.stop, v.step]}),
    slice: lambda v: ("python.slice", {"items": [v.start, v.stop, v.step]}),
    collections.OrderedDict: lambda v: ("python.ordereddict", {"items": [list(item) for item in v.items()]}),
    collections.Counter: lambda v: ("python.counter", {"items": [list(item) for item in v.items()]}),
    collections.deque: lambda v: ("python.deque", {"items": list(v), "maxlen": v.maxlen}),
    Record: lambda v: (v.type, v.fields),
    ReduceOp: _describe_reduce_op,
    Backend: lambda v: ("tutti.backend", {"name": str(v)}),
}
_REBUILDERS: dict[str, Callable[[Fields], Any]] = {
    "python.int": lambda f: int(f["digits"], 16),
    "python.set": lambda f: set(f["items"]),
    "python.frozenset": lambda f: frozenset(f["items"]),
    "python.bytearray": lambda f: bytearray(f["data"]),
    "python.range": lambda f: range(*f["items"]),
    "python.slice": lambda f: slice(*f["items"]),
    "python.ordereddict": lambda f: collections.OrderedDict(f["items"]),
    "python.counter": lambda f: collections.Counter(dict(f["items"])),
    "python.deque": lambda f: collections.deque(f["items"], f["maxlen"]),
    "tutti.reduce_op": lambda f: ReduceOp(RedOpType(f["kind"]), f["factor"]),
    "tutti.backend": lambda f: Backend(f["name"]),
    "python.enum": _rebuild_enum,
    "python.namedtuple": _rebuild_named_tuple,
    "python.dataclass": _rebuild_dataclass,
    "torch.tensor": _rebuild_torch,
    "numpy.ndarray": _rebuild_array,
    "numpy.objects": _rebuild_objects,
    "numpy.scalar": lambda f: f["array"][()],
    "numpy.dtype": _rebuild_dtype,
}


def _load_datetime() -> None:
    import datetime as dt

    def zone(f: Fields) -> Any:
        import zoneinfo

        return zoneinfo.ZoneInfo(f["key"])

    _DESCRIBERS.update({
        dt.date: lambda v: ("python.date", {"text": v.isoformat()}),
        dt.datetime: lambda v: ("python.datetime", {
            "items": [v.year, v.month, v.day, v.hour, v.minute, v.second, v.microsecond], "zone": v.tzinfo,
            "fold": v.fold}),
        dt.time: lambda v: ("python.time", {
            "items": [v.hour, v.minute, v.second, v.microsecond], "zone": v.tzinfo, "fold": v.fold}),
        dt.timedelta: lambda v: ("python.timedelta", {"items": [v.days, v.seconds, v.microseconds]}),
        dt.timezone: lambda v: ("python.timezone", {"offset": v.utcoffset(None), "name": v.tzname(None)}),
    })
    _REBUILDERS.update({
        "python.date": lambda f: dt.date.fromisoformat(f["text"]),
        "python.datetime": lambda f: dt.datetime(*f["items"]).replace(tzinfo=f["zone"], fold=f["fold"]),
        "python.time": lambda f: dt.time(*f["items"]).replace(tzinfo=f["zone"], fold=f["fold"]),
        "python.timedelta": lambda f: dt.timedelta(*f["items"]),
        "python.timezone": lambda f: dt.timezone(f["offset"], f["name"]),
        "python.zoneinfo": zone,
    })


def _load_pathlib() -> None:
    import pathlib

    for cls in (pathlib.PurePosixPath, pathlib.PureWindowsPath, pathlib.PosixPath):
        name = f"python.{cls.__name__.lower()}"
        _DESCRIBERS[cls] = lambda v, name=name: (name, {"text": str(v)})  # type: ignore[misc]
        _REBUILDERS[name] = lambda f, cls=cls: cls(f["text"])  # type: ignore[misc]


def _load_decimal() -> None:
    import decimal

    _DESCRIBERS[decimal.Decimal] = lambda v: ("python.decimal", {"text": str(v)})
    _REBUILDERS["python.decimal"] = lambda f: decimal.Decimal(f["text"])


def _load_fractions() -> None:
    import fractions

    _DESCRIBERS[fractions.Fraction] = lambda v: ("python.fraction", {"items": [v.numerator, v.denominator]})
    _REBUILDERS["python.fraction"] = lambda f: fractions.Fraction(*f["items"])


def _load_uuid() -> None:
    import uuid

    _DESCRIBERS[uuid.UUID] = lambda v: ("python.uuid", {"data": v.bytes})
    _REBUILDERS["python.uuid"] = lambda f: uuid.UUID(bytes=f["data"])


# Modules that are imported when a value of theirs is met first.
_LATE: dict[str, Callable[[], None]] = {
    "datetime": _load_datetime,
    "pathlib": _load_pathlib,
    "decimal": _load_decimal,
    "fractions": _load_fractions,
    "uuid": _load_uuid,
}
