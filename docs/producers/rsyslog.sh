#!/bin/sh
# Sends the lines that rsyslog.conf writes to standard input, which start with `=`, before it confirms a transaction. Needs curl.
# Variables: SVC_BASE_URL and SVC_API_KEY.
export LC_ALL=C
body=$(mktemp)
trap 'rm -f "$body"' EXIT
trap exit TERM

# Sends the same lines again until the service accepts them. 400, 413, 415 and 422 are final: the request is wrong, or the quarantine is
# full. The key is not an argument, because other users can list those.
send() {
  while [ -s "$body" ]; do
    status=$(printf 'header = "Authorization: Bearer %s"\n' "$SVC_API_KEY" | curl --config - --silent --max-time 100 \
      --header "Content-Type: application/x-ndjson" --data-binary "@$body" --output /dev/null --write-out '%{http_code}' \
      "$SVC_BASE_URL/api/v1/events/batch?invalid=quarantine")
    case $status in
      400 | 413 | 415 | 422) echo "the service rejects lines: status $status" >&2; break ;;
      2??) break ;;
    esac
    sleep 1
  done
  : > "$body"
  size=0
}

echo OK
while IFS= read -r line; do
  case $line in
    =*)
      printf '%s\n' "${line#=}" >> "$body"
      size=$((size + ${#line}))
      # At most 10 MiB.
      if [ "$size" -gt 4194304 ]; then send; fi
      echo DEFER_COMMIT
      ;;
    *) send; echo OK ;;
  esac
done
