"""The command line's options: names, help and nothing else; their meaning is in config.py.

Every option's default is None, which means "not given": the value then comes from the environment, kvv.toml or
RunConfig's own default.
"""

from __future__ import annotations

import argparse
from typing import Any, NoReturn

from kvv.core.usage_error import SURFACES, TIERS, text_problem
from kvv.sandbox import BACKENDS
from kvv.sandbox.adapters import AGENTS, GRADERS, OWN


class Parser(argparse.ArgumentParser):
    """Usage errors are one line on stderr, exit code 2."""

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{self.prog}: {message}\n")

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """As argparse's, and no text is empty or what no path and no message can hold."""
        found, rest = super().parse_known_args(args, namespace)
        for action in self._actions:
            if problem := text_problem(getattr(found, action.dest, None)):
                self.error(
                    f"argument {action.option_strings[-1] if action.option_strings else action.metavar or action.dest}:"
                    f" {problem}"
                )
        return found, rest


def add_output_options(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("output")
    group.add_argument("--out", metavar="DIR", help="where run folders are written (default: reports/)")
    group.add_argument(
        "--json", dest="json_output", action="store_true", default=None, help="print report.json on standard output"
    )
    group.add_argument("-q", "--quiet", action="store_true", default=None, help="print the verdict only")
    group.add_argument("-v", "--verbose", action="store_true", default=None, help="say more, tracebacks included")
    group.add_argument(
        "--public", action="store_true", default=None, help="leave the endpoint's address out of the reports"
    )


def add_shared_option(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--shared",
        action="store_true",
        default=None,
        help="let other users of the machine read the run's folder (default: you alone)",
    )


def add_trust_option(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--trust-config",
        action="store_true",
        default=None,
        help="follow the hosts, keys, headers and sandbox that kvv.toml names; recorded until the file changes",
    )


def add_endpoint_options(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("endpoint")
    group.add_argument(
        "--base-url",
        metavar="URL",
        help="the endpoint, up to and including /v1 (KVV_BASE_URL); without it our own reference endpoint is asked",
    )
    group.add_argument("--model", metavar="NAME", help="the model's name there (KVV_MODEL)")
    group.add_argument(
        "--api-key-env",
        metavar="NAME",
        help="name of the environment variable that holds the key (default: KVV_API_KEY)",
    )
    group.add_argument(
        "--header-env",
        action="append",
        metavar="HEADER=NAME",
        help="send HEADER with the value of the environment variable NAME",
    )
    group.add_argument("--provider", metavar="NAME", help="pin one provider behind a gateway")
    group.add_argument("--extra-body", metavar="JSON|@FILE", help="fields added to every request body")
    group.add_argument(
        "--other-model",
        metavar="NAME",
        help="another model on the same gateway, to see that extensions do not leak to it",
    )
    add_judge_options(parser)
    group = parser.add_argument_group("the official endpoint beside it")
    group.add_argument(
        "--reference-base-url",
        metavar="URL",
        help="the official endpoint: the benchmarks are asked there too, at the same time",
    )
    group.add_argument("--reference-model", metavar="NAME", help="the model's name there (default: as --model)")
    group.add_argument(
        "--reference-api-key-env",
        metavar="NAME",
        help="variable that holds the key for it (default: KVV_REFERENCE_API_KEY)",
    )
    group.add_argument("--reference-price-in", type=float, metavar="USD", help="per million prompt tokens there")
    group.add_argument("--reference-price-cached", type=float, metavar="USD")
    group.add_argument("--reference-price-out", type=float, metavar="USD")


def add_again_options(parser: argparse.ArgumentParser, when: str = "") -> None:
    """What a stored run says of where something is sent, given again: needed where another user or machine started
    it.
    """
    parser.add_argument("--base-url", metavar="URL", help=f"{when}the same endpoint at another address")
    parser.add_argument("--api-key-env", metavar="NAME", help=f"{when}name of the variable that holds its key")
    parser.add_argument(
        "--header-env",
        action="append",
        metavar="HEADER=NAME",
        help=f"{when}send HEADER with the value of the variable NAME",
    )
    parser.add_argument("--judge-base-url", metavar="URL", help=f"{when}the judge at another address")
    parser.add_argument(
        "--judge-api-key-env", metavar="NAME", help=f"{when}name of the variable that holds the judge's key"
    )
    parser.add_argument(
        "--sandbox", choices=BACKENDS, help=f"{when}where a model's commands run; none must be given each time"
    )
    parser.add_argument("--data", action="append", metavar="SUITE=PATH", help=f"{when}a suite's data, the same")
    parser.add_argument("--tokenizer", metavar="PATH", help=f"{when}the model's merges, the same")
    parser.add_argument("--profile", metavar="NAME|FILE", help=f"{when}what the model promises, the same")
    parser.add_argument("--judge-prompts", metavar="FILE|DIR", help=f"{when}the judge's prompts, the same")


def add_judge_options(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("judge")
    group.add_argument("--judge-base-url", metavar="URL", help="the judge's endpoint")
    group.add_argument("--judge-model", metavar="NAME", help="the judge's model")
    group.add_argument(
        "--second-judge-model",
        metavar="NAME",
        help="another model there, which judges the same answers: their agreement is reported",
    )
    group.add_argument("--judge-effort", metavar="NAME", help="the judge's reasoning effort")
    group.add_argument("--judge-extra-body", metavar="JSON|@FILE", help="fields to add to each request to the judge")
    group.add_argument(
        "--judge-prompts",
        metavar="FILE|DIR",
        help="the judge's prompts in the official words: item.txt, order.txt, question.txt in a folder, a table, or the"
        " official repository",
    )
    group.add_argument(
        "--judge-api-key-env",
        metavar="NAME",
        help="name of the environment variable that holds the judge's key (default: KVV_JUDGE_API_KEY)",
    )


def add_choice_options(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("what is checked")
    group.add_argument(
        "--profile", metavar="NAME|FILE", help="what the model promises (default: picked by the model's name)"
    )
    group.add_argument(
        "--surface",
        choices=SURFACES,
        help="what stands there: a public API, a bare engine, the official API (default: vendor)",
    )
    group.add_argument(
        "--preset",
        choices=("moonshot", "kvv"),
        help="reproduce the sampling, prompts and failure rule of Moonshot's verifier (kvv: the older name)",
    )
    group.add_argument("--policy", metavar="NAME|FILE", help="what is required, with which margins")
    group.add_argument("--tier", choices=TIERS, help="how much is asked (default with --base-url: smoke)")
    group.add_argument("--limit", type=int, metavar="N", help="at most N questions a benchmark, drawn by --seed")
    group.add_argument("--samples", type=int, metavar="K", help="ask each question K times")
    group.add_argument("--case", action="append", metavar="GLOB", help="only cases whose id matches (repeatable)")
    group.add_argument("--variant", metavar="V", help="a suite's variant")
    group.add_argument(
        "--data",
        action="append",
        metavar="SUITE=PATH",
        help="a suite's data from a file or folder; `fixture` takes the shipped sample",
    )
    group.add_argument(
        "--tokenizer",
        metavar="PATH",
        help="the model's merges in tiktoken's form, or its Hugging Face folder: counts prompts",
    )
    group.add_argument(
        "--sandbox",
        choices=BACKENDS,
        help="where a model's commands run (default: the first that works); none is no sandbox at all",
    )
    group.add_argument(
        "--agent",
        choices=(OWN, *AGENTS),
        help="who works on swebench's instances: our own agent, or mini-swe-agent's if installed",
    )
    group.add_argument(
        "--grader",
        choices=(OWN, *GRADERS),
        help="who grades them: our own rules, or the official harness, where installed",
    )
    group.add_argument(
        "--reference", action="append", metavar="FILE", help="per-case results of an official run (repeatable)"
    )
    group.add_argument("--as-reference", metavar="FILE", help="write this run's per-case results")
    group.add_argument(
        "--early-stop",
        action="store_true",
        default=None,
        help="end a benchmark at one of the policy's looks once its --reference decides it",
    )
    group.add_argument("--seed", type=int, help="seed of every draw (default: 0)")
    group.add_argument("--shard", metavar="I/N", help="only part I of N, split by cluster; `kvv merge` joins the parts")
    group.add_argument("--strict", action="store_true", default=None, help="a broken should fails too")
    group.add_argument(
        "--force", action="store_true", default=None, help="run the benchmarks although the parameter gate failed"
    )
    group.add_argument(
        "--gentle", action="store_true", default=None, help="leave out cases that have brought engines down"
    )


def add_sampling_options(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("what is sent")
    group.add_argument("--thinking", choices=("on", "off"), help="switch thinking on or off")
    group.add_argument("--think-mode", metavar="MODE", help="how the switch is sent: a mode of the profile, or none")
    group.add_argument(
        "--effort",
        action="append",
        metavar="NAME",
        help="thinking effort, one of the profile's; `run` takes several (low,high) and compares them",
    )
    group.add_argument("--temperature", type=float)
    group.add_argument("--top-p", type=float)
    group.add_argument(
        "--max-tokens", action="append", metavar="[SUITE=]N", help="output limit, for all benchmarks or one"
    )
    group.add_argument(
        "--stream", action=argparse.BooleanOptionalAction, default=None, help="stream benchmark answers (default: on)"
    )
    group.add_argument(
        "--discreet",
        action="store_true",
        default=None,
        help="experimental: look like ordinary traffic: kvv named in no header, control requests in varied words,"
        " suites mixed",
    )


def add_money_options(group: argparse._ActionsContainer, what: str) -> None:
    """Bounds, prices and consent of ``what`` may be expensive."""
    group.add_argument("--deadline", type=float, metavar="S", help=f"{what} ends after this many seconds")
    group.add_argument("--max-cost", type=float, metavar="USD")
    group.add_argument("--max-requests", type=int, metavar="N")
    group.add_argument("--max-tokens-total", type=int, metavar="N")
    group.add_argument("--price-in", type=float, metavar="USD", help="per million prompt tokens")
    group.add_argument("--price-cached", type=float, metavar="USD", help="per million cached prompt tokens")
    group.add_argument("--price-out", type=float, metavar="USD", help="per million completion tokens")
    group.add_argument("--yes", action="store_true", default=None, help=f"start although {what} may be expensive")


def add_bound_options(parser: argparse.ArgumentParser, text: str) -> None:
    """A stored run's own bounds, given anew."""
    for name, kind in (
        ("--deadline", float),
        ("--max-cost", float),
        ("--max-requests", int),
        ("--max-tokens-total", int),
    ):
        parser.add_argument(name, type=kind, help=text)


def add_limit_options(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("limits and money")
    group.add_argument("--concurrency", metavar="N|auto", help="requests in flight (default: auto)")
    group.add_argument("--max-inflight-tokens", type=int, metavar="N", help="prompt tokens in flight")
    group.add_argument("--connect-timeout", type=float, metavar="S")
    group.add_argument("--first-byte-timeout", type=float, metavar="S", help="scaled up with the prompt's length")
    group.add_argument("--idle-timeout", type=float, metavar="S", help="longest silence inside an answer")
    add_money_options(group, "the run")
    group.add_argument(
        "--record",
        choices=("message", "full"),
        help="what is kept of benchmark answers (contract answers are kept whole)",
    )


def add_run_options(parser: argparse.ArgumentParser) -> None:
    """Everything `run`, `check` and `plan` take."""
    parser.add_argument("suites", nargs="*", metavar="SUITE", help="suites to run (default: those of the profile)")
    add_trust_option(parser)
    add_endpoint_options(parser)
    add_choice_options(parser)
    add_sampling_options(parser)
    add_limit_options(parser)
    add_output_options(parser)
    add_shared_option(parser)


def add_vendors_options(parser: argparse.ArgumentParser) -> None:
    """What is the same for all sides; what differs stands in the file."""
    parser.add_argument(
        "file",
        metavar="FILE",
        help="a TOML file with a [[vendor]] table for each side: name, base_url, model, api_key_env, ...",
    )
    parser.add_argument(
        "suites",
        nargs="*",
        metavar="SUITE",
        help="suites to run (default: those of the profile); benchmarks alone come with a small contract pass",
    )
    add_trust_option(parser)
    parser.add_argument("--model", metavar="NAME", help="the model's name at every side whose table has none")
    add_judge_options(parser)
    add_choice_options(parser)
    add_sampling_options(parser)
    add_limit_options(parser)
    add_output_options(parser)
    add_shared_option(parser)
