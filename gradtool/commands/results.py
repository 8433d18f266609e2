"""Results of `gradtool train`: the files to write, and weights whose file cannot be written."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gradtool.errors import GradtoolError, UsageError
from gradtool.text.words import some

if TYPE_CHECKING:
    import onnx_ir as ir

    from gradtool.training.history import History
    from gradtool.training.progress import Best
    from gradtool.training.trainer import Trainer

Written = dict[str, tuple[str, int, int]]


@dataclass(frozen=True)
class Results:
    """The models to write, by content, and the folder of checkpoints.

    `files` are written beside, by the flag that names each.  Where adapters cannot be merged, they
    alone are written, with `apart` the model that has a place for them.
    """

    models: dict[str, str]
    apart: str
    files: Mapping[str, str]
    folder: str
    force: bool
    best: bool

    @classmethod
    def of(cls, source: str, folder: str, options: Mapping[str, Any]) -> Results:
        """Files of a command; refused now if a path cannot be written.

        Raises:
            UsageError: naming the path, or what goes with what.
        """
        from gradtool.io.sources import require_apart

        if source == "-" and options["output"] is None:
            raise UsageError("the model is read from standard input: name the output with -o FILE")
        if options["output"] == "-":
            raise UsageError("-o -: standard output tells how training went; name a file")
        evaluates = options["evaluate"] is not None or options["split"] is not None
        if options["result"] == "best" and not evaluates:
            raise UsageError(
                "--result best takes --eval DATA: nothing tells which weights are best"
            )
        found = {"trained": options["output"] or beside(source, "trained")}
        stem = found["trained"].replace(".trained.onnx", ".onnx")
        if options["ema"] is not None:
            found["ema"] = beside(stem, "ema")
        if options["lora_adapter"]:
            found["lora"] = beside(stem, "lora")
        apart = found.get("lora") or options["output"] or beside(source, "lora")
        files = {"--trace": options["trace"]} if options["trace"] is not None else {}
        made = cls(found, apart, files, folder, options["force"], options["result"] != "last")
        beside_it = [path for path in found.values() if path != found["trained"]]
        for path in (*beside_it, *made.adapters):
            require_apart({"output": path}, [source])
        made.require(force=options["force"] or options["resume"])
        return made

    def require(self, *, force: bool) -> None:
        """Refuse paths not writable, or in existence unless by `force`.

        Raises:
            UsageError: naming the path.
        """
        from gradtool.io import atomic

        for path in (*self.models.values(), *self.adapters):
            atomic.target(path, force=force)
        atomic.require_targets(self.files, force=force)

    @property
    def adapters(self) -> list[str]:
        """Adapter files beside a model with adapters."""
        from gradtool.commands.writing import unlinked
        from gradtool.workloads.lora_files import adapter_path

        if "lora" not in self.models:
            return []
        return [unlinked(str(adapter_path(self.models["lora"])))]

    def rehearse(
        self,
        training: ir.Model,
        finished: bool,  # noqa: FBT001 - a callback
        *,
        say: Callable[[str], object],
    ) -> None:
        """Refuse before the first step any write to fail after the last.

        Results of a training that is `finished` may be there.  What is written otherwise than the
        flags say, is said.

        Raises:
            GradtoolError: see `gradtool.training.rehearsal`.
        """
        from gradtool.training.rehearsal import rehearse, unmergeable

        coded = unmergeable(training)
        if coded and "ema" in self.models:
            raise UsageError(f"--ema: means cannot be merged into few bits: {some(coded, 3)}")
        if coded:
            self.models.clear()
            self.models["lora"] = self.apart
            say(
                f"adapters cannot be merged into few bits ({some(coded, 3)}): the result is "
                f"{self.apart}, with a place for them, and {self.adapters[0]}"
            )
        self.require(force=self.force or finished)
        rehearse(training, self.models, files=self.files)

    def write(
        self, trainer: Trainer, history: History, *, resumed: bool = False
    ) -> tuple[Written, list[str]]:
        """Write all models: path, bytes and step of each written one, and the errors of others.

        The weights of a model that cannot be written are kept as safetensors.  Where a training
        that is `resumed` was finished, what is there already stays.
        """
        stays = resumed and not history.losses and not self.force
        written: Written = {}
        failed: list[str] = []
        for what, path in self.models.items():
            if stays and all(map(os.path.lexists, self._files_of(what))):
                continue
            best = _best(history, what) if self.best else None
            step = history.step if best is None else best.step
            how: Any = {"best": best is not None, "force": self.force or stays}
            try:
                if what == "lora":
                    pairs = trainer.save_adapter(path, **how)
                else:
                    pairs = [trainer.save(path, averages=what == "ema", **how)]
            except (GradtoolError, OSError) as error:
                failed.append(f"{error}; {self._keep(trainer, path, what, best=best is not None)}")
            else:
                names = (what, "adapter") if what == "lora" else (what,)
                written |= {n: (str(p), s, step) for n, (p, s) in zip(names, pairs, strict=True)}
        return written, failed

    def _files_of(self, what: str) -> list[str]:
        return [self.models[what], *(self.adapters if what == "lora" else ())]

    def kept(self, trainer: Trainer, error: Exception) -> str:
        """The reason a training ended, and the place of weights without a checkpoint."""
        step = trainer.lost
        if step is None:
            return str(error)
        path = next(iter(self.models.values()))
        return f"{error}; step {step} was taken: {self._keep(trainer, path)}"

    def _keep(
        self, trainer: Trainer, path: str, what: str = "trained", *, best: bool = False
    ) -> str:
        """Keep weights in the nearest form; where they are."""
        from gradtool.training.salvage import salvage

        averages, which = what == "ema", "the weights"
        try:
            arrays = trainer.weights(best=best, averages=averages)
        except (GradtoolError, OSError) as error:
            arrays = trainer.weights(averages=averages)
            which = f"the best weights are gone ({error}); those of the last step"
        folders = (Path(self.folder), Path(path).parent, Path())
        place = salvage(Path(path).stem, arrays, folders)
        if place is None:
            return f"{which} could not be written anywhere either"
        return f"{which} are kept in {place}"


def _best(history: History, what: str) -> Best | None:
    """The evaluation whose weights a result has: of means that of the means."""
    return (history.best_ema if what == "ema" else None) or history.best


def beside(source: str, what: str, suffix: str = ".onnx", flag: str = "-o") -> str:
    """`model.onnx` becomes `model.<what>.onnx`.

    Raises:
        UsageError: a link is there, so that a `flag` has to name it.
    """
    from gradtool.commands.writing import unlinked

    stem = source.removesuffix(".onnxtxt").removesuffix(".onnx")
    return unlinked(f"{stem}.{what}{suffix}", flag)
