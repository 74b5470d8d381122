#!/bin/sh
# Sends the lines that rsyslog.conf writes to standard input, which start with `=`, before it confirms a transaction. Needs curl.
# Variables: SVC_BASE_URL and SVC_API_KEY.
export LC_ALL=C
directory=$(mktemp -d)
body=$directory/body
trap 'rm -rf "$directory"' EXIT
# A trap runs during `wait`, but not while the shell waits for a command in the foreground.
trap 'kill "$request" 2>/dev/null; exit 1' TERM

# Sends the same lines again until the service accepts them. 400, 413, 415 and 422 are final: the request is wrong, or the quarantine is
# full. Exits after 100 s, which is less than `confirmTimeout`: rsyslog starts the program again and repeats the lines. The key is not an
# argument, because other users can list those.
send() {
  end=$(($(date +%s) + 100))
  while [ -s "$body" ]; do
    left=$((end - $(date +%s)))
    if [ "$left" -le 0 ]; then exit 1; fi
    printf 'header = "Authorization: Bearer %s"\n' "$SVC_API_KEY" | curl --config - --silent --max-time "$left" \
      --header "Content-Type: application/x-ndjson" --data-binary "@$body" --output /dev/null --write-out '%{http_code}' \
      "$SVC_BASE_URL/api/v1/events/batch?invalid=quarantine" > "$directory/status" &
    request=$!
    wait "$request"
    status=$(cat "$directory/status")
    case $status in
      400 | 413 | 415 | 422) echo "the service rejects lines: status $status" >&2; break ;;
      2??) break ;;
    esac
    sleep 1
  done
  : > "$body"
  size=0
}

: > "$body"
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
