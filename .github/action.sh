#!/usr/bin/env bash
# The step of action.yml. Usage: action.sh BIN, where BIN holds kvv and python; the rest comes from the variables INPUT_, KVV_BASE_URL and KVV_MODEL.
set -euo pipefail
bin=$1
case "$INPUT_COMMAND" in
    run | check | nightly) ;;
    *)
        echo "::error title=kvv::the input 'command' is run, check or nightly"
        exit 2
        ;;
esac
case "$INPUT_ON_INCONCLUSIVE" in
    fail | warn) ;;
    *)
        echo "::error title=kvv::the input 'on-inconclusive' is fail or warn"
        exit 2
        ;;
esac
# quotes are heeded, nothing is expanded or executed
words=$(mktemp)
"$bin/python" -c 'import os, shlex
print(end="".join(word + "\0" for word in shlex.split(os.environ["INPUT_ARGUMENTS"])))' >"$words" 2>/dev/null || {
    echo "::error title=kvv::the input 'arguments' has a quote without its end"
    exit 2
}
mapfile -d '' -t arguments <"$words"
rm -f "$words"
[ -z "$INPUT_MAX_COST" ] || arguments+=(--max-cost "$INPUT_MAX_COST")
code=0
started=$("$bin/python" -c 'import time; print(time.time())')
"$bin/kvv" "$INPUT_COMMAND" "${arguments[@]}" || code=$?
# a run that never began leaves no report, and an older one is not its own
headline=$("$bin/python" -c 'import json, pathlib, sys
fresh = [path for path in pathlib.Path("reports").glob("*/report.json") if path.stat().st_mtime >= float(sys.argv[1])]
last = max(fresh, key=lambda path: path.stat().st_mtime, default=None)
print(" ".join(json.loads(last.read_text("utf-8")).get("headline", "").split()) if last else "")' "$started") || headline=""
{
    echo "exit-code=$code"
    echo "headline=$headline"
} >>"$GITHUB_OUTPUT"
if [ "$INPUT_ON_INCONCLUSIVE" = warn ] && { [ "$code" = 3 ] || [ "$code" = 5 ]; }; then
    echo "::warning title=kvv::nothing could be concluded (exit code $code)"
    exit 0
fi
exit "$code"
