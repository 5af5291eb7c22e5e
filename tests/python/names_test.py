"""Every name, parameter and default of the inventory's S1 to S18 is in the package, in torch.distributed's order."""
import ast
import functools
import importlib
import inspect
import pathlib
import sys
import unittest
import warnings

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "tests/support"))
from rows import main

import tutti
import tutti.distributed as dist

NOWHERE = inspect.Parameter.empty


def lines(path):
    return [line.split("\t") for line in path.read_text().splitlines() if line and not line.startswith("#")]


def found(name):
    """What a dotted name stands for, or AttributeError that says which part is missing."""
    parts = name.split(".")
    for count in range(len(parts), 0, -1):
        try:
            value = importlib.import_module(".".join(parts[:count]))
            break
        except ModuleNotFoundError:
            pass
    for part in parts[count:]:
        if not hasattr(value, part):
            raise AttributeError(f"{name}: {value!r} has no {part}")
        value = getattr(value, part)
    return value


def parameters_of_text(text):
    """[(name, default as text or None, keyword only)] of "a, b=1, *, c"."""
    arguments = ast.parse(f"def f({text}): ...").body[0].args
    positional = arguments.posonlyargs + arguments.args
    defaults = [None] * (len(positional) - len(arguments.defaults)) + [ast.unparse(d) for d in arguments.defaults]
    return [(a.arg, d, False) for a, d in zip(positional, defaults)] + [
        (a.arg, d and ast.unparse(d), True) for a, d in zip(arguments.kwonlyargs, arguments.kw_defaults)]


@functools.cache
def types_in_cpp():
    return ast.parse((pathlib.Path(tutti.__file__).parent / "_core.pyi").read_text()).body


def in_types(function_or_class, name):
    """The parameters of what is written in C++, from the types that the package brings along."""
    body, parts = types_in_cpp(), name.split(".")
    classes = {node.name: node for node in body if isinstance(node, ast.ClassDef)}
    owner = next((part for part in parts if part in classes), None)
    method = "__init__" if inspect.isclass(function_or_class) else parts[-1]
    while owner is not None:
        for node in classes[owner].body:
            if isinstance(node, ast.FunctionDef) and node.name == method:
                plain = any(ast.unparse(d) == "staticmethod" for d in node.decorator_list)
                return parameters_of_text(ast.unparse(node.args))[0 if plain else 1:]
        bases = [ast.unparse(base) for base in classes[owner].bases]
        owner = bases[0] if bases else None
    node = next(node for node in body if isinstance(node, ast.FunctionDef) and node.name == method)
    return parameters_of_text(ast.unparse(node.args))


def parameters(value, name):
    """[(name, default as text or None, keyword only)] of a function or class."""
    try:
        given = list(inspect.signature(value).parameters.values())
    except ValueError:
        return in_types(value, name)
    if any(p.kind is p.VAR_POSITIONAL for p in given):
        return in_types(value, name)
    if inspect.isfunction(value) and inspect.isclass(found(name.rpartition(".")[0] or "tutti")):
        del given[0]  # self
    return [(p.name, None if p.default is NOWHERE else str(p.default) if isinstance(p.default, dist.ReduceOp)
             else repr(p.default), p.kind is p.KEYWORD_ONLY) for p in given]


def same_default(torchs, ours):
    if torchs is None or ours is None:
        return torchs == ours
    if torchs == "SUM":
        return "ReduceOp.SUM" in ours
    if torchs.startswith("timedelta"):
        return ours == "None" or "timedelta" in ours  # None: the store's, the group's
    return ast.literal_eval(torchs) == ast.literal_eval(ours)


def difference(wanted, ours):
    """What is wrong with a function's parameters; empty if nothing. It may have more that have a default."""
    if wanted.startswith("."):
        return "" if wanted[1:] in [name for name, _, _ in ours] else f"has no parameter {wanted[1:]}"
    expected = parameters_of_text(wanted)
    for place, (torchs, mine) in enumerate(zip(expected, ours)):
        if torchs[0] != mine[0] or torchs[2] != mine[2] or not same_default(torchs[1], mine[1]):
            return f"parameter {place} is {mine[0]}={mine[1]}: expected {torchs[0]}={torchs[1]}"
    if len(ours) < len(expected):
        return f"has no parameter {expected[len(ours)][0]}"
    more = [name for name, default, _ in ours[len(expected):] if default is None]
    return f"asks for {more[0]}, which torch does not have" if more else ""


class Names(unittest.TestCase):
    def test_every_name_of_torchs_has_a_line_here(self):
        wanted = {row[0] for row in lines(ROOT / "docs/torch-names.tsv") if int(row[0][1:].split("-")[0]) <= 18}
        here = {row[0] for row in lines(ROOT / "tests/python/names.tsv")}
        self.assertGreater(len(wanted), 150)
        self.assertEqual(wanted - here, set(), "rows of docs/torch-names.tsv without a line in tests/python/names.tsv")
        self.assertEqual(here - wanted, set(), "rows of tests/python/names.tsv that docs/torch-names.tsv does not know")

    def test_every_name_and_parameter_is_in_the_package(self):
        warnings.simplefilter("ignore", FutureWarning)  # of reduce_op
        for row, name, wanted in lines(ROOT / "tests/python/names.tsv"):
            with self.subTest(row=row, name=name):
                value = found(name)
                if wanted != "-":
                    self.assertEqual(difference(wanted, parameters(value, name)), "")

    def test_the_check_notices_what_is_missing_or_differs(self):
        ours = parameters_of_text("tensor, op=ReduceOp.SUM, group=None, async_op=False, *, timeout=None")
        self.assertEqual(difference("tensor, op=SUM, group=None, async_op=False", ours), "")
        for wanted in ("tensor, op=SUM, async_op=False", "tensor, op=SUM, group=None, async_op=True", ".dst", "x",
                       "tensor, op=SUM, group=None, async_op=False, more=1", "tensor, op, group=None"):
            self.assertNotEqual(difference(wanted, ours), "", wanted)
        with self.assertRaises(AttributeError):
            found("tutti.distributed.all_reduce_nothing")

    def test_what_the_package_says_that_it_has_is_there(self):
        for module in (tutti, dist, dist.plan, tutti.hfai.distributed, tutti.multiprocessing, tutti.errors,
                       tutti.futures, tutti.objects):
            for name in module.__all__:
                self.assertTrue(hasattr(module, name), f"{module.__name__}.{name}")

    def test_every_blocking_function_has_a_plan_and_a_timeout(self):
        for name in ("broadcast", "all_reduce", "reduce", "all_gather", "all_gather_into_tensor", "gather", "scatter",
                     "reduce_scatter", "reduce_scatter_tensor", "all_to_all_single", "all_to_all", "barrier", "send",
                     "recv"):
            with self.subTest(name=name):
                plain = [p for p in parameters(getattr(dist, name), name) if p[0] != "async_op"]
                self.assertEqual(parameters(getattr(dist.plan, name), name), plain)
                self.assertIn(("timeout", "None", True), plain)


if __name__ == "__main__":
    main("python_" + pathlib.Path(__file__).stem)
