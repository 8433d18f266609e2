"""A runner of composite GitHub actions: what it puts into steps, and what it reads of them.

Source: docs.github.com, "Metadata syntax for GitHub Actions", "Workflow commands" and "Variables".
Expressions are names and calls without operators; anything else is an error here.
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml
from repository import environment

_EXPRESSION = re.compile(r"\$\{\{(.*?)\}\}", re.DOTALL)
_COMMAND = re.compile(r"::(?P<name>[a-z-]+)(?: (?P<properties>.*?))?::(?P<message>.*)")
_FILES = ("ENV", "OUTPUT", "PATH", "STEP_SUMMARY")


@dataclass(frozen=True)
class Annotation:
    """A workflow command as the runner understands it."""

    kind: str
    properties: Mapping[str, str]
    message: str


@dataclass
class Job:
    """What came of the steps of an action."""

    code: int = 0
    out: str = ""
    err: str = ""
    summary: str = ""
    ran: list[str] = field(default_factory=list)
    outputs: dict[str, dict[str, str]] = field(default_factory=dict)

    @property
    def annotations(self) -> list[Annotation]:
        """The errors, warnings and notices of the log."""
        found = map(_COMMAND.fullmatch, self.out.splitlines())
        return [_annotation(each) for each in found if each]


@dataclass
class Runner:
    """Runs the action in a folder; `temporary` is a folder of its own."""

    action: Path
    temporary: Path

    def __post_init__(self) -> None:
        self.definition = yaml.safe_load((self.action / "action.yml").read_text(encoding="utf-8"))
        self.temporary.mkdir()

    @property
    def steps(self) -> list[dict[str, Any]]:
        """The steps as they are written."""
        return self.definition["runs"]["steps"]

    def run(self, workspace: Path, inputs: Mapping[str, str]) -> Job:
        """The steps one after the other; once one failed, those that ask to run nevertheless."""
        known = self._known(inputs)
        job, kept, paths = Job(), {}, []
        for number, step in enumerate(self.steps):
            if not self._is_due(step, job, known):
                continue
            files = {name: self.temporary / f"{name.lower()}-{number}" for name in _FILES}
            for path in files.values():
                path.touch()
            done = self._step(step, workspace, known, kept, paths, files)
            job.ran.append(step["name"])
            job.out, job.err = job.out + done.stdout, job.err + done.stderr
            job.summary += files["STEP_SUMMARY"].read_text(encoding="utf-8")
            kept |= _assignments(files["ENV"])
            paths += files["PATH"].read_text(encoding="utf-8").splitlines()
            found = _assignments(files["OUTPUT"])
            job.outputs[step.get("id", "")] = found
            known |= {f"steps.{step.get('id')}.outputs.{n}": v for n, v in found.items()}
            job.code = job.code or done.returncode
        return job

    def _known(self, inputs: Mapping[str, str]) -> dict[str, str]:
        declared = self.definition["inputs"]
        unknown = set(inputs) - set(declared)
        assert not unknown, f"the action has no input {', '.join(sorted(unknown))}"
        given = {name: str(each["default"]) for name, each in declared.items()} | dict(inputs)
        named = {f"inputs.{name}": value for name, value in given.items()}
        return {**named, "github.action_path": str(self.action)}

    def _is_due(self, step: Mapping[str, Any], job: Job, known: Mapping[str, str]) -> bool:
        condition = str(step.get("if", "success()")).strip()
        status = {"always()": True, "success()": job.code == 0, "failure()": job.code != 0}
        if condition in status:
            return status[condition]
        return job.code == 0 and bool(resolved(f"${{{{ {condition} }}}}", known))

    def _step(self, step, workspace, known, kept, paths, files):
        assert step["shell"] == "bash"
        script = self.temporary / "script.sh"
        script.write_text(resolved(step["run"], known), encoding="utf-8")
        variables = {name: resolved(str(v), known) for name, v in step.get("env", {}).items()}
        shared = {
            "RUNNER_TEMP": str(self.temporary),
            "GITHUB_WORKSPACE": str(workspace),
            **{f"GITHUB_{name}": str(path) for name, path in files.items()},
        }
        seen = environment(**shared, **kept, **variables)
        seen["PATH"] = ":".join([*reversed(paths), seen["PATH"]])
        return subprocess.run(
            ["bash", "--noprofile", "--norc", "-eo", "pipefail", str(script)],
            cwd=workspace / resolved(step.get("working-directory", "."), known),
            env=seen,
            capture_output=True,
            encoding="utf-8",
            check=False,
        )


def resolved(text: str, known: Mapping[str, str]) -> str:
    """What the runner puts in the place of expressions."""
    return _EXPRESSION.sub(lambda found: known[found[1].strip()], text)


def _assignments(path: Path) -> dict[str, str]:
    """`NAME=value` lines, and values of several lines as `NAME<<END`."""
    found, lines = {}, iter(path.read_text(encoding="utf-8").splitlines())
    for line in lines:
        name, separator, value = re.split(r"(=|<<)", line, maxsplit=1)
        if separator == "<<":
            end, value = value, ""
            value = "\n".join(iter(lines.__next__, end))
        found[name] = value
    return found


def _annotation(found: re.Match[str]) -> Annotation:
    pairs = (part.split("=", 1) for part in (found["properties"] or "").split(",") if part)
    properties = {name: _unescaped(value, "\r\n:,") for name, value in pairs}
    return Annotation(found["name"], properties, _unescaped(found["message"], "\r\n"))


def _unescaped(text: str, special: str) -> str:
    for char in special:
        text = text.replace(f"%{ord(char):02X}", char)
    return text.replace("%25", "%")
