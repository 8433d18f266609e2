"""Open sizes of a file: their names, and giving them values."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Any

import onnx
import onnx_ir as ir

from gradtool.errors import ModelError, OpenSizes, UsageError
from gradtool.graph import deciding
from gradtool.graph import walk as graphs
from gradtool.graph.limits import DEFAULT, Limits
from gradtool.graph.metadata import ALIASES
from gradtool.io import expressions, walk
from gradtool.io.solving import Known, solve
from gradtool.shapes import is_declared
from gradtool.text.words import some, suggest

_LETTER = re.compile(r"[^\W\d]")
_NAME = re.compile(r"[^\W\d][\w.]*")
# A name, or sums, differences and products of a few names and small numbers.
_TERM = r"(?:[^\W\d][\w.]*|\d{1,9})"
_USABLE = re.compile(rf"{_TERM}(?: ?[-+*] ?{_TERM}){{0,7}}")
_MOST_EXPRESSIONS = 256
MOST_SAID = 20  # names of symbols and inputs
_SIZE = re.compile(r"[0-9]{1,18}")


def parse_dim(text: str) -> tuple[str, int]:
    """`batch=32` as `("batch", 32)`; a size may be 0. Raises UsageError if it has another form."""
    name, _, size = text.rpartition("=")
    if not name.strip() or not _SIZE.fullmatch(size.strip()):
        raise UsageError(f"--dim {text!r}: write NAME=SIZE with a whole number, as in batch=32")
    return name.strip(), int(size)


def parse_shape(text: str) -> tuple[str, tuple[int, ...]]:
    """`x=32x3x224x224`, `x:32,3,224,224` or `x:[32,3,224,224]` as `("x", (32, 3, 224, 224))`.

    Raises:
        UsageError: it has another form.
    """
    split = max(text.rfind("="), text.rfind(":"))
    name, sizes = text[:split].strip(), text[split + 1 :].strip()
    if sizes.startswith("[") and sizes.endswith("]"):
        sizes = sizes[1:-1].strip()
    fields = [field.strip() for field in re.split("[x,]", sizes)] if sizes else []
    if split < 1 or not name or not all(_SIZE.fullmatch(f) for f in fields):
        raise UsageError(
            f"--shape {text!r}: write NAME=SIZES with whole numbers, as in x=32x3x224x224"
        )
    return name, tuple(int(field) for field in fields)


def parse_set(text: str) -> tuple[str, str]:
    """`rate=16000` as `("rate", "16000")`. Raises UsageError if it has another form."""
    name, _, value = text.rpartition("=")
    if not name.strip() or not value.strip():
        raise UsageError(f"--set {text!r}: write INPUT=VALUE, as in rate=16000 or use_cache=false")
    return name.strip(), value.strip()


def symbols(model: ir.Model) -> list[str]:
    """The free symbols in the shapes of the graph's inputs, in order of appearance."""
    found: dict[str, None] = {}
    for value in _inputs(model):
        for dim in value.shape or ():
            if isinstance(dim, ir.SymbolicDim):
                found.update(dict.fromkeys(_free(dim)))
    return list(found)


def require_sizes(model: ir.Model, known: Collection[str] = ()) -> None:
    """Refuse a model with open sizes other than `known` ones.

    Raises:
        OpenSizes: with the flags that give them.
    """
    missing = [name for name in symbols(model) if name not in known]
    inferred = filter(deciding.is_inferred, missing)
    if missing:
        decided = {name: deciding.of_symbol(model.graph, name) for name in inferred}
        raise OpenSizes(missing, decided)


def check_count(model: ir.Model, limits: Limits) -> None:
    """Refuse a model with too many open sizes to reckon with.

    Raises:
        ModelError: with some of them.
    """
    found = symbols(model)
    if len(found) > limits.symbols:
        raise ModelError(
            f"its inputs have {len(found)} open sizes ({some(found, 3)}); the limit is "
            f"{limits.symbols}: give others with --dim {found[0]}=N"
        )


def bind(
    model: ir.Model,
    dims: Mapping[str, int],
    shapes: Mapping[str, Sequence[int]],
    batch: int | None,
    told: Iterable[Known] = (),
) -> None:
    """Give sizes to symbols in the shapes of the graph's inputs, everywhere they occur.

    `dims` is by symbol, `shapes` by input, `batch` the leading symbol of the first input, or
    where its first size is fixed the one symbol that is called batch; `told` are sizes known
    otherwise. Other values keep their shapes: infer them again afterwards. `model.meta` then has
    `gradtool.dims`, size by symbol.

    Raises:
        UsageError: no such symbol or input, or another size is fixed already.
    """
    bindings, summed = _by_symbol(model, dims)
    known = [k for name, sizes in shapes.items() for k in _known(_input(model, name), sizes)]
    bindings = solve([*told, *known, *summed], bindings)
    if batch is not None:
        _bind_batch(model, batch, bindings)
    if bindings:
        declared = (node.outputs for node in graphs.nodes(model.graph) if is_declared(node))
        for value in chain(_inputs(model), *declared):
            if value.shape is not None:
                value.shape = ir.Shape(_evaluate(dim, bindings, value) for dim in value.shape)
    for name, sizes in shapes.items():
        _input(model, name).shape = ir.Shape(sizes)
    model.meta["gradtool.dims"] = bindings


def _inputs(model: ir.Model) -> Iterator[ir.Value]:
    """The inputs given by a caller: those without a default."""
    return (value for value in model.graph.inputs if value.const_value is None)


def _by_symbol(model: ir.Model, dims: Mapping[str, int]) -> tuple[dict[str, int], Sequence[Known]]:
    """Sizes by symbol, and those of symbols of the file that are expressions of others now."""
    known, aliases = symbols(model), model.meta.get(ALIASES, {})
    bindings: dict[str, int] = {}
    summed: list[Known] = []
    for given, size in dims.items():
        name = given if given in {*known, *aliases} else safe_name(given)
        now = aliases.get(name, name)
        if now is None or now == size:
            continue
        if isinstance(now, int):
            raise UsageError(
                f"--dim {given}={size}: it is {now}, as caches are empty in training; --keep-cache "
                "leaves it open"
            )
        if now != name and now not in known:
            summed.append(Known(f"--dim {given}", 0, ir.SymbolicDim(now), size))
            continue
        name = now
        if name not in known and deciding.is_inferred(name):
            raise UsageError(
                f"--dim {given}: no size of an input, but one that inference named: the message "
                "that has this name says which flag decides it"
            )
        if name not in known:
            raise UsageError(f"--dim {given}: no such symbol; {_choices('symbols', name, known)}")
        _bind(bindings, name, size, f"--dim {given}")
    return bindings, summed


def _input(model: ir.Model, name: str) -> ir.Value:
    values = {value.name: value for value in _inputs(model) if value.name}
    if name not in values:
        raise UsageError(f"--shape {name}: no such input; {_choices('inputs', name, list(values))}")
    return values[name]


def _choices(what: str, name: str, known: Sequence[str]) -> str:
    if not known:
        return f"the model has no {what}"
    return f"{what}: {some(known, MOST_SAID)}{suggest(name, known)}"


def _known(value: ir.Value, sizes: Sequence[int]) -> Iterator[Known]:
    """The symbols told by the shape given for a whole input."""
    where = f"--shape {value.name}"
    if value.shape is None:
        value.shape = ir.Shape(sizes)
    if len(value.shape) != len(sizes):
        raise UsageError(f"{where}: {len(sizes)} sizes for an input of {len(value.shape)} axes")
    for axis, (dim, size) in enumerate(zip(value.shape, sizes, strict=True)):
        if isinstance(dim, int) and dim != size:
            raise UsageError(f"{where}: axis {axis} is fixed at {dim} in the model, not {size}")
        if isinstance(dim, ir.SymbolicDim) and dim.value is not None:
            yield Known(where, axis, dim, size)


def _bind_batch(model: ir.Model, batch: int, bindings: dict[str, int]) -> None:
    first = next((value for value in _inputs(model) if value.shape), None)
    if first is None or first.shape is None:
        raise UsageError("--batch: no input of the model has a leading axis")
    leading = first.shape[0]
    if isinstance(leading, int):
        named = [name for name in symbols(model) if "batch" in name.lower()]
        if len(named) == 1:
            _bind(bindings, named[0], batch, "--batch")
        elif leading != batch:
            raise UsageError(
                f"--batch {batch}: input {first.name!r} is fixed at batch {leading} in the model"
            )
    elif leading.value is None:
        first.shape = ir.Shape([batch, *list(first.shape)[1:]])
    else:
        names = list(_free(leading))
        if names != [leading.value]:
            raise UsageError(f"--batch: input {first.name!r} leads with {leading}; use --dim")
        _bind(bindings, names[0], batch, "--batch")


def _bind(bindings: dict[str, int], name: str, size: int, where: str) -> None:
    if bindings.setdefault(name, size) != size:
        raise UsageError(f"{where}: {name} is given as {bindings[name]} and as {size}")


def _free(dim: ir.SymbolicDim) -> Iterator[str]:
    """The symbols of a size, in the order they are written."""
    text = dim.value or ""
    if _NAME.fullmatch(text):
        yield text
    else:
        names = dim.free_symbols()
        yield from dict.fromkeys(name for name in _NAME.findall(text) if name in names)


def _evaluate(
    dim: int | ir.SymbolicDim, bindings: Mapping[str, int], value: ir.Value
) -> int | ir.SymbolicDim:
    if isinstance(dim, int) or dim.value is None:
        return dim
    size = dim.evaluate(bindings)
    is_open = isinstance(size, ir.SymbolicDim) and any(_free(size))
    if not is_open and (not isinstance(size, int) or size < 0):
        raise UsageError(f"input {value.name!r}: {dim} is {size} with the sizes that were given")
    return size


def safe_name(text: str) -> str:
    """A symbol for any text: letters, digits and underscores, a letter first."""
    name = re.sub(r"\W+", "_", text)[: DEFAULT.symbol_length]
    return name if _NAME.fullmatch(name) else f"dim_{name}"


def tidy(model: onnx.ModelProto, limits: Limits = DEFAULT) -> None:
    """Make every symbol computable, and name nameless sizes.

    A symbol is any text in ONNX. One that is neither a name nor a simple expression of names is
    renamed everywhere (`9**9**9` must stay a name); one without a letter (`?`) names nothing.
    The sizes of inputs may be larger expressions, from which symbols can be solved.
    """
    settled, opaque = _settle_expressions(model)
    every = [dim for shape in walk.shapes(model) for dim in shape.dim]
    for dim in every:
        if dim.WhichOneof("value") == "dim_param" and not dim.dim_param:
            dim.ClearField("value")
    dimensions = [dim for dim in every if dim.dim_param]
    taken = {dim.dim_param for dim in dimensions}
    renamed: dict[str, str] = {}
    for dim in dimensions:
        text = dim.dim_param
        if text == "None" or not _LETTER.search(text):
            dim.ClearField("value")
        elif text not in settled and (text in opaque or not _is_usable(text, limits)):
            if text not in renamed:
                renamed[text] = _unused(safe_name(text), taken)
            dim.dim_param = renamed[text]
    for value in model.graph.input:
        for axis, dim in enumerate(value.type.tensor_type.shape.dim):
            if dim.WhichOneof("value") is None:
                dim.dim_param = _unused(safe_name(f"{value.name}_dim{axis}"), taken)


def _is_usable(text: str, limits: Limits) -> bool:
    return len(text) <= limits.symbol_length and _USABLE.fullmatch(text) is not None


def _settle_expressions(model: onnx.ModelProto) -> tuple[set[str], set[str]]:
    """Write expressions among sizes of inputs in computable form.

    Returns those expressions, and the texts that only look like one: where no size of an input
    tells the symbols in it, the text is a name (`batch-size`).
    """
    dims = [dim for v in model.graph.input for dim in v.type.tensor_type.shape.dim if dim.dim_param]
    texts = dict.fromkeys(dim.dim_param for dim in dims)
    written = [text for text in texts if not _NAME.fullmatch(text)][:_MOST_EXPRESSIONS]
    parsed = {text: found for text in written if (found := expressions.parse(text)) is not None}
    told = _told(list(parsed.values()), {text for text in texts if _NAME.fullmatch(text)})
    opaque = {text for text, expr in parsed.items() if not _names(expr) <= told}
    for dim in dims:
        if dim.dim_param in parsed and dim.dim_param not in opaque:
            dim.dim_param = str(parsed[dim.dim_param])
    return {str(expr) for text, expr in parsed.items() if text not in opaque}, opaque


def _told(written: Sequence[Any], plain: set[str]) -> set[str]:
    """The symbols told by sizes: those that are one, and those that follow, as N of `2*N`."""
    told, before = set(plain), -1
    while len(told) > before:
        before = len(told)
        for expr in written:
            left = sorted(_names(expr) - told)
            if len(left) == 1 and expressions.linear(expr, left[0]) is not None:
                told.add(left[0])
    return told


def _names(expr: Any) -> set[str]:
    return {str(symbol) for symbol in expr.free_symbols}


def _unused(base: str, taken: set[str]) -> str:
    name, number = base, 1
    while name in taken:
        number += 1
        name = f"{base}_{number}"
    taken.add(name)
    return name
