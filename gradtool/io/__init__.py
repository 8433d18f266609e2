"""Model files: the only room that reads and writes them."""

from gradtool.graph.limits import Limits
from gradtool.graph.tensors import array
from gradtool.io.arrays import save as save_arrays
from gradtool.io.constants import parse_set
from gradtool.io.dims import parse_dim, parse_shape, require_sizes, symbols
from gradtool.io.functions import inline_functions
from gradtool.io.load import from_proto, load
from gradtool.io.save import WriteOptions, save, save_together

__all__ = [
    "Limits",
    "WriteOptions",
    "array",
    "from_proto",
    "inline_functions",
    "load",
    "parse_dim",
    "parse_set",
    "parse_shape",
    "require_sizes",
    "save",
    "save_arrays",
    "save_together",
    "symbols",
]
