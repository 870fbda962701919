#!/bin/sh
# A night: measure, gate against the accepted baseline, measure once more what alarmed, publish.
# cron, at 02:15:  15 2 * * *  KVV_BASE_URL=https://api.example.com/v1 KVV_MODEL=kimi-k3 KVV_API_KEY=... sh /opt/kvv/nightly.sh /var/lib/kvv
#
# In that folder: reports/ (made here), kvv.toml (options that stay: data = { toolcall = "requests.jsonl" }) and baselines/ (made by `kvv baseline accept RUN`, never by a night).
# Exit code: 0 no worse, 1 worse (confirmed), 2 no baseline yet or a wrong option, 3 cannot tell, 4 our own error.
set -u
cd "${1:-.}" || exit 2

# the run's folder is its last line; its own exit code is about the contract and is judged by the gate again
run=$(kvv run --tier nightly --deadline 1200 --max-cost 7 -q | tail -n 1)
# an alarm is confirmed by one fresh measurement of what alarmed, inside a budget of its own; it is kept under the run's folder
kvv gate "$run" --confirm-now --deadline 1200 --max-cost 7 --policy nightly --last 7 --format md --to reports/gate.md
code=$?
head -n 1 reports/gate.md
kvv report "$run" --format html,junit --to reports/latest
kvv history reports --format html --to reports/history.html
exit "$code"
