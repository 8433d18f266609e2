"""Prints what commands look like on terminals of 60, 80 and 120 columns.

    python benchmarks/terminal_pictures.py DIR [WIDTH...]

Writes a page of HTML for each width, and with Chromium on the path a picture of it.  Closing line:
screens, and lines that a terminal had to wrap; exits 1 if there is one.
"""

from __future__ import annotations

import html
import shutil
import subprocess
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

from terminals import Seen, on_terminal

ROOT = Path(__file__).resolve().parents[1]
SAMPLES = ("cnn.onnx", "lstm.onnx", "cnn.npz")
CONFIG = '[[case]]\nname = "{0}"\nmodel = "{0}.onnx"\ndims = {{ batch = [4, 8] }}\n'
TRAIN = "train cnn.onnx --data cnn.npz --batch 4 --steps 300 --force"
LINES = (
    "--help", "grad cnn.onnx --force", "mirror --report cnn.onnx --batch 8", TRAIN, "doctor",
    "report cnn.onnx lstm.onnx --batch 8", "compare cnn.onnx lstm.onnx --batch 8",
    "report cnn.onnx --ranks 4 --stages 2 --batch 8", "check --allow-new", "train --help",
    "train cnn.onnx --data cnn.npz --learning-rate 1e-3",
)  # fmt: skip
STYLE = """body { background: #ddd } figure { margin: 1em }
figcaption { font: bold 14px sans-serif; padding: 4px }
pre { font: 14px/1.25 'DejaVu Sans Mono', monospace; background: #111; color: #eee; padding: 8px;
width: %dch; overflow: visible; border-right: 2px solid #c33 }
.cyan { color: #3cc } .bold { font-weight: bold }"""


def main(folder: Path, widths: list[int]) -> int:
    """Whether a line was too wide for its terminal."""
    folder.mkdir(parents=True, exist_ok=True)
    for name in SAMPLES:
        shutil.copy(ROOT / "samples" / name, folder)
    text = "".join(CONFIG.format(name) for name in ("cnn", "lstm"))
    (folder / "gradtool.toml").write_text(text, encoding="utf-8")
    wrapped = 0
    for width in widths:
        figures = []
        for line in LINES:
            seen = on_terminal(line.split(), width, folder=folder)
            wrapped += len(seen.too_wide())
            until = len(seen.pieces) // 2 if line == TRAIN else None  # under way
            figures.append(f"<figure><figcaption>gradtool {line}</figcaption>{drawn(seen, until)}")
        page = folder / f"terminal-{width}.html"
        style = f"<meta charset=utf-8><style>{STYLE % width}</style>"
        page.write_text(style + "".join(figures), encoding="utf-8")
        picture(page, 10 * width + 80)
    print(f"{len(widths) * len(LINES)} screens, {wrapped} lines wider than their terminal")
    return int(wrapped > 0)


def drawn(seen: Seen, until: int | None) -> str:
    """A screen as HTML, without blank lines at its end."""
    screen = seen.screen(until)
    lines = []
    for row in range(screen.lines):
        cells = (screen.buffer[row][column] for column in range(screen.columns))
        lines.append("".join(
            f"<span class='{cell.fg if cell.fg == 'cyan' else ''}{' bold' if cell.bold else ''}'>"
            f"{html.escape(cell.data)}</span>" for cell in cells
        ))  # fmt: skip
    last = max((row for row, line in enumerate(screen.display) if line.strip()), default=0)
    return "<pre>" + "\n".join(lines[: last + 1]) + "</pre></figure>"


def picture(page: Path, width: int) -> None:
    """The page as a PNG beside it, where there is Chromium."""
    browser = shutil.which("chromium") or shutil.which("google-chrome")
    if browser is None:
        return
    target = page.with_suffix(".png")
    subprocess.run(
        [browser, "--headless", "--no-sandbox", "--disable-gpu", f"--screenshot={target}",
         f"--window-size={width},9000", str(page)],
        check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip


if __name__ == "__main__":
    given = sys.argv[1:]
    sys.exit(main(Path(given[0]).resolve(), [int(width) for width in given[1:]] or [60, 80, 120]))
