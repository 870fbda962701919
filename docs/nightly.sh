#!/bin/sh
# A night: measure, gate against the accepted baseline, measure once more what alarmed, publish.
# cron, at 02:15:  15 2 * * *  KVV_BASE_URL=https://api.example.com/v1 KVV_MODEL=kimi-k3 KVV_API_KEY=... sh /opt/kvv/nightly.sh /var/lib/kvv
#
# In that folder: reports/ (made here), kvv.toml (options that stay: data = { toolcall = "requests.jsonl" }) and baselines/
# (`kvv baseline init` makes the first ones, `kvv baseline accept RUN` a newer one; a night makes none).
# KVV_NOTIFY may hold the address of a web hook: each alarm's line is posted there once.
# Exit code: 0 no worse, 1 worse (confirmed), 2 a wrong option, 3 cannot tell (no baseline yet too), 4 our own error.
set -u
cd "${1:-.}" || exit 2

# 70 % of each bound are for the run, the rest for measuring again what alarmed
[ -z "${KVV_NOTIFY:-}" ] && set -- || set -- --notify env:KVV_NOTIFY
kvv nightly --deadline 2400 --max-cost 14 --last 7 -q "$@"
code=$?
kvv prune --keep 90d >/dev/null
exit "$code"
