#!/bin/sh
# Submit a URL, wait for it, search: URL=… KEY=… sh examples/curl.sh https://example.com/article "a question"
set -eu
: "${URL:?the gateway that indexmill up prints}" "${KEY:?the api key that indexmill up prints}"
page=${1:?a URL to index}
question=${2:?a question}
call() { curl -sS -H "X-API-Key: $KEY" -H 'Content-Type: application/json' "$@"; }
field() { python3 -c 'import json, sys; print(json.load(sys.stdin)[sys.argv[1]])' "$1"; }

job=$(call "$URL/orchestrator/jobs" -d "{\"url\": \"$page\"}" | field job_id)
for pause in 0.5 1 2 3 5 10 10 10 10 10; do
    status=$(call "$URL/orchestrator/jobs/$job" | field status)
    echo "$status"
    case $status in done | failed) break ;; esac
    sleep "$pause"
done
call "$URL/orchestrator/jobs/$job" | field user_message
[ "$status" = done ] || exit 1
call "$URL/embedding/search" -d "{\"query\": \"$question\", \"top_k\": 3}"
echo
