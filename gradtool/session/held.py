"""Parameters and state of a session from step to step: read by name and written."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal

import numpy as np
import onnx_ir as ir

from gradtool.errors import UsageError
from gradtool.exec.parameters import parameters_of
from gradtool.exec.shared_arena import Store
from gradtool.graph.stages import stage
from gradtool.graph.training_info import TrainingInfo
from gradtool.io import original
from gradtool.session.feeding import matching
from gradtool.text.words import some


class StateAccess:
    """Parameters and state, as they are now."""

    _models: Sequence[ir.Model]
    _store: Store
    _is_open: bool
    _given: dict[str, None]  # names of what was set

    @property
    def _model(self) -> ir.Model:
        return self._models[0]

    def _plan_anew(self) -> None:
        """Forget plans: what they read lies elsewhere now."""

    @property
    def _whole(self) -> ir.Model:
        """The model to save: more than the model that steps, where this is a part of it."""
        return self._model

    def values(self, *patterns: str, copy: bool = True) -> dict[str, np.ndarray[Any, Any]]:
        """The parameters and the state as they are now, by name.

        Args:
            patterns: names or globs; by default all that is trained, state, and what was `set`.
                One that matches none of these is of the tensors that stay as they are: frozen
                weights, running statistics in inference form.
            copy: the arrays are copies; False: on the CPU, views of the arena.

        Raises:
            UsageError: a pattern matches nothing, or the session is closed.
        """
        self._require_open()
        found = (name for model in self._models for name in _changing(model))
        names = list(dict.fromkeys((*found, *self._given)))
        if patterns:
            stays = (name for model in self._models for name in model.graph.initializers)
            names = matching(patterns, names, "parameter or state", list(dict.fromkeys(stays)))
        return {name: self._value(name, copy=copy) for name in names}

    def _value(self, name: str, *, copy: bool) -> np.ndarray[Any, Any]:
        held = self._store.value(name)
        if held is None:
            held = parameters_of(self._home(name))(name)
        device = self._store.device
        found: np.ndarray[Any, Any] = device.to_host(held) if copy or device.xp is not np else held
        return found

    @property
    def stepped(self) -> dict[str, np.dtype[Any]]:
        """The types of parameters and state that a step leaves next values of, by name."""
        names = TrainingInfo.of(self._model).state
        held = self._model.graph.initializers
        kinds = {name: held[name].dtype for name in names if name in held}
        return {name: np.dtype(dtype.numpy()) for name, dtype in kinds.items() if dtype is not None}

    @property
    def spans(self) -> dict[str, tuple[int, int]]:
        """Spans of parameters and state in the arena, in order: offsets and sizes in bytes."""
        return {name: (b.offset, b.bytes) for name, b in self._store.layout.items()}

    def span(self, names: Sequence[str]) -> Any:
        """A flat array over parameters or state of one type, where they lie.

        There may be a few bytes between the values, of no meaning.

        Args:
            names: neighbours among `spans`, in order.

        Raises:
            KeyError: a name is none of `spans`.
        """
        return self._store.span(names)

    @property
    def arena_bytes(self) -> int:
        """The bytes of the arena in which all plans lie."""
        return 0 if self._store.arena is None else int(self._store.arena.size)

    def save(
        self,
        path: str | os.PathLike[str],
        *,
        averages: bool = False,
        values: Mapping[str, np.ndarray[Any, Any]] | None = None,
        force: bool = False,
        external_data: Literal["auto", "always", "never"] = "auto",
        metadata: Mapping[str, str] | None = None,
    ) -> tuple[Path, int]:
        """Write the model that was loaded with the weights as they are now.

        Its nodes, opset, names and metadata are those of the file; running statistics are weights
        as well, and adapters go into theirs.  What only training needs, the state of an optimizer,
        is not part of it.

        Args:
            path: the file.
            averages: write the means that the graph keeps in place of their parameters.
            values: arrays in place of parameters and state as they are now, by name.
            force: replace a file that is there.
            external_data: `always` or `never`: weights lie in a file beside the model, or inside of
                it; `auto`: as in the file that was loaded.
            metadata: entries that are added to those of the model.

        Returns:
            The path, and the bytes that were written.

        Raises:
            UsageError: the output exists without `force`, or cannot be written; a weight that was
                trained is no tensor of the model; there are no averages; or the session is closed.
        """
        source = original.source_of(self._whole.meta)
        held = values or {}
        arrays = self._arrays(held, averages=averages)
        model, info = original.Original(source), TrainingInfo.of(self._whole)
        lacking = model.put(arrays, info.lora)
        lost = [name for name in lacking if self._is_trained_weight(name, held)]
        lost = model.put_at({name: arrays[name] for name in lost}, info.locations)
        if lost:
            raise UsageError(
                f"the original model has no tensor called {some(lost)}, whose numbers have changed;"
                " save the training graph with gradtool.save, and load that into a session"
            )
        model.note(metadata or {})
        return model.save(path, force=force, external_data=external_data)

    def weights(
        self, values: Mapping[str, np.ndarray[Any, Any]] | None = None, *, averages: bool = False
    ) -> dict[str, np.ndarray[Any, Any]]:
        """The arrays that `save` would write, by name, adapters beside their weights.

        Args:
            values: arrays in place of parameters and state as they are now, by name.
            averages: the means that the graph keeps, in place of their parameters.

        Raises:
            UsageError: there are no averages, or the session is closed.
        """
        names = changing_weights(self._whole)
        found = self._arrays(values or {}, averages=averages)
        return {name: array for name, array in found.items() if name in names}

    def _arrays(
        self, held: Mapping[str, np.ndarray[Any, Any]], *, averages: bool
    ) -> dict[str, np.ndarray[Any, Any]]:
        self._require_open()
        of = self.averages if averages else {}
        pairs = [
            (name, of.get(name, name) if of.get(name) in held or name not in held else name)
            for name in self._whole.graph.initializers
        ]
        return {
            name: held[source] if source in held else self._value(source, copy=False)
            for name, source in pairs
            if not self._is_only_updated(name)
            and (source in held or self._store.holds(source) or source in self._given)
        }  # fmt: skip

    @contextmanager
    def averaged(self, others: Mapping[str, Any] = MappingProxyType({})) -> Iterator[None]:
        """Parameters and the means that the graph keeps have changed places within the block.

        Args:
            others: means by name that are not held here as a whole; what lies in them changes.

        Raises:
            UsageError: there are no averages, or the session is closed.
        """
        self._require_open()
        pairs = [
            (held, others[mean] if mean in others else self._mean(mean))
            for name, mean in self.averages.items()
            if (held := self._store.value(name)) is not None
        ]
        _exchange(pairs)
        try:
            yield
        finally:
            _exchange(pairs)

    def _mean(self, name: str) -> Any:
        """A mean where it lies; a copy before any step has run."""
        held = self._store.value(name)
        if held is not None:
            return held
        return self._store.device.of_host(np.array(self._value(name, copy=True)))

    @property
    def averages(self) -> dict[str, str]:
        """By parameter, the state with its mean.

        Raises:
            UsageError: the graph keeps none.
        """
        found: dict[str, str] = {}
        for model in self._models:
            found |= TrainingInfo.of(model).averages
        if not found:
            raise UsageError("the graph keeps no averages of its parameters")
        return found

    def save_adapter(
        self,
        path: str | os.PathLike[str],
        *,
        values: Mapping[str, np.ndarray[Any, Any]] | None = None,
        force: bool = False,
    ) -> list[tuple[Path, int]]:
        """Write the adapters that were trained for themselves, in two files.

        The model that was loaded goes to `path`, with a place for them that is zero by default,
        and they to a file for onnxruntime's `LoraAdapter`, whose name ends in `.onnx_adapter`.

        Args:
            path: the file of the model.
            values: arrays in place of what is trained as it is now, by name.
            force: replace files that are there.

        Returns:
            The path and the bytes of each file, the model's first.

        Raises:
            UsageError: there are none, an output exists without `force`, or cannot be written; or
                the session is closed.
        """
        from gradtool.workloads import lora_files

        self._require_open()
        source = original.source_of(self._whole.meta)
        held = self.values(copy=False) if values is None else values
        weights = {n: held[n] for n in held if not self._is_only_updated(n)}
        adapters = TrainingInfo.of(self._whole).lora
        return lora_files.write(source, adapters, weights, path, force=force)

    def _home(self, name: str) -> ir.Model:
        """The model that has an initializer."""
        return next(model for model in self._models if name in model.graph.initializers)

    def _is_trained_weight(self, name: str, held: Mapping[str, np.ndarray[Any, Any]]) -> bool:
        """Whether an initializer has other numbers than at first."""
        first = parameters_of(self._whole)(name)
        now = held[name] if name in held else self._value(name, copy=False)
        return bool(first.tobytes() != now.tobytes())

    def _is_only_updated(self, name: str) -> bool:
        return is_only_updated(self._whole, name)

    def _require_open(self) -> None:
        if not self._is_open:
            raise UsageError("the session is closed: open another one")


def _exchange(pairs: Iterable[tuple[Any, Any]]) -> None:
    """Let arrays have the numbers of each other, one pair at a time."""
    for first, second in pairs:
        kept = first.copy()
        first[...] = second
        second[...] = kept


def is_only_updated(model: ir.Model, name: str) -> bool:
    """Whether nothing but the optimizer reads an initializer."""
    value = model.graph.initializers.get(name)
    return value is None or all(stage(use.node) == "update" for use in value.uses())


def changing_weights(model: ir.Model) -> dict[str, ir.Value]:
    """The initializers that change and are not the optimizer's alone: weights and statistics."""
    held = model.graph.initializers
    return {name: held[name] for name in _changing(model) if not is_only_updated(model, name)}


def _changing(model: ir.Model) -> list[str]:
    """The initializers to train, and state."""
    info = TrainingInfo.of(model)
    known = {*info.gradients, *info.state}
    return [name for name in model.graph.initializers if name in known]
