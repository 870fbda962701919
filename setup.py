"""Maps the top-level folders ``suites`` and ``fixtures`` into the package; the metadata is in pyproject.toml.

``find_packages`` runs here so that a new suite folder is in the wheel without being listed by hand.
"""

from setuptools import find_packages, setup

suites = ["kvv.suites", *(f"kvv.suites.{name}" for name in find_packages("suites"))]

setup(
    packages=[*find_packages(include=["kvv", "kvv.*"]), *suites, "kvv.fixtures"],
    package_dir={"kvv": "kvv", "kvv.suites": "suites", "kvv.fixtures": "fixtures"},
    package_data={
        "kvv": ["py.typed", "*/*.json", "*/*.j2", "*/*.toml", "*/*/*.toml", "cli/verbs/viewer/*.j2"],
        "kvv.suites": ["*/*.toml"],
        "kvv.fixtures": ["**/*"],
    },
)
