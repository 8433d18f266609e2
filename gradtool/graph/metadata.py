"""The keys of metadata: gradtool's, and those of exporters for the origin of a node.

docs/architecture.md says what gradtool's hold; those of a model are fields of `TrainingInfo`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from types import MappingProxyType

TYPE_CHECKING = False
if TYPE_CHECKING:
    import onnx_ir as ir

# By inference, of a value: its known elements.
ELEMENTS = "pkg.onnx_shape_inference.sym_data"

PREFIX = "gradtool."  # of all notes
SETTLED = "gradtool.settled"  # in memory: by input, the axes that nodes gave numbers
FORM = "gradtool.form"  # in memory: lines that say what was changed for training
ALIASES = "gradtool.aliases"  # in memory: by symbol of the file the size or symbol that it is now

# Of a node.
STAGE = "gradtool.stage"
SOURCE = "gradtool.source"
MIRROR = "gradtool.mirror"
GROUP = "gradtool.group"
HOISTED = "gradtool.hoisted"
CALL = "gradtool.call"
CALLEE = "gradtool.callee"
BARRIER = "gradtool.barrier"

# Of a value: a number, or a literal of the exported code, that its file had as a Constant node.
LITERAL = "gradtool.literal"

# Of sizes: how the names begin that tell which values lie in one place.
PLACE = "gradtool.place"

# Of a node, by PyTorch's exporter: the modules around it by name and by class, and lines of code.
SCOPES = "pkg.torch.onnx.name_scopes"
CLASSES = "pkg.torch.onnx.class_hierarchy"
TRACE = "pkg.torch.onnx.stack_trace"
NOTES = (SCOPES, CLASSES, TRACE)
FX_NODE = "pkg.torch.onnx.fx_node"  # the node of the exported program that a node is part of
_ATEN = re.compile(r"target=torch\.ops\.aten\.(\w+)")

LONGEST = 100_000  # characters of a note; a longer one is none

# Of a Gather: the row of its table that gets no gradient.
PADDING = "gradtool.padding"

_NOTHING: Mapping[str, str] = MappingProxyType({})


def notes(item: ir.Node | ir.Value | ir.Model) -> Mapping[str, str]:
    """The metadata of an item, to read: asking for an absent one allocates it."""
    return item._metadata_props or _NOTHING  # noqa: SLF001 - each takes 64 bytes, of every value


def aten(node: ir.Node) -> str:
    """The PyTorch operation of a node, `hardtanh`; empty if unknown."""
    found = _ATEN.search(notes(node).get(FX_NODE, "")[:LONGEST])
    return found[1] if found else ""
