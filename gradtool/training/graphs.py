"""The graphs that training steps through: one that updates as it goes, or one for each half."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np
import onnx_ir as ir

from gradtool import io
from gradtool.emit.builder import Builder
from gradtool.errors import UsageError
from gradtool.graph.randomness import numbers_of
from gradtool.graph.reads import reads
from gradtool.graph.stages import seed_of
from gradtool.graph.training_info import Names, TrainingInfo
from gradtool.io.stored import Stored
from gradtool.passes.accumulation import accumulating, updating
from gradtool.passes.averages import add_averages
from gradtool.passes.evaluation import evaluation
from gradtool.passes.loss_parts import LossParts, in_parts
from gradtool.passes.second_order import is_training_graph
from gradtool.passes.update_groups import Updates
from gradtool.training.input_spec import InputSpec
from gradtool.training.options import TrainOptions
from gradtool.workloads.grad_options import GradOptions
from gradtool.workloads.plan_files import fingerprint
from gradtool.workloads.training import TrainingGraph

Differentiate = Callable[[GradOptions], TrainingGraph]
DIGITS = 16  # of the hash of a graph
UNKNOWN = LossParts(None, "it is not known")
_MOST_HASHED = 1 << 32  # bytes of weights that stay as they are


@dataclass(frozen=True)
class Graphs:
    """The graphs of a step.

    `update` is there where gradients are added up first.  `model` is `training`'s, or that with
    the memory plan that was asked for; `rate` the input with the learning rate, `first` what that
    is where nobody says.  `said` is what people should hear about `update`, `of` has the parameter
    by its state.  `parts` tells how the loss of a batch follows from those of its parts, in `model`
    where gradients are added up, else in `forward`, which then evaluates in its place.  `original`
    is the same however a step is taken.
    """

    training: TrainingGraph
    model: ir.Model
    update: ir.Model | None
    rate: str
    first: float
    said: tuple[str, ...] = ()
    of: Mapping[str, str] = field(default_factory=dict)
    parts: LossParts = UNKNOWN
    forward: ir.Model | None = None
    original: Original | None = None

    @property
    def inner(self) -> tuple[str, ...]:
        """Inputs that the loop gives, not the data."""
        seed = seed_of(self.training.model)
        draws = numbers_of(self.training.model)
        seeds = () if seed is None else (seed,)
        return (self.rate, *seeds, *draws.values(), *self.parts.inputs)

    def drawing(self, seed: int, step: int, part: int) -> dict[str, int]:
        """The inputs that make the draws of a part those of the whole."""
        values = {"seed": seed, "step": step, "part": part}
        return {name: values[what] for what, name in numbers_of(self.training.model).items()}

    def scaling(self, scale: float) -> dict[str, np.ndarray[Any, Any]]:
        """The inputs that make the gradient of the loss `scale`."""
        name = seed_of(self.training.model)
        shapes = {v.name: v.shape for v in self.training.model.graph.inputs}
        shape = None if name is None else shapes[name]
        if name is None or shape is None:
            return {}
        return {name: np.full(shape.numpy(), scale, self.loss_type)}

    @property
    def loss_type(self) -> np.dtype[Any]:
        """The type of the loss."""
        outputs = {v.name: v for v in self.training.model.graph.outputs}
        dtype = outputs[self.training.loss].dtype
        assert dtype is not None  # noqa: S101 - a loss is a float
        return np.dtype(dtype.numpy())

    @property
    def sums(self) -> frozenset[str]:
        """State that is zero between steps: the sums of gradients."""
        return frozenset() if self.update is None else frozenset(self.sums_of.values())

    @property
    def sums_of(self) -> Names:
        """The sums of gradients by parameter."""
        assert self.update is not None  # noqa: S101 - asked where there are two halves
        return TrainingInfo.of(self.update).gradients

    @property
    def trained(self) -> tuple[str, ...]:
        """The parameters whose gradients are added up, in the order of the graph."""
        assert self.update is not None  # noqa: S101 - asked where there are two halves
        return tuple(self.sums_of)

    @property
    def models(self) -> tuple[ir.Model, ...]:
        """Both halves, or the whole."""
        return (self.model, *(() if self.update is None else (self.update,)))

    def described(self) -> dict[str, Any]:
        """The fingerprint of a model, the same for a step of one graph or two."""
        graph, info = self.training.model.graph, TrainingInfo.of(self.training.model)
        parameters = {n: v for n, v in graph.initializers.items() if n in self.learns}
        return {
            "parameters": {n: f"{v.dtype.name if v.dtype else ''}{v.shape}"
                           for n, v in parameters.items()},
            "graph": self.original.graph if self.original else "",
            "constants": self._checksum({*info.state, *parameters}),
            "set": dict(info.fixed),
        }  # fmt: skip

    def _checksum(self, changing: set[str]) -> str:
        """A checksum of the weights of forward that stay as they are.

        It is of their names where they are too many.
        """
        read = self.original.constants if self.original else {}
        held = {name: tensor for name, tensor in read.items() if name not in changing}
        small = sum(tensor.nbytes for tensor in held.values()) <= _MOST_HASHED
        found = 0
        for name, tensor in sorted(held.items()):
            found = zlib.crc32(name.encode(), found)
            if small and tensor.dtype != ir.DataType.STRING:
                found = zlib.crc32(np.ascontiguousarray(io.array(tensor)).tobytes(), found)
        return f"{found:08x}"

    @property
    def learns(self) -> frozenset[str]:
        """The parameters that are trained."""
        gradients = TrainingInfo.of(self.training.model).gradients
        return frozenset((*self.training.updates, *gradients))

    def planned(self, model: ir.Model) -> Graphs:
        """The same with a memory plan in it."""
        return replace(self, model=model)

    def require(self, arrays: Mapping[str, object]) -> None:
        """Hold a checkpoint's tensors against the trained ones; it may have what is frozen as well.

        Raises:
            UsageError: it lacks some, or has others.
        """
        wanted = {n for model in self.models for n in TrainingInfo.of(model).state} - self.sums
        odd = sorted((wanted ^ arrays.keys()).difference(self.frozen(arrays)))
        if odd:
            there = "has" if odd[0] in arrays else "lacks"
            raise UsageError(f"the checkpoint {there} {odd[0]!r}: it is of another training")

    def frozen(self, arrays: Mapping[str, object]) -> list[str]:
        """The names of a checkpoint's arrays that a step reads and does not change."""
        held, state = self.model.graph.initializers, TrainingInfo.of(self.model).state
        return [n for n in arrays if n in held and n not in state and n not in self.learns]

    def put(self, arrays: Mapping[str, np.ndarray[Any, Any] | Stored]) -> None:
        """Begin with the parameters and the state of a checkpoint."""
        forward = () if self.forward is None else (self.forward,)
        for model in (*self.models, *forward):
            for name, value in model.graph.initializers.items():
                if name in arrays:
                    value.const_value = _tensor(arrays[name], value)


def _tensor(array: np.ndarray[Any, Any] | Stored, of: ir.Value) -> ir.TensorProtocol:
    """An array as a tensor; one in a file is read when it is asked for, and not kept."""
    assert of.dtype is not None  # noqa: S101 - an initializer has a type
    if not isinstance(array, Stored):
        return ir.Tensor(array, dtype=of.dtype, name=of.name)
    read = partial(_read, array, of.dtype)
    return ir.LazyTensor(read, dtype=of.dtype, shape=ir.Shape(array.shape), name=of.name)


def _read(array: Stored, dtype: ir.DataType) -> ir.TensorProtocol:
    return ir.Tensor(np.asarray(array), dtype=dtype)


@dataclass(frozen=True)
class Original:
    """A forward graph with its loss, before that is rewritten: its hash, and what it reads."""

    graph: str
    constants: Mapping[str, ir.TensorProtocol]

    @classmethod
    def of(cls, graph: ir.Graph) -> Original:
        """The facts of a graph without a backward pass."""
        read = {v for node in graph for v in reads(node)}
        held = {n: v.const_value for n, v in graph.initializers.items() if v in read}
        constants = {name: tensor for name, tensor in held.items() if tensor is not None}
        return cls(fingerprint(graph)[:DIGITS], constants)


class _OnLoss:
    """Splits the loss of a graph into parts on demand, and records how."""

    def __init__(self, takes: InputSpec | None, *, in_parts: bool) -> None:
        self._takes, self._in_parts = takes, in_parts
        self.found = UNKNOWN
        self.original: Original | None = None

    def __call__(self, op: Builder, loss: ir.Value, trained: Sequence[ir.Value]) -> ir.Value:
        """Rewrite the forward graph; the loss."""
        self.original = Original.of(op.graph)
        if not self._in_parts:
            return loss
        takes = self._takes or InputSpec.of(op.model)
        loss, self.found = in_parts(op, loss, takes.axes, takes.symbol, takes.size, trained)
        return loss


def evaluated_in_parts(graphs: Graphs, takes: InputSpec) -> Graphs:
    """Graphs of a whole step, with a forward model whose loss is put together from batches."""
    model = evaluation(graphs.training.model)
    op = Builder(model, stage="forward")
    held = model.graph.initializers
    trained = [held[name] for name in sorted(graphs.learns) if name in held]
    loss = next(v for v in model.graph.outputs if v.name == graphs.training.loss)
    hook = _OnLoss(takes, in_parts=True)
    hook(op, loss, trained)
    return replace(graphs, parts=hook.found, forward=model)


@dataclass(frozen=True)
class Recipe:
    """The recipe of training graphs: a model and options.

    `said` are lines for people about the model.
    """

    differentiate: Differentiate
    options: GradOptions
    said: tuple[str, ...] = ()

    @property
    def updates(self) -> Updates:
        """The updates that the options ask for."""
        return Updates.of(vars(self.options))


def graphs_of(
    recipe: Recipe, options: TrainOptions, *, in_two: bool, takes: InputSpec | None = None
) -> Graphs:
    """The graphs of a step; that of its gradients alone where updates have to wait for them.

    They are `in_two` where gradients are added up before anything is updated.  `takes` tells along
    which axes there are examples, where the model's inputs do not.

    Raises:
        UsageError: the model holds gradients already, or there is nothing to update.
    """
    hook = _OnLoss(takes, in_parts=in_two)
    if in_two:
        gradients = recipe.options.without_updates()
        training = recipe.differentiate(
            replace(gradients, grad_buffers=True, loss_seed=True, on_loss=hook)
        )
        accumulated = accumulating(training.model)
        made = updating(accumulated, recipe.updates)
        update: ir.Model | None = made.model
        said, of = made.said, dict(made.of)
    else:
        training = recipe.differentiate(replace(recipe.options, on_loss=hook))
        update, said, of = None, (), {}
    _require_loss(training)
    last = training.model if update is None else update
    if options.ema is not None:
        trained = TrainingInfo.of(update).gradients if update else training.updates
        of |= add_averages(last, list(trained), options.ema, training.model)
    info = TrainingInfo.of(last)
    assert info.optimizer is not None  # noqa: S101 - the last one updates
    rate = info.optimizer.lr
    first = float(info.defaults[rate])
    return Graphs(
        training, training.model, update, rate, first, said, of, hook.found, original=hook.original
    )


def _require_loss(training: TrainingGraph) -> None:
    """Refuse a step without a loss, or with one that is of any of several outputs."""
    if training.loss is None:
        raise UsageError("to train takes a loss: leave out head_grads")
    if training.others:
        names = ", ".join(training.others)
        raise UsageError(
            f"the loss may be of {names} as well as {training.loss_said}: name it with --loss, as "
            f"ce:{training.others[0]}, or several, which are added"
        )


def require_forward(model: ir.Model) -> None:
    """Raise UsageError where a model is no forward model: its step is made here."""
    if is_training_graph(model):
        raise UsageError(
            "the model holds its gradients already: give the model that it was made from, training "
            "builds the step"
        )
