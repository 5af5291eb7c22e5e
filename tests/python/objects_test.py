"""Objects: what travels without pickle arrives as what it was; the rest is an error that names the place."""
import collections
import dataclasses
import datetime
import decimal
import enum
import fractions
import gc
import math
import os
import pathlib
import random
import sys
import threading
import unittest
import uuid
import warnings

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "support"))
import ml_dtypes
import numpy as np
from ranks import run_ranks
from rows import main, rows

import tutti
import tutti.distributed as dist
from tutti._core import decode_object, encode_object
from tutti.errors import PickleWarning
from tutti.objects import Record

Point = collections.namedtuple("Point", "x y")


class Colour(enum.Enum):
    RED = 1
    BLUE = "b"


class Flags(enum.IntFlag):
    A = 1
    B = 2


@dataclasses.dataclass
class Shard:
    path: str
    rows: int
    places: list[Point] = dataclasses.field(default_factory=list)

    def __post_init__(self):
        calls.append("init")


@dataclasses.dataclass(frozen=True)
class Frozen:
    value: float


@dataclasses.dataclass
class Meddler:
    """Reading its field empties a container."""
    inner: int = 0


Meddler.inner = property(lambda self: self.container.clear(), lambda self, value: None)


class MyList(list):
    pass


class MyDict(dict):
    pass


def any_object(chance, depth=0):
    """A random object of the kinds that travel; lists of one kind are frequent, as they are in programs."""
    simple = [lambda: None, lambda: chance.random() < 0.5, lambda: chance.randrange(-40, 300),
              lambda: chance.choice((-1, 1)) * (1 << chance.randrange(70)) + chance.randrange(-2, 3),
              lambda: chance.choice((0.0, -0.0, 1.5, math.inf, 1e-310, chance.random())), lambda: complex(chance.random(), -1),
              lambda: "".join(chance.choices("aZ é\u20ac\U0001f600\0", k=chance.choice((0, 1, 5, 31, 32, 200)))),
              lambda: chance.randbytes(chance.choice((0, 3, 300))), lambda: np.int64(chance.randrange(9)),
              lambda: np.float32(chance.random()), lambda: np.arange(chance.randrange(5)), lambda: Colour.RED,
              lambda: Frozen(chance.random()), lambda: bytearray(b"ab"), lambda: range(chance.randrange(5))]
    if depth > 3 or chance.random() < 0.3:
        return chance.choice(simple)()
    count = chance.choice((0, 1, 2, 15, 16, 17, 40)) if depth < 2 else chance.randrange(4)
    kind = chance.choice(simple)
    key = chance.choice((lambda: chance.randrange(99), lambda: f"name {chance.randrange(50)}", lambda: (1, chance.random())))
    return chance.choice((lambda: [kind() for _ in range(count)], lambda: tuple(any_object(chance, depth + 1) for _ in range(count)),
                          lambda: [any_object(chance, depth + 1) for _ in range(count)],
                          lambda: {key(): any_object(chance, depth + 1) for _ in range(count)},
                          lambda: Point(any_object(chance, depth + 1), kind()), lambda: {chance.randrange(99) for _ in range(count)}))()


def form(value):
    """The value with all its types, to be compared: 1, True and 1.0 differ, and NumPy's scalars from Python's."""
    if isinstance(value, np.ndarray):
        return "array", value.dtype, value.shape, value.tobytes()
    if isinstance(value, (list, tuple)):
        return type(value), [form(item) for item in value]
    if isinstance(value, dict):
        return [(form(key), form(item)) for key, item in value.items()]
    if isinstance(value, set):
        return set, sorted(map(repr, value))
    return type(value), repr(value)


class Foreign:
    def __reduce__(self):
        return Foreign, ()

    def __eq__(self, other):
        return isinstance(other, Foreign)


calls = []
values = [
    None, True, 0, -1, 2**63, -2**63, 2**64 - 1, 2**64, -10**40, 1.5, float("inf"), 1 + 2j, "text", "ä€😀", "", b"\0\xff", [], (),
    (1,), (1, (2, [3])), {}, {"a": 1, 2: "b", (1, 2): None, b"k": 1.0}, set(), {1, 2}, frozenset({3}), bytearray(b"ab"),
    range(1, 10, 2), slice(1, None, 2), collections.OrderedDict([("z", 1), ("a", 2)]), collections.deque([1, 2], 3),
    Point(1, [2]), Colour.RED, Colour.BLUE, Flags.A | Flags.B, Frozen(2.5), pathlib.PurePosixPath("/a/b"), pathlib.Path("c"),
    datetime.date(2024, 2, 29), datetime.datetime(2024, 1, 2, 3, 4, 5, 6), datetime.timedelta(1, 2, 3), datetime.time(1, 2),
    datetime.datetime(2024, 1, 2, tzinfo=datetime.timezone.utc),
    datetime.datetime(2024, 1, 2, tzinfo=datetime.timezone(datetime.timedelta(hours=2), "X"), fold=1),
    decimal.Decimal("1.20"), fractions.Fraction(2, 3), uuid.UUID(int=5), Record("Shard", path="p", rows=3),
    dist.ReduceOp.AVG, dist._make_nccl_premul_sum(0.5), dist.ReduceOp.MAX.op, dist.DebugLevel.INFO, dist.Backend("gloo"),
]
arrays = [
    np.arange(6).reshape(2, 3), np.arange(6.0)[::-2], np.array(3.5, dtype=np.float16), np.zeros((0, 2), dtype=np.complex64),
    np.ones(3, dtype=ml_dtypes.bfloat16), np.ones(2, dtype=ml_dtypes.float8_e5m2), np.array([True]), np.array(["a", "bc"]),
    np.array([b"x"]), np.array(["2024-01-02"], dtype="datetime64[D]"), np.arange(3, dtype=">i4"), np.float32(2.5),
    np.int8(-3), np.bool_(True), ml_dtypes.bfloat16(1.5),
    np.array([(1, 2.5, b"x")], dtype=[("a", "<i4"), ("b", ">f8"), ("c", "S3")]), np.zeros((2, 0), dtype=[("a", "i4", (2,))]),
    np.array([[1, "b"], [None, (2,)]], dtype=object), np.array(["a", "bc", ""])[::2], np.array("2024-01-02T03", "datetime64[h]"),
    np.array([b""], dtype="S0"), np.array([(1,)], dtype=[("a", "i2")])[0], np.arange(4, dtype=">c8").reshape(2, 2).T,
    np.array([1.5, 2], np.longdouble), np.ones(2, np.clongdouble), np.arange(3, dtype=np.uint64),
    np.array([np.int64(1), np.float32(2)], dtype=object),
    *(dtype.type(1) for dtype in map(np.dtype, "?bBhHiIlLefdgFDG")), np.str_("ä"), np.bytes_(b"x"), np.void(b"abc"),
    np.datetime64("2024-01-02T03", "h"), np.timedelta64(3, "s"), ml_dtypes.float8_e4m3fn(0.5),
]


def collectives(rank):
    n = dist.get_world_size()
    shard = Shard(f"part-{rank}", rank, [Point(rank, 0.5)])
    gathered = [None] * n
    dist.all_gather_object(gathered, shard)
    assert gathered == [Shard(f"part-{i}", i, [Point(i, 0.5)]) for i in range(n)], gathered
    sent = ["a", Colour.RED, np.arange(3)] if rank == 0 else [None] * 3
    dist.broadcast_object_list(sent, src=0)
    assert sent[:2] == ["a", Colour.RED] and sent[2].tolist() == [0, 1, 2]
    collected = [None] * n if rank == 0 else None
    dist.gather_object((rank, "x"), collected)
    out = [None]
    dist.scatter_object_list(out, [{"for": i} for i in range(n)] if rank == 0 else None, src=0)
    assert out == [{"for": rank}]
    if rank == 0:
        dist.send_object_list([1, "b"], dst=1)
    elif rank == 1:
        got = [None, None]
        assert dist.recv_object_list(got, src=0) == 0 and got == [1, "b"]
    return collected


def plain(chance, depth=0):
    """A random object that is copied for its own rank, and decoded for the others."""
    simple = [lambda: None, lambda: chance.random() < 0.5, lambda: chance.randrange(-(1 << 70), 1 << 70), lambda: chance.randrange(9),
              lambda: chance.choice((-0.0, math.inf, 0.5)), lambda: complex(1, -0.0), lambda: chance.choice("aé€"), lambda: b"x"]
    if depth > 3 or chance.random() < 0.3:
        return chance.choice(simple)()
    inner = [plain(chance, depth + 1) for _ in range(chance.randrange(6))]
    keys = [chance.choice((i, str(i), (i, ("x", None)), float(i), b"k%d" % i)) for i in range(len(inner))]
    return chance.choice((list, tuple, lambda values: dict(zip(keys, values))))(inner)


def containers(value):
    """The lists and dicts in it, each as often as it stands there."""
    found = [value] if isinstance(value, (list, dict)) else []
    if isinstance(value, (list, tuple, dict)):
        for item in value.values() if isinstance(value, dict) else value:
            found += containers(item)
    return found


def own(rank):
    """What a rank gets from itself is what the others get of it, and shares nothing with it that anybody can change."""
    shared = [1]
    mine = [plain(random.Random(seed)) for seed in range(rank * 100, rank * 100 + 60)]
    mine += [shared, (shared, 2), {"a": shared, "b": (3, {"c": shared})}, np.arange(3), [Colour.RED, shared], {(1, 2): [{4}]}]
    forms, ids = [form(value) for value in mine], {id(one) for one in containers(mine)}
    texts = []
    for value in mine:
        everywhere, gathered = [None, None], [None, None] if rank == 0 else None
        dist.all_gather_object(everywhere, value)
        dist.gather_object(value, gathered)
        for got in (everywhere, gathered or everywhere):
            assert form(got[rank]) == form(value), (got[rank], value)
            inside = containers(got[rank])
            assert len({id(one) for one in inside}) == len(inside) and not ids & {id(one) for one in inside}, value
        texts.append([form(one) for one in everywhere])
    assert [text[rank] for text in texts] == forms
    assert gc.isenabled()
    return repr(texts)


def foreign(rank):
    texts, out = [], [None, None]
    for call in (lambda: dist.all_gather_object(out, {"layers": [1, Foreign()]} if rank == 0 else "fine"),
                 lambda: dist.broadcast_object_list(out if rank else [0, {"f": print}], src=0)):
        try:
            call()
            texts.append("accepted")
        except dist.ObjectError as error:
            texts.append((error.path, str(error)))
    dist.all_gather_object(out, "still usable")
    group = dist.new_group(allow_pickle=True)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        dist.all_gather_object(out, Foreign(), group=group)
        dist.all_gather_object(out, Foreign(), allow_pickle=True)
    assert out == [Foreign(), Foreign()] and [w.category for w in caught] == [PickleWarning] * 2, caught
    return texts


def peak_mib(call):
    """How far the process grows in a call, at its peak."""
    pathlib.Path("/proc/self/clear_refs").write_text("5")  # forget the last peak
    status = dict(line.split(":") for line in pathlib.Path("/proc/self/status").read_text().splitlines())
    before = int(status["VmRSS"].split()[0])
    call()
    status = dict(line.split(":") for line in pathlib.Path("/proc/self/status").read_text().splitlines())
    return (int(status["VmHWM"].split()[0]) - before) / 1024


def large(rank):
    mib = 64
    array = np.ones(mib << 17) if rank == 0 else None
    objects = [{"weights": array}] if rank == 0 else [None]
    grown = peak_mib(lambda: dist.broadcast_object_list(objects, src=0))
    got = objects[0]["weights"]
    assert got.shape == (mib << 17,) and got[-1] == 1.0 and got.flags.writeable
    got[0] = rank
    dist.barrier()
    assert got[0] == rank
    return grown / mib


class Objects(unittest.TestCase):
    def test_a_large_array_is_copied_into_the_message_and_not_out_of_it(self):
        sender, receiver = run_ranks(large)
        self.assertLess(sender, 1.3, "times the array: the message")
        self.assertLess(receiver, 1.3, "times the array: the message, which is the array then")

    def test_values_arrive_as_what_they_were(self):
        for value in values:
            with self.subTest(value=value):
                back = decode_object(encode_object(value))
                self.assertEqual(back, value)
                self.assertIs(type(back), type(value))

    def test_random_objects_arrive_as_what_they_were(self):
        for seed in range(300):
            value = any_object(random.Random(seed))
            with self.subTest(seed=seed):
                self.assertEqual(form(decode_object(encode_object(value))), form(value))

    def test_damaged_bytes_are_an_object_or_an_error(self):
        chance, errors = random.Random(4711), 0
        messages = [encode_object(any_object(random.Random(seed))) for seed in range(40)]
        for message in messages * 25:
            bad = bytearray(message)
            for _ in range(chance.randrange(1, 4)):
                bad[chance.randrange(len(bad))] = chance.randrange(256)
            try:
                decode_object(bytes(bad[:chance.randrange(len(bad)) + 1] if chance.random() < 0.2 else bad))
            except dist.ObjectError:
                errors += 1
        self.assertGreater(errors, 100)

    def test_the_bytes_are_those_that_cpp_reads(self):
        self.assertEqual(encode_object([1, -1, 200, True, None, 2.0, "a", b"b", {"k": [2**40]}]).hex(),
                         "99" "01" "ff" "ccc8" "c3" "c0" "cb4000000000000000" "a161" "c40162" "81a16b91cf0000010000000000")
        self.assertEqual(encode_object((1,)), b"\x92\xc7\x00\x05\x01")
        as_cpp_sends_it = b"\x92\xc7\x0c\x03python.tuple\x81\xa5items\x92\x01\x90"
        self.assertEqual(form(decode_object(as_cpp_sends_it)), form((1, [])))
        self.assertIsInstance(decode_object(as_cpp_sends_it[:-3] + b"\xa1x"), Record)

    def test_types_that_derive_from_containers_are_still_errors(self):
        for value in (MyList([1]), MyDict(a=1), collections.defaultdict(int)):
            with self.assertRaises(dist.ObjectError):
                encode_object([value])

    def test_a_container_that_changes_meanwhile_is_an_error(self):
        meddler = Meddler()
        for container in ([meddler, 1, 2], {"a": meddler, "b": 1, "c": 2}):
            meddler.container = container
            with self.assertRaises(dist.ObjectError) as caught:
                encode_object(container)
            self.assertIn("changed while it was being sent", str(caught.exception))

    def test_a_name_that_many_dicts_have_is_one_string(self):
        dicts = decode_object(encode_object([{"name": i, "x" * 200: i} for i in range(100)]))
        self.assertEqual(len({id(next(iter(one))) for one in dicts}), 1)

    def test_the_collector_of_cycles_is_as_it_was(self):
        data = encode_object([{"a": [i]} for i in range(1000)])
        self.assertTrue(gc.isenabled())
        decode_object(data)
        self.assertTrue(gc.isenabled())
        with self.assertRaises(dist.ObjectError):
            decode_object(data[:-1])
        self.assertTrue(gc.isenabled())
        gc.disable()
        try:
            decode_object(data)
            self.assertFalse(gc.isenabled())
        finally:
            gc.enable()

    def test_arrays_arrive_with_their_types(self):
        for value in arrays:
            with self.subTest(value=value):
                back = decode_object(encode_object({"x": value}))["x"]
                self.assertIs(type(back), type(value))
                self.assertEqual((back.dtype, back.shape), (value.dtype, value.shape))
                self.assertIs(back.dtype.type, value.dtype.type)  # NumPy has two types of 64 bits that are equal
                self.assertEqual(repr(back.tolist()), repr(value.tolist()))
        back = decode_object(encode_object(np.arange(3)))
        back[0] = 7  # its own memory, which can be written
        for dtype in (np.dtype("<f4"), np.dtype(">i2"), np.dtype([("a", "i4"), ("b", "U3", (2,))]), np.dtype("M8[D]"),
                      np.dtype(ml_dtypes.bfloat16), np.dtype(ml_dtypes.float8_e4m3fn), np.dtype("V5")):
            self.assertEqual(decode_object(encode_object(dtype)), dtype)

    def test_what_has_no_description_is_named_with_its_place(self):
        lock = threading.Lock()
        holder = dataclasses.make_dataclass("Holder", ["inner"])
        for value, path in ((np.array([1, lock], dtype=object), "[1]"),
                            ({"a": {"b": [lock]}}, ".a.b[0]"), ({(1, 2): lock}, "[(1, 2)]"), ([0, (1, lock)], "[1][1]"),
                            (Point(1, {2: lock}), "[1][2]"), (Shard("a", lock), ".rows"), ({lock: 1}, None),
                            (np.ma.array([1]), ""), (np.array([(1, None)], dtype=[("a", "i4"), ("b", "O")]), ""),
                            (collections.defaultdict(list), ""), (holder(1), None)):
            with self.subTest(value=value):
                if isinstance(value, holder):  # travels; who has no such class cannot read it
                    with self.assertRaises(dist.ObjectError):
                        decode_object(encode_object(value))
                    continue
                with self.assertRaises(dist.ObjectError) as caught:
                    encode_object(value)
                if path is not None:
                    self.assertEqual(caught.exception.path, path)

    def test_classes_are_rebuilt_without_running_them(self):
        data = encode_object(Shard("a", 1))
        calls.clear()
        self.assertEqual(decode_object(data).rows, 1)
        self.assertEqual(calls, [])

    def test_foreign_types_and_hostile_records_are_errors_that_name_the_place(self):
        with self.assertRaises(dist.ObjectError) as caught:
            encode_object({"model": [1, {"f": print}]})
        self.assertEqual(caught.exception.path, ".model[1].f")
        self.assertIn("allow_pickle", str(caught.exception))
        cycle = []
        cycle.append(cycle)
        with self.assertRaises(dist.ObjectError):
            encode_object(cycle)
        for record in (Record("python.pickle", data=b"cos\nsystem\n(S'false'\ntR."),
                       Record("python.dataclass", **{"class": "os:system", "fields": {}}),
                       Record("python.dataclass", **{"class": "antigravity:X", "fields": {}}),
                       Record("python.enum", **{"class": "subprocess:Popen", "value": "x"}),
                       Record("python.namedtuple", **{"class": __name__ + ":Point", "items": [1]}),
                       Record("python.set", items=[[1]]), Record("python.range", items="x"), Record("python.int", digits=3),
                       Record("numpy.ndarray", dtype="O", shape=[1], data=b"12345678")):
            with self.subTest(record=record), self.assertRaises(dist.ObjectError) as caught:
                decode_object(encode_object([record]))
            self.assertEqual(caught.exception.path[:3], "[0]")
        self.assertNotIn("antigravity", sys.modules)
        for data in (b"", b"\xc1", encode_object([1] * 100)[:-1]):
            with self.assertRaises(dist.ObjectError):
                decode_object(data)

    @rows("S9-005", "S9-006", "S9-008", "S9-009", "S9-010", "S9-011")
    def test_the_six_collectives(self):
        self.assertEqual(run_ranks(collectives), [[(0, "x"), (1, "x")], None])

    def test_ones_own_object_comes_as_it_comes_to_others(self):
        first, second = run_ranks(own)
        self.assertEqual(first, second)

    @rows("S9-001", "S9-002")
    def test_an_object_that_cannot_be_sent_is_an_error_on_all_ranks_and_pickle_is_opened_by_hand(self):
        (first, second), (third, fourth) = run_ranks(foreign)
        self.assertEqual([first[0], second[0]], [".layers[1]", "[1].f"])
        self.assertIn("could not be sent", third[1])
        self.assertEqual(third[0], "[0]")
        self.assertIn("[1]", fourth[0])


if __name__ == "__main__":
    main("python_" + pathlib.Path(__file__).stem)
