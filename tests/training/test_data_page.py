"""The lines of docs/data.md run as they stand."""

import re
import shlex
from pathlib import Path

import numpy as np
from conftest import build
from data_sources import image_model, normal, write_images

PAGE = Path(__file__).parents[2] / "docs" / "data.md"


def test_a_stranger_trains_on_a_folder_and_on_a_table_in_three_lines_each(run, model, tmp_path):
    model(image_model(), "net.onnx")
    write_images(tmp_path / "images", count=20, size=(16, 20))
    table = "net (float[batch, 4] x) => (float[batch, 3] y) { y = MatMul (x, w) }"
    model(build(table, w=normal(4, 3)), "table.onnx")
    rng = np.random.default_rng(5)
    names = ("setosa", "versicolor", "virginica")
    rows = [
        ",".join([*map(str, rng.standard_normal(4) + 2 * (n % 3)), names[n % 3]])
        for n in range(60)
    ]  # fmt: skip
    (tmp_path / "table.csv").write_text("\n".join(["f1,f2,f3,f4,species", *rows]))
    lines = re.findall(r"^gradtool (.*?)(?: +#.*)?$", PAGE.read_text("utf-8"), re.MULTILINE)

    assert len(lines) == 6
    for line in lines:
        outcome = run(*shlex.split(line))
        assert outcome.code == 0, (line, outcome.err)
    for name in ("net", "table"):
        assert (tmp_path / f"{name}.trained.trained.onnx").is_file()
