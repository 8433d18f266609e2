"""The model of a plan, written beside the one it was made from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gradtool.operators.kernel_sets import NONE

if TYPE_CHECKING:
    from gradtool.commands.output import Reporter
    from gradtool.commands.plans import Plans
    from gradtool.commands.workloads import Opened
    from gradtool.io import layout
    from gradtool.reports.plans import PlansDocument
    from gradtool.workloads.plans import Strategy


def write(
    reporter: Reporter, opened: Opened, strategy: Strategy, kind: str, options: Mapping[str, Any]
) -> None:
    """Write the model of a plan as `MODEL.<kind>.onnx`, and say its saving.

    Into a file that ends in `.json` goes the plan itself.
    """
    from gradtool.commands.plans import plan
    from gradtool.workloads import plan_files, plans, strategies
    from gradtool.workloads.export import save
    from gradtool.workloads.ort_options import how_to_load

    target = options["output"] or default_target(opened.name, kind)
    if opened.work.kernels == NONE:
        reporter.say(
            "planned for other runtimes: no workspace is counted (--kernels numpy counts ours)"
        )
    both = plan(reporter, opened, [strategies.keep, strategy])
    found = both.found[-1]
    if target.endswith(plan_files.SUFFIX):
        size = plan_files.save(opened.work, found, target, force=options["force"])
        _show(reporter, both, (target, size), options["form"])
        return
    model = plans.write(opened.work, found)
    hint = how_to_load(model, barrier=options["barrier"])
    path, size = save(
        model,
        target,
        force=options["force"],
        external_data=options["external_data"],
        functions=options["functions"],
        barrier=options["barrier"],
        portable=options["portable"],
        say=reporter.say,
        stock=True,
        own=True,
    )
    _show(reporter, both, (str(path), size), options["form"])
    if hint:
        reporter.say(hint)


def require_target(source: str, kind: str, options: Mapping[str, Any]) -> bool:
    """Whether to overwrite: with `--force`, or where gradtool wrote it.

    A file that may not be overwritten or cannot be written is refused before any work is done.

    Raises:
        UsageError: the file is there and `--force` is not, its folder cannot be written to, or
            standard output cannot take a model.
    """
    target = options["output"] or default_target(source, kind)
    return require_models(source, [target], options["external_data"], force=options["force"])


def require_models(
    source: str, targets: Sequence[str], external_data: layout.Where, *, force: bool
) -> bool:
    """The same of any files that models go to."""
    from gradtool.io import atomic
    from gradtool.io.ours import is_replaceable
    from gradtool.io.save import STDOUT, require_stdout
    from gradtool.io.sources import require_apart

    for target in targets:
        require_apart({"output": target}, [source])
    force = force or all(is_replaceable(each, source) for each in targets if Path(each).exists())
    for target in targets:
        if target == STDOUT:
            require_stdout(external_data)
        else:
            atomic.target(target, force=force)
    return force


def planned_for(options: Mapping[str, Any]) -> dict[str, Any]:
    """The options with the kernels of a file: none for one in a form for other runtimes."""
    from gradtool.operators.kernel_sets import AUTO
    from gradtool.workloads.plan_files import SUFFIX

    is_auto = options["kernels"] == AUTO and not (options["output"] or "").endswith(SUFFIX)
    return {**options, "kernels": NONE} if options["portable"] and is_auto else {**options}


def default_target(source: str, kind: str) -> str:
    """`model.onnx` and `model.grad.onnx` become `model.<kind>.onnx`; a stream stays one."""
    if source == "-":
        return "-"
    suffix = ".onnxtxt" if source.endswith(".onnxtxt") else ".onnx"
    return unlinked(f"{source.removesuffix(suffix).removesuffix('.grad')}.{kind}{suffix}")


def unlinked(path: str, flag: str = "-o") -> str:
    """A path that nobody has named: only the links of one that somebody names are followed.

    Raises:
        UsageError: a link is there.
    """
    from gradtool.errors import UsageError

    if Path(path).is_symlink():
        raise UsageError(f"{path}: is a link: name it with {flag} to write where it leads")
    return path


def _show(reporter: Reporter, both: Plans, written: tuple[str, int], form: str) -> None:
    """Show the savings of a plan: a remark if stdout is the model's."""
    path, size = written
    if path == "-":
        from gradtool.reports.plans import one_line

        for line in (*both.found[-1].notes, one_line(both.rows)):
            reporter.say(line)
    elif form == "json":
        document: PlansDocument = {**both.document(), "written": path, "bytes": size}
        reporter.json(document)
    else:
        from gradtool.commands.plans import show

        show(reporter, both, form, {path: size})
