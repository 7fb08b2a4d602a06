"""The supply of aptool: licences of what it is installed with, and known vulnerabilities: ``make audit``.

Licences are those that installed packages state of themselves. Vulnerabilities of the versions in
``constraints.txt`` are looked up by ``pip-audit``, which needs a network.
"""

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path

ROOT = Path(__file__).parents[1]

# Licences, as packages write them, under which a package may be required; all allow any use.
ALLOWED = (
    *("0BSD", "Apache-2.0", "Apache-2.0 WITH LLVM-exception", "BSD-2-Clause", "BSD-3-Clause", "BSL-1.0"),
    *("CC0-1.0", "CNRI-Python", "HPND", "ISC", "MIT", "MIT-0", "MIT-CMU", "MPL-2.0", "PSF-2.0", "Unlicense"),
    *("Zlib", "Apache 2.0", "Apache License 2.0", "Apache 2.0 License", "Apache License, Version 2.0"),
    *("Apache Software License", "BSD License", "3-Clause BSD License", "MIT License", "ISC License (ISCL)"),
    *("Mozilla Public License 2.0 (MPL 2.0)", "Python Software Foundation License"),
)
# Packages with another one, and why they may be required nevertheless.
EXCEPTIONS = {"nvidia-": "NVIDIA's libraries, which torch requires where there is a GPU"}


def required(name: str, extras: frozenset[str], seen: set[str]) -> Iterator[metadata.Distribution]:
    """A package and all that it requires, as far as they are installed."""
    key = re.sub(r"[-_.]+", "-", name).lower()
    if key in seen:
        return
    seen.add(key)
    try:
        found = metadata.distribution(name)
    except metadata.PackageNotFoundError:
        return
    yield found
    for requirement in found.requires or []:
        wanted, _, marker = requirement.partition(";")
        asked = re.findall(r"extra\s*==\s*['\"]([^'\"]+)", marker)
        if asked and not extras.intersection(asked):
            continue
        named = re.match(r"\s*([\w.-]+)(?:\[([^\]]*)\])?", wanted)
        assert named is not None
        yield from required(named[1], frozenset((named[2] or "").replace(" ", "").split(",")), seen)


def licences(package: metadata.Distribution) -> list[str]:
    """The licences that a package is under; of alternatives the first that is allowed."""
    about = package.metadata
    expression = about["License-Expression"]
    classifiers = [
        name.rpartition(" :: ")[2]
        for name in about.get_all("Classifier") or []
        if name.startswith("License :: ") and not name.endswith(":: OSI Approved")
    ]
    if classifiers and not expression:
        return classifiers
    stated = expression or (about["License"] or "none stated").strip().splitlines()[0]
    parts = [part.strip(" ()") for part in re.split(r"\s+AND\s+", stated)]
    return [next((one for one in part.split(" OR ") if one in ALLOWED), part) for part in parts]


def check_licences() -> int:
    """Print each package whose licence is not allowed; how many there are."""
    extras = frozenset(metadata.metadata("aptool").get_all("Provides-Extra") or [])
    bad = tried = 0
    for package in required("aptool", extras, set()):
        tried += 1
        name = package.metadata["Name"]
        others = [one for one in licences(package) if one not in ALLOWED]
        if others and not name.startswith(tuple(EXCEPTIONS)):
            bad += 1
            print(f"{name} {package.version}: {', '.join(others)}: expected a licence of jobs/audit.py")
    print(f"licences: {tried} packages, {bad} with one that is not allowed")
    return bad


def check_vulnerabilities() -> int:
    """Print each known vulnerability of the tested versions, or that none could be looked up."""
    pins = ROOT / "constraints.txt"
    command = ["-r", str(pins), "--no-deps", "--disable-pip", "--progress-spinner", "off", "-f", "json"]
    done = subprocess.run([sys.executable, "-m", "pip_audit", *command], capture_output=True, text=True)
    try:
        packages = json.loads(done.stdout)["dependencies"]
    except (ValueError, KeyError):
        packages = []
    known = [one for one in packages if "skip_reason" not in one]
    if not known:
        print("vulnerabilities: NOT LOOKED UP: pip-audit needs a network, and its database cannot be reached")
        return 1
    for package in known:
        for one in package["vulns"]:
            fixed = ", ".join(one["fix_versions"]) or "no version"
            print(f"{package['name']} {package['version']}: {one['id']}: fixed in {fixed}")
    bad, unknown = sum(bool(one["vulns"]) for one in known), len(packages) - len(known)
    print(f"vulnerabilities: {len(known)} packages, {bad} with one; {unknown} not in the database")
    return bad


if __name__ == "__main__":
    sys.exit(min(1, check_licences() + check_vulnerabilities()))
