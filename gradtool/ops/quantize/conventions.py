"""Conventions of the quantize family at kinks, ties and poles."""
# fmt: off

from gradtool.ops.conventions import convention

convention(
    ("QuantizeLinear", "DequantizeLinear", "Cast"), "rounding to 8 bits or fewer",
    "of what is computed: straight through where it does not saturate; of a parameter: with "
    "--ste only",
    "never silently",
)
