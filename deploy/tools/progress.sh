# Sourced. step TITLE COMMAND...: one line on the screen per piece of work, its
# output in a log under $LOG_DIR; the log's end is shown when it fails.

step() {
  local title=$1 log started=$SECONDS
  shift
  mkdir -p "$LOG_DIR"
  log=$LOG_DIR/$(tr -c 'A-Za-z0-9\n' '-' <<<"${title:0:40}").log
  printf '  .. %s\n' "$title"
  if "$@" </dev/null >"$log" 2>&1; then
    printf '  ok %s (%d s)\n' "$title" $((SECONDS - started))
    return 0
  fi
  printf '  FAILED %s (%d s); the end of %s:\n' "$title" $((SECONDS - started)) "$log" >&2
  tail -n 40 "$log" | sed 's/^/     | /' >&2
  return 1
}
