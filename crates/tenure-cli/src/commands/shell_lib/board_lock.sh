# The board's lock for shell scripts. Made by: tenure shell-lib
#
#   board_lock_acquire <lock_dir> <timeout_seconds>   0 acquired, 1 not: busy, or an error. 0 seconds: no wait
#   board_lock_release <lock_dir>                     0 released or not held, 1 otherwise. May be repeated
#   board_lock_trap    <lock_dir>                     releases on EXIT; INT, TERM and HUP end the script first
#
#   eval "$(tenure shell-lib)"
#   board_lock_trap .bilu/storage/lock
#   board_lock_acquire .bilu/storage/lock 10 || exit 1
#   ... write ...
#   board_lock_release .bilu/storage/lock
#
# Where tenure is installed ($TENURE, or tenure in the PATH) it takes and releases the lock: waiters are
# served in order, and exactly one of them takes over the lock of a dead process. Elsewhere the lock is
# made with mkdir and removed with rmdir, and a lock of another process is never taken over.
#
# A trap that only releases the lock lets the script continue to write without it. board_lock_trap ends
# the script.

# 1 while this shell holds the lock.
BOARD_LOCK_HELD=0
# The lock that is held or being taken; with tenure, its token and process.
BOARD_LOCK_DIR=
BOARD_LOCK_TOKEN=
BOARD_LOCK_PID=

board_lock__error() {
  printf '%s\n' "${BOARD_LOCK_NAME:-tenure board}: error: $*" >&2
}

board_lock__busy() {
  board_lock__error "lock busy: $1"
  if [ -r "$1/pid" ]; then
    printf '%s\n' "  held by pid $(cat "$1/pid" 2>/dev/null): $(cat "$1/cmd" 2>/dev/null)" >&2
  fi
  printf '%s\n' "  If you are sure no other program is at work there, remove the lock directory." >&2
}

# Makes the lock folder with its pid; signals are ignored meanwhile. Fails if the folder exists.
board_lock__make() {
  sh -c '
    trap "" HUP INT TERM
    mkdir "$1" 2>/dev/null || exit 1
    printf "%s\n" "$2" >"$1/pid"
    { date +%s 2>/dev/null || date; } >"$1/ts"
    printf "%s\n" "$3" >"$1/cmd"
    exit 0
  ' sh "$1" "$2" "$3" 2>/dev/null
}

board_lock_acquire() {
  if [ "$#" -ne 2 ]; then
    board_lock__error "usage: board_lock_acquire <lock_dir> <timeout_seconds>"
    return 1
  fi
  case $2 in
  '' | *[!0-9]*)
    board_lock__error "the timeout is a whole number of seconds, not: $2"
    return 1
    ;;
  esac
  if [ "$BOARD_LOCK_HELD" -eq 1 ]; then
    board_lock__error "this shell holds a lock already: $BOARD_LOCK_DIR"
    return 1
  fi
  if ! mkdir -p -- "$(dirname -- "$1")" 2>/dev/null; then
    board_lock__error "cannot create the storage directory: $(dirname -- "$1")"
    return 1
  fi
  # The pid of this shell: in a subshell, $$ is still that of the script.
  BOARD_LOCK_PID=$(exec sh -c 'echo "$PPID"')
  BOARD_LOCK_DIR=$1
  BOARD_LOCK_TOKEN=

  if command -v "${TENURE:-tenure}" >/dev/null 2>&1; then
    if [ "$2" -eq 0 ]; then
      BOARD_LOCK_TOKEN=$("${TENURE:-tenure}" --store "mkdir:$1" --quiet acquire board \
        --pid "$BOARD_LOCK_PID" --no-wait)
    else
      BOARD_LOCK_TOKEN=$("${TENURE:-tenure}" --store "mkdir:$1" --quiet acquire board \
        --pid "$BOARD_LOCK_PID" --wait "${2}s")
    fi
    if [ -n "$BOARD_LOCK_TOKEN" ]; then
      BOARD_LOCK_HELD=1
      return 0
    fi
    BOARD_LOCK_DIR=
    if [ -d "$1" ]; then
      board_lock__busy "$1"
    else
      board_lock__error "the lock could not be taken: $1"
    fi
    return 1
  fi

  board_lock__ends=$(($(date +%s) + $2))
  while :; do
    if board_lock__make "$1" "$BOARD_LOCK_PID" "$0"; then
      BOARD_LOCK_HELD=1
      return 0
    fi
    if [ ! -d "$1" ] && ! [ -w "$(dirname -- "$1")" ]; then
      BOARD_LOCK_DIR=
      board_lock__error "cannot create the lock: $1"
      return 1
    fi
    if [ "$2" -eq 0 ] || [ "$(date +%s)" -ge "$board_lock__ends" ]; then
      BOARD_LOCK_DIR=
      board_lock__busy "$1"
      return 1
    fi
    sleep 0.1 2>/dev/null || sleep 1
  done
}

board_lock_release() {
  # Not held by this shell: a subshell inherits the variables of its parent, but not its locks.
  [ "$BOARD_LOCK_DIR" = "${1:-}" ] && [ -n "$BOARD_LOCK_DIR" ] || return 0
  if [ "$(exec sh -c 'echo "$PPID"')" != "$BOARD_LOCK_PID" ]; then
    return 0
  fi
  if [ -n "$BOARD_LOCK_TOKEN" ]; then
    board_lock__token=$BOARD_LOCK_TOKEN
    BOARD_LOCK_TOKEN= BOARD_LOCK_DIR= BOARD_LOCK_HELD=0
    if "${TENURE:-tenure}" --store "mkdir:$1" --quiet release board --token "$board_lock__token"; then
      return 0
    fi
    board_lock__error "the lock was no longer held: $1"
    return 1
  fi
  # A signal may have arrived between mkdir and BOARD_LOCK_HELD=1: the pid shows whose lock it is.
  if [ "$BOARD_LOCK_HELD" -eq 1 ] || [ "$(cat "$1/pid" 2>/dev/null)" = "$BOARD_LOCK_PID" ]; then
    BOARD_LOCK_DIR= BOARD_LOCK_HELD=0
    if [ "$(cat "$1/pid" 2>/dev/null)" != "$BOARD_LOCK_PID" ]; then
      board_lock__error "the lock was no longer held: $1"
      return 1
    fi
    rm -f -- "$1/pid" "$1/ts" "$1/cmd" 2>/dev/null
    rmdir -- "$1" 2>/dev/null && return 0
    board_lock__error "the lock could not be removed: $1"
    return 1
  fi
  BOARD_LOCK_DIR=
  return 0
}

# Releases the lock when the script ends for any reason. HUP, INT and TERM end the script.
board_lock_trap() {
  BOARD_LOCK_TRAP=$1
  trap 'board_lock_release "$BOARD_LOCK_TRAP"' EXIT
  trap 'exit 129' HUP
  trap 'exit 130' INT
  trap 'exit 143' TERM
}
