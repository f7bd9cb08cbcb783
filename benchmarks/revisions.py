"""The rows that benchmarks keep: appended to a CSV with the revision, and compared with an earlier one's.

    ./dev run python benchmarks/revisions.py FILE [FILE ...]     compare the last two revisions of each file
    ./dev run python benchmarks/revisions.py FILE --of OLD NEW   compare two by name

A row is (revision, work, case, figure, value). A benchmark run with `--csv FILE --compare` prints the comparison of
what it just measured with the revision before. Times depend on the machine and its load: compare what one machine did.
"""

from __future__ import annotations

import argparse
import csv
import statistics
import subprocess
from collections.abc import Sequence
from pathlib import Path

HEADER = ["revision", "work", "case", "figure", "value"]
Row = tuple[str, str, str, float]
"""Work, case, figure, value."""


def revision() -> str:
    """The revision of the benchmarks' own checkout; with a + where files differ from it."""
    git = ["git", "-C", str(Path(__file__).parent)]
    name = subprocess.run([*git, "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False).stdout
    differs = subprocess.run([*git, "diff", "--quiet", "HEAD"], capture_output=True, check=False).returncode
    return (name.strip() or "unknown") + ("+" if differs else "")


def append(path: Path, rows: Sequence[Row]) -> None:
    """Add rows of this revision."""
    is_new = not path.exists()
    with path.open("a", newline="") as file:
        table = csv.writer(file)
        if is_new:
            table.writerow(HEADER)
        name = revision()
        table.writerows([name, *row] for row in rows)


def read(path: Path) -> dict[str, dict[tuple[str, str, str], float]]:
    """Revision -> (work, case, figure) -> the median of its values, revisions in the order of their first row."""
    found: dict[str, dict[tuple[str, str, str], list[float]]] = {}
    with path.open(newline="") as file:
        for row in csv.DictReader(file):
            key = (row["work"], row["case"], row["figure"])
            found.setdefault(row["revision"], {}).setdefault(key, []).append(float(row["value"]))
    return {
        name: {key: statistics.median(values) for key, values in figures.items()} for name, figures in found.items()
    }


def comparison(path: Path, of: Sequence[str] = ()) -> str:
    """A Markdown table of two revisions: the last two, or those named."""
    found = read(path)
    names = list(of) or list(found)[-2:]
    missing = [name for name in names if name not in found]
    if missing or len(names) < 2:
        return f"{path.name} has no two revisions to compare (it has: {', '.join(found) or 'none'})"
    old, new = (found[name] for name in names)
    lines = [f"| work | case | figure | {names[0]} | {names[1]} | ratio |", "|---|---|---|---|---|---|"]
    for key in old.keys() & new.keys():
        ratio = f"{new[key] / old[key]:.2f}" if old[key] else "-"
        lines.append(f"| {' | '.join(key)} | {old[key]:g} | {new[key]:g} | {ratio} |")
    return "\n".join([*lines[:2], *sorted(lines[2:])])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", type=Path, nargs="+")
    parser.add_argument("--of", nargs=2, default=(), metavar=("OLD", "NEW"))
    given = parser.parse_args()
    for path in given.files:
        print(comparison(path, given.of))


if __name__ == "__main__":
    main()
