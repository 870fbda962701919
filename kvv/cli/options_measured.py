"""Options of the experimental verbs that measure one endpoint without suites. Names and help, as in options.py."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from kvv.cli.options import Parser, add_money_options, add_output_options
from kvv.core.usage_error import SURFACES

if TYPE_CHECKING:
    Verbs = argparse._SubParsersAction[Parser]

#: what `kvv load` takes beside a run's own options
LOAD_OPTIONS = (
    *("concurrency", "rate", "arrivals", "mix", "prompt_tokens", "output_tokens", "cached", "known"),
    *("duration", "requests", "warmup", "need", "level"),
)


def add_measured_verbs(verbs: Verbs) -> None:
    load = verbs.add_parser(
        "load", help="experimental: how much load the endpoint carries, and whether it stays right under it"
    )
    _add_load_options(load)
    _add_endpoint(load)
    _add_profile(load)
    _add_sampling(load)
    _add_bounds(load)
    add_output_options(load)

    identity = verbs.add_parser(
        "identity", help="experimental: is it the same model? short answers against those of two official runs"
    )
    group = identity.add_argument_group("official runs")
    group.add_argument("--reference", action="append", metavar="FILE", help="an official run's answers (give two)")
    group.add_argument("--as-reference", metavar="FILE", help="write this endpoint's answers there")
    group.add_argument("--samples", type=int, metavar="K", help="answers to each of 20 prompts (default: 7)")
    group.add_argument(
        "--on-difference",
        choices=("fail", "warn"),
        help="fail: exit code 1; warn: 0, the benchmarks must tell whether it matters (default: fail)",
    )
    group.add_argument(
        "--discreet", action="store_true", default=None, help="name kvv in no request (default: in half of them)"
    )
    group.add_argument("--concurrency", metavar="N", help="requests in flight (default: 8)")
    _add_endpoint(identity)
    identity.add_argument("--profile", metavar="NAME|FILE", help="what the model promises (default: by its name)")
    identity.add_argument("--surface", choices=SURFACES, help="what stands there (default: vendor)")
    identity.add_argument("--seed", type=int, help="seed of every draw (default: 0)")
    group = identity.add_argument_group("sampling; temperatures are 1 and 0")
    group.add_argument("--thinking", choices=("on", "off"), help="switch thinking on or off")
    group.add_argument("--think-mode", metavar="MODE", help="how the switch is sent")
    group.add_argument("--effort", action="append", metavar="NAME", help="thinking effort")
    group.add_argument("--top-p", type=float)
    _add_bounds(identity)
    add_output_options(identity)


def _add_load_options(parser: Parser) -> None:
    group = parser.add_argument_group("the ladder")
    group.add_argument("--concurrency", metavar="N,N,...", help="requests at once, step by step (default: 1,2,4,8,16)")
    group.add_argument("--rate", metavar="R,R,...", help="instead: arrivals a second, whatever is still under way")
    group.add_argument("--arrivals", choices=("poisson", "constant"), help="how arrivals are spaced (default: poisson)")
    group.add_argument(
        "--requests", type=int, metavar="N", help="measured requests a step (default: at least 120, 4 for each at once)"
    )
    group.add_argument("--duration", type=float, metavar="S", help="instead: seconds that a step is measured")
    group.add_argument(
        "--warmup", type=float, metavar="S", help="seconds of a step before it is measured (default: a first round)"
    )
    group.add_argument("--need", type=float, metavar="LOAD", help="fail unless this load is shown to keep the policy")
    group.add_argument(
        "--level",
        action="append",
        metavar="ID=LIMIT",
        help="another limit for a service level of the policy, such as ttft-under-4k=800 (repeatable)",
    )
    group = parser.add_argument_group("what is sent")
    group.add_argument(
        "--mix",
        metavar="chat|agent|FILE",
        help="short chats, turns of an agent with a tool, or your own requests as JSON Lines (default: chat)",
    )
    group.add_argument(
        "--prompt-tokens", metavar="N,N,...", help="prompt lengths in turn, such as 1k,32k,1M (default: 1k)"
    )
    group.add_argument("--output-tokens", type=int, metavar="N", help="the most tokens of an answer (default: 256)")
    group.add_argument(
        "--cached", type=float, metavar="SHARE", help="share of each prompt that a prefix cache can serve (default: 0)"
    )
    group.add_argument(
        "--known", type=float, metavar="SHARE", help="share of requests whose answer is known (default: 0.5)"
    )


def _add_endpoint(parser: Parser) -> None:
    group = parser.add_argument_group("endpoint")
    group.add_argument("--base-url", metavar="URL", help="the endpoint, up to and including /v1 (KVV_BASE_URL)")
    group.add_argument("--model", metavar="NAME", help="the model's name there (KVV_MODEL)")
    group.add_argument(
        "--api-key-env", metavar="NAME", help="name of the variable that holds the key (default: KVV_API_KEY)"
    )
    group.add_argument(
        "--header-env", action="append", metavar="HEADER=NAME", help="send HEADER with the value of the variable NAME"
    )
    group.add_argument("--extra-body", metavar="JSON|@FILE", help="fields added to every request body")


def _add_profile(parser: Parser) -> None:
    parser.add_argument("--profile", metavar="NAME|FILE", help="what the model promises (default: by its name)")
    parser.add_argument("--surface", choices=SURFACES, help="what stands there (default: vendor)")
    parser.add_argument("--policy", metavar="NAME|FILE", help="service levels (default: load)")
    parser.add_argument("--seed", type=int, help="seed of every draw (default: 0)")


def _add_sampling(parser: Parser) -> None:
    group = parser.add_argument_group("sampling")
    group.add_argument("--thinking", choices=("on", "off"), help="switch thinking on or off")
    group.add_argument("--think-mode", metavar="MODE", help="how the switch is sent")
    group.add_argument("--effort", action="append", metavar="NAME", help="thinking effort")
    group.add_argument("--temperature", type=float)
    group.add_argument("--top-p", type=float)


def _add_bounds(parser: Parser) -> None:
    group = parser.add_argument_group("limits and money")
    for name in ("--connect-timeout", "--first-byte-timeout", "--idle-timeout"):
        group.add_argument(name, type=float, metavar="S")
    add_money_options(group, "it")
