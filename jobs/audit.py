"""Check the licences of aptool's dependencies, and their known vulnerabilities: ``make audit``.

Licences come from the metadata of installed packages. ``pip-audit``, which needs a network, looks up known
vulnerabilities of the versions in ``constraints.txt``.
"""

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path

ROOT = Path(__file__).parents[1]

# Accepted licences, as packages write them; all allow any use.
ALLOWED = (
    *("0BSD", "Apache-2.0", "Apache-2.0 WITH LLVM-exception", "BSD-2-Clause", "BSD-3-Clause", "BSL-1.0"),
    *("CC0-1.0", "CNRI-Python", "HPND", "ISC", "MIT", "MIT-0", "MIT-CMU", "MPL-2.0", "PSF-2.0", "Unlicense"),
    *("Zlib", "Apache 2.0", "Apache License 2.0", "Apache 2.0 License", "Apache License, Version 2.0"),
    *("Apache Software License", "BSD License", "3-Clause BSD License", "MIT License", "ISC License (ISCL)"),
    *("Mozilla Public License 2.0 (MPL 2.0)", "Python Software Foundation License"),
)
# Packages with another licence, and the reason to allow it.
EXCEPTIONS = {"nvidia-": "NVIDIA's libraries, which torch requires where there is a GPU"}


def normalized(name: str) -> str:
    """The name of a package as the index compares it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def required(name: str, extras: frozenset[str], seen: set[str]) -> Iterator[metadata.Distribution]:
    """A package and its installed dependencies."""
    key = normalized(name)
    if key in seen:
        return
    seen.add(key)
    try:
        package = metadata.distribution(name)
    except metadata.PackageNotFoundError:
        return
    yield package
    for requirement in package.requires or []:
        specifier, _, marker = requirement.partition(";")
        required_extras = re.findall(r"extra\s*==\s*['\"]([^'\"]+)", marker)
        if required_extras and not extras.intersection(required_extras):
            continue
        named = re.match(r"\s*([\w.-]+)(?:\[([^\]]*)\])?", specifier)
        assert named is not None
        yield from required(named[1], frozenset((named[2] or "").replace(" ", "").split(",")), seen)


def licences(package: metadata.Distribution) -> list[str]:
    """Licences of a package; of alternatives only the first allowed licence."""
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
    return [next((option for option in part.split(" OR ") if option in ALLOWED), part) for part in parts]


def check_licences() -> int:
    """Print each package with a licence that is not allowed; return their number."""
    extras = frozenset(metadata.metadata("aptool").get_all("Provides-Extra") or [])
    seen: set[str] = set()
    packages = list(required("aptool", extras, seen))
    bad = 0
    for package in packages:
        name = package.metadata["Name"]
        refused = [licence for licence in licences(package) if licence not in ALLOWED]
        if refused and not name.startswith(tuple(EXCEPTIONS)):
            bad += 1
            print(f"{name} {package.version}: {', '.join(refused)}: expected a licence of jobs/audit.py")
    absent = sorted(seen.difference(normalized(package.metadata["Name"]) for package in packages))
    print(f"not installed, licences not checked: {', '.join(absent) or 'none'}")
    print(f"licences: {len(packages)} packages, {bad} with one that is not allowed")
    return bad


def check_vulnerabilities() -> int:
    """Print each known vulnerability of the tested versions; return the number of affected packages."""
    pins = ROOT / "constraints.txt"
    command = ["-r", str(pins), "--no-deps", "--disable-pip", "--progress-spinner", "off", "-f", "json"]
    done = subprocess.run([sys.executable, "-m", "pip_audit", *command], capture_output=True, text=True)
    try:
        packages = json.loads(done.stdout)["dependencies"]
    except (ValueError, KeyError):
        packages = []
    listed = [package for package in packages if "skip_reason" not in package]
    if not listed:
        print("vulnerabilities: NOT LOOKED UP: pip-audit needs a network, and its database cannot be reached")
        return 1
    for package in listed:
        for flaw in package["vulns"]:
            fixed = ", ".join(flaw["fix_versions"]) or "no version"
            print(f"{package['name']} {package['version']}: {flaw['id']}: fixed in {fixed}")
    bad, unknown = sum(bool(package["vulns"]) for package in listed), len(packages) - len(listed)
    print(f"vulnerabilities: {len(listed)} packages, {bad} with one; {unknown} not in the database")
    return bad


if __name__ == "__main__":
    sys.exit(min(1, check_licences() + check_vulnerabilities()))
