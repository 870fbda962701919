"""One tool call against its tool's JSON Schema: a failure in one class of a closed vocabulary, or none.

The draft is the one ``$schema`` names when it is a known one, else 2020-12, which is also what K2VV's
``jsonschema.validate`` takes. ``format`` is not asserted. A reference that leaves the schema is never fetched.
A hostile pattern can run for ever: call this where it can be killed.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from enum import StrEnum
from functools import cache, lru_cache
from typing import TYPE_CHECKING, Any, NoReturn

from kvv.core import ToolCall
from kvv.core.lazy import jsonschema, referencing

if TYPE_CHECKING:
    from jsonschema.protocols import Validator

DEFAULT_DRAFT = "2020-12"

#: ``$schema`` without scheme, trailing "#" and slash -> (draft, validator of jsonschema)
_DRAFTS: Mapping[str, tuple[str, str]] = {
    "json-schema.org/draft-03/schema": ("draft-03", "Draft3Validator"),
    "json-schema.org/draft-04/schema": ("draft-04", "Draft4Validator"),
    "json-schema.org/draft-06/schema": ("draft-06", "Draft6Validator"),
    "json-schema.org/draft-07/schema": ("draft-07", "Draft7Validator"),
    "json-schema.org/draft/2019-09/schema": ("2019-09", "Draft201909Validator"),
    "json-schema.org/draft/2020-12/schema": ("2020-12", "Draft202012Validator"),
}

#: longest text of a model's that is kept in a failure
LIMIT = 200


class FailureClass(StrEnum):
    """Why a call failed. ``schema-unusable`` is the data set's fault, all others the endpoint's."""

    ARGUMENTS_NOT_JSON = "arguments-not-json"
    UNKNOWN_TOOL = "unknown-tool"
    SCHEMA_MISMATCH = "schema-mismatch"
    NO_CALL_DESPITE_FINISH = "no-call-despite-finish"
    CUT_BY_LENGTH = "cut-by-length"
    MARKERS_LEAKED = "markers-leaked"
    SCHEMA_UNUSABLE = "schema-unusable"


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """``path`` is a JSON path into the arguments, ``keyword`` the schema's; both empty outside ``schema-mismatch``.
    Texts are bounded.
    """

    failure: FailureClass
    tool: str = ""
    path: str = ""
    keyword: str = ""
    message: str = ""

    def as_fact(self) -> dict[str, str]:
        """JSON-like, with the class under ``class``."""
        fact = asdict(self)
        return {"class": str(fact.pop("failure")), **fact}


@dataclass(frozen=True, slots=True, kw_only=True)
class Checked:
    """One call's result. ``k2vv`` is what K2VV's own check says: the first tool of a name counts, NaN is JSON, ``{}``
    is no schema. ``ambiguous``: the request declares the tool more than once, with different parameters."""

    failure: Failure | None
    k2vv: bool
    ambiguous: bool = False


def bound_message(text: object) -> str:
    plain = str(text)
    return plain if len(plain) <= LIMIT else f"{plain[: LIMIT - 1]}…"


def draft_of(schema: object) -> str:
    """The draft a schema is read as."""
    return _draft(schema)[0]


def _draft(schema: object) -> tuple[str, type[Validator]]:
    named = schema.get("$schema") if isinstance(schema, Mapping) else None
    key = re.sub(r"^https?://", "", named).rstrip("#/") if isinstance(named, str) else ""
    draft, validator = _DRAFTS.get(key, (DEFAULT_DRAFT, "Draft202012Validator"))
    return draft, getattr(jsonschema, validator)


def _refuse(uri: str) -> NoReturn:
    raise referencing.exceptions.NoSuchResource(uri)


@cache
def _nothing_beyond() -> referencing.Registry[Any]:
    return referencing.Registry(retrieve=_refuse)  # type: ignore[call-arg]


class SchemaCheck:
    """The tools of one request. Of several tools with one name the last counts, as it does wherever tools are kept by
    name; K2VV takes the first. Requests that declare a name twice are the data set's flaw (2 of 256 real ones do)."""

    def __init__(self, functions: Iterable[Mapping[str, Any]]) -> None:
        self._parameters: dict[str, list[object]] = {}
        for function in functions:
            # the OpenAI API takes absent parameters for an empty list of them
            self._parameters.setdefault(function["name"], []).append(function.get("parameters"))

    def check(self, call: ToolCall) -> Checked:
        tool = bound_message(call.name or "")
        declared = self._parameters.get(call.name or "")
        if not declared:
            return Checked(
                failure=Failure(
                    failure=FailureClass.UNKNOWN_TOOL, tool=tool, message="the request declares no such tool"
                ),
                k2vv=False,
            )
        last = {} if declared[-1] is None else declared[-1]
        ambiguous = any(other != declared[0] for other in declared)
        try:
            failure = validate(strict_json(call.arguments), last, tool)
        except ValueError as error:
            failure = Failure(failure=FailureClass.ARGUMENTS_NOT_JSON, tool=tool, message=bound_message(error))
        if failure is not None and ambiguous and failure.failure is FailureClass.SCHEMA_MISMATCH:
            failure = replace(
                failure,
                message=bound_message(
                    f"{failure.message} (the tool is declared {len(declared)} times, the last counts)"
                ),
            )
        same = failure is None or failure.failure is not FailureClass.ARGUMENTS_NOT_JSON
        k2vv = failure is None if same and not ambiguous else _python_reads(call.arguments, declared[0])
        return Checked(failure=failure, k2vv=bool(declared[0]) and k2vv, ambiguous=ambiguous)


def strict_json(text: str) -> Any:
    """RFC 8259: NaN and Infinity are no JSON. ValueError with a one-line message otherwise, for JSON too deep to read
    too.
    """
    try:
        return json.loads(text, parse_constant=_no_constant)
    except RecursionError:
        raise ValueError("nested too deeply to be read") from None


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no JSON")


def _python_reads(text: str, schema: object) -> bool:
    try:
        return validate(json.loads(text), schema, "") is None
    except (ValueError, RecursionError):
        return False


@lru_cache(maxsize=256)
def _broken(text: str) -> str:
    """Where a schema (as JSON) breaks its draft's own schema, empty where it does not. Requests of one data set share
    their tools.
    """
    schema = json.loads(text)
    try:
        _draft(schema)[1].check_schema(schema)
    except jsonschema.exceptions.SchemaError as broken:
        return bound_message(f"{broken.json_path}: {broken.message}")
    return ""


def validate(arguments: Any, schema: object, tool: str) -> Failure | None:
    """The most telling error of ``arguments`` under ``schema``, None when they are valid."""

    def unusable(reason: object) -> Failure:
        return Failure(failure=FailureClass.SCHEMA_UNUSABLE, tool=tool, message=bound_message(reason))

    if not isinstance(schema, Mapping | bool):
        return unusable(f"the tool's parameters are {type(schema).__name__}, no schema")
    usable: Any = schema  # the stubs know no booleans
    try:
        broken_at = _broken(json.dumps(usable))
        if broken_at:
            return unusable(broken_at)
        validator = _draft(schema)[1](usable, registry=_nothing_beyond())
        error = jsonschema.exceptions.best_match(validator.iter_errors(arguments))
    except referencing.exceptions.Unresolvable as lost:
        return unusable(f"unresolvable reference {lost.ref}")
    except RecursionError:
        return unusable("schema and arguments nest without end, or too deeply to be checked")
    except (
        re.error,
        jsonschema.exceptions.UnknownType,
        TypeError,
        AttributeError,
        ValueError,
        ArithmeticError,
        LookupError,
    ) as broken:
        # some broken schemas satisfy their draft's own schema, or break the check itself: the data's fault
        return unusable(f"{type(broken).__name__}: {broken}")
    if error is None:
        return None
    return Failure(
        failure=FailureClass.SCHEMA_MISMATCH,
        tool=tool,
        path=bound_message(error.json_path),
        keyword=bound_message(error.validator),
        message=bound_message(error.message),
    )
