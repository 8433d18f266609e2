"""Look for what shuts people out of the HTML pages, by axe-core in a headless Chromium.

python benchmarks/pages.py [AXE.js]     # of npm's axe-core, which is fetched where it is not named

Each page is opened narrow, middling and wide, light and dark, with what it folds away shown.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from browser import Browser
from pages import PAGES

WIDTHS, SCHEMES = (420, 800, 1280), ("light", "dark")
SERIOUS = frozenset({"serious", "critical"})
UNFOLD = "document.querySelectorAll('details').forEach((each) => { each.open = true; })"
ASK = """axe.run(document, {resultTypes: ["violations"]}).then((found) => found.violations.map(
    (v) => [v.impact, `${v.id}: ${v.help} (${v.nodes.length}): ${v.nodes[0].html.slice(0, 200)}`]))
"""


def axe(folder: Path) -> str:
    """The text of axe-core."""
    if sys.argv[1:]:
        return Path(sys.argv[1]).read_text(encoding="utf-8")
    command = ["npm", "install", "--silent", "--no-audit", "--no-fund", "--ignore-scripts",
               "--prefix", str(folder), "axe-core"]  # fmt: skip
    subprocess.run(command, check=True)
    return (folder / "node_modules" / "axe-core" / "axe.min.js").read_text(encoding="utf-8")


def main() -> None:
    """Print what is found, and exit 1 if any of it is serious."""
    serious = 0
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        script, browser = axe(folder), Browser(folder / "profile")
        browser.call("Page.setBypassCSP", enabled=True)
        for page, made in PAGES.items():
            path = folder / f"{page}.html"
            path.write_text(made(), encoding="utf-8")
            for width in WIDTHS:
                for scheme in SCHEMES:
                    browser.open(path, width=width, scheme=scheme)
                    browser.value(UNFOLD)
                    browser.value(f"{script};0")
                    for impact, text in browser.value(ASK):
                        print(f"{page}, {width} px, {scheme}: {impact}: {text}")
                        serious += impact in SERIOUS
        browser.close()
    print(f"{len(PAGES)} pages: {serious} serious")
    sys.exit(serious > 0)


if __name__ == "__main__":
    main()
