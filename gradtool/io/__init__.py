"""Model files: the only room that reads and writes them."""

from gradtool.graph.limits import Limits
from gradtool.graph.tensors import array
from gradtool.io.dims import parse_dim, parse_set, parse_shape, require_sizes, symbols
from gradtool.io.load import from_proto, load
from gradtool.io.save import WriteOptions, save, save_together

__all__ = [
    "Limits",
    "WriteOptions",
    "array",
    "from_proto",
    "load",
    "parse_dim",
    "parse_set",
    "parse_shape",
    "require_sizes",
    "save",
    "save_together",
    "symbols",
]
