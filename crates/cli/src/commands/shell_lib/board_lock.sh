# The board's lock for shell scripts: dash, bash, busybox, zsh, mksh. Made by: tenure shell-lib
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
# the script. A signal ends a wait at once; it never interrupts a release.

# 1 while this shell holds the lock.
BOARD_LOCK_HELD=0
# The lock that is held or being taken: as the caller named it, and its absolute path, so that cd does no harm.
BOARD_LOCK_NAMED=
BOARD_LOCK_DIR=
# The process that holds it.
BOARD_LOCK_PID=
# With tenure: the token; the tenure that waits for the lock ("new" while it is being started, after the process
# BOARD_LOCK_BEFORE), and the file that it prints the token to.
BOARD_LOCK_TOKEN=
BOARD_LOCK_WAITER=
BOARD_LOCK_BEFORE=
BOARD_LOCK_ANSWER=
# 1 once a release has begun: a trap may begin it again.
BOARD_LOCK_RELEASING=0
# The exit code of a script that a signal ended.
BOARD_LOCK_EXIT=

board_lock__error() {
  printf '%s\n' "${BOARD_LOCK_NAME:-tenure board}: error: $*" >&2
}

# The pid of this shell: in a subshell, $$ is still that of the script.
board_lock__self() {
  exec sh -c 'echo "$PPID"'
}

# A word as an argument in a shell.
board_lock__quoted() {
  case $1 in
  *[!A-Za-z0-9_./:-]*) printf "'%s'" "$(printf '%s' "$1" | sed "s/'/'\\\\''/g")" ;;
  *) printf '%s' "$1" ;;
  esac
}

board_lock__tenure() {
  command -v "${TENURE:-tenure}" >/dev/null 2>&1
}

# What another program wrote, on one line and for any terminal. It never waits for a pipe.
board_lock__text() {
  [ -f "$1" ] || return 0
  dd bs=200 count=1 2>/dev/null <"$1" | LC_ALL=C tr -c '\n -~' '?' | sed -n 1p
}

board_lock__busy() {
  board_lock__error "lock busy: $1"
  if [ -r "$1/pid" ]; then
    printf '%s\n' "  held by pid $(board_lock__text "$1/pid"): $(board_lock__text "$1/cmd")" >&2
  fi
  if board_lock__tenure; then
    board_lock__way="$(board_lock__quoted "${TENURE:-tenure}") force board --store $(board_lock__quoted "mkdir:$1")"
  else
    # tenure takes the right to write from the folder while it holds it.
    board_lock__way="chmod u+w $(board_lock__quoted "$1") && rm -r $(board_lock__quoted "$1")"
  fi
  printf '%s\n' "  If you are sure that no other program is using it, remove it with: $board_lock__way" >&2
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

# Waits for the tenure in the background. A trap that returns ends the builtin, but not that process. A trap may also
# end this function and begin it again: the answer stays until it was read.
board_lock__answer() {
  if [ "$BOARD_LOCK_WAITER" = new ]; then
    BOARD_LOCK_WAITER=${!:-}
    if [ "$BOARD_LOCK_WAITER" = "$BOARD_LOCK_BEFORE" ]; then
      BOARD_LOCK_WAITER=
      return 0
    fi
    kill "$BOARD_LOCK_WAITER" 2>/dev/null || :
  fi
  while wait "$BOARD_LOCK_WAITER" 2>/dev/null || kill -0 "$BOARD_LOCK_WAITER" 2>/dev/null; do
    kill -0 "$BOARD_LOCK_WAITER" 2>/dev/null || break
  done
  BOARD_LOCK_TOKEN=$(cat "$BOARD_LOCK_ANSWER" 2>/dev/null || :)
  BOARD_LOCK_WAITER=
  rm -f -- "$BOARD_LOCK_ANSWER"
  BOARD_LOCK_ANSWER=
}

# Lets tenure take the lock. It runs in the background: the shell acts on a signal only between commands
# and in the builtin wait.
board_lock__ask() {
  BOARD_LOCK_ANSWER=$(mktemp "${TMPDIR:-/tmp}/board-lock.XXXXXX") || return 0
  if [ "$2" -eq 0 ]; then
    set -- "$1" --no-wait
  else
    set -- "$1" "--wait=${2}s"
  fi
  BOARD_LOCK_BEFORE=${!:-} BOARD_LOCK_WAITER=new
  "${TENURE:-tenure}" --store "mkdir:$1" --quiet acquire board --pid "$BOARD_LOCK_PID" "$2" \
    >"$BOARD_LOCK_ANSWER" &
  BOARD_LOCK_WAITER=$!
  board_lock__answer
}

board_lock__forget() {
  if [ -n "$BOARD_LOCK_ANSWER" ]; then
    rm -f -- "$BOARD_LOCK_ANSWER"
    BOARD_LOCK_ANSWER=
  fi
  BOARD_LOCK_HELD=0 BOARD_LOCK_NAMED='' BOARD_LOCK_DIR='' BOARD_LOCK_TOKEN='' BOARD_LOCK_RELEASING=0
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
  board_lock__forget
  BOARD_LOCK_PID=$(board_lock__self)
  BOARD_LOCK_NAMED=$1
  case $1 in
  /*) BOARD_LOCK_DIR=$1 ;;
  *) BOARD_LOCK_DIR=$(pwd)/$1 ;;
  esac

  if board_lock__tenure; then
    board_lock__ask "$BOARD_LOCK_DIR" "$2"
    if [ -n "$BOARD_LOCK_TOKEN" ]; then
      BOARD_LOCK_HELD=1
      return 0
    fi
    if [ -d "$BOARD_LOCK_DIR" ]; then
      board_lock__busy "$BOARD_LOCK_DIR"
    else
      board_lock__error "the lock could not be taken: $BOARD_LOCK_DIR"
    fi
    board_lock__forget
    return 1
  fi

  # The clock shows whole seconds: the wait is never shorter than the timeout, and up to a second longer.
  board_lock__ends=$(($(date +%s) + $2))
  while :; do
    if board_lock__make "$BOARD_LOCK_DIR" "$BOARD_LOCK_PID" "${ZSH_ARGZERO:-$0}"; then
      BOARD_LOCK_HELD=1
      return 0
    fi
    if [ ! -d "$BOARD_LOCK_DIR" ] && ! [ -w "$(dirname -- "$BOARD_LOCK_DIR")" ]; then
      board_lock__error "cannot create the lock: $BOARD_LOCK_DIR"
      board_lock__forget
      return 1
    fi
    if [ "$2" -eq 0 ] || [ "$(date +%s)" -gt "$board_lock__ends" ]; then
      board_lock__busy "$BOARD_LOCK_DIR"
      board_lock__forget
      return 1
    fi
    sleep 0.1 2>/dev/null || sleep 1
  done
}

board_lock_release() {
  [ -n "$BOARD_LOCK_DIR" ] || return 0
  case ${1:-} in
  "$BOARD_LOCK_NAMED" | "$BOARD_LOCK_DIR") ;;
  *) return 0 ;;
  esac
  # A subshell inherits the variables of its parent, but not its locks.
  if [ "$(board_lock__self)" != "$BOARD_LOCK_PID" ]; then
    return 0
  fi
  # A signal has ended the wait.
  if [ -n "$BOARD_LOCK_WAITER" ]; then
    [ "$BOARD_LOCK_WAITER" = new ] || kill "$BOARD_LOCK_WAITER" 2>/dev/null || :
    board_lock__answer
  fi
  board_lock__again=$BOARD_LOCK_RELEASING
  BOARD_LOCK_RELEASING=1
  board_lock__gone=
  if [ -n "$BOARD_LOCK_TOKEN" ]; then
    if [ "$board_lock__again" -eq 1 ]; then
      board_lock__remove 2>/dev/null || :
    else
      board_lock__remove || board_lock__gone="was no longer held"
    fi
  elif [ "$(board_lock__text "$BOARD_LOCK_DIR/pid")" = "$BOARD_LOCK_PID" ]; then
    # A signal may have arrived between mkdir and BOARD_LOCK_HELD=1, so only the pid shows whose lock it is.
    board_lock__remove || board_lock__gone="could not be removed"
  elif [ "$BOARD_LOCK_HELD" -eq 1 ] && [ "$board_lock__again" -eq 0 ]; then
    board_lock__gone="was no longer held"
  fi
  board_lock__dir=$BOARD_LOCK_DIR
  board_lock__forget
  [ -n "$board_lock__gone" ] || return 0
  board_lock__error "the lock $board_lock__gone: $board_lock__dir"
  return 1
}

# Removes the lock in a process that no signal interrupts.
board_lock__remove() {
  (
    trap '' HUP INT TERM
    if [ -n "$BOARD_LOCK_TOKEN" ]; then
      exec "${TENURE:-tenure}" --store "mkdir:$BOARD_LOCK_DIR" --quiet release board --token "$BOARD_LOCK_TOKEN"
    fi
    rm -f -- "$BOARD_LOCK_DIR/pid" "$BOARD_LOCK_DIR/ts" "$BOARD_LOCK_DIR/cmd" 2>/dev/null
    exec rmdir -- "$BOARD_LOCK_DIR" 2>/dev/null
  )
}

# Releases the lock at the end of the script, and keeps its exit code: mksh and zsh would take another one. Signals are
# ignored from here on; zsh never ends a wait if a trap of a signal does that itself.
board_lock__end() {
  trap '' HUP INT TERM
  board_lock_release "$BOARD_LOCK_DIR" || :
  exit "$1"
}

# Releases the lock when the script ends for any reason. HUP, INT and TERM end the script.
board_lock_trap() {
  # zsh would run a trap on EXIT that a function sets when that function returns.
  if [ -n "${ZSH_VERSION-}" ]; then
    setopt local_options posix_traps
  fi
  trap 'board_lock__end "${BOARD_LOCK_EXIT:-$?}"' EXIT
  trap 'BOARD_LOCK_EXIT=129; exit 129' HUP
  trap 'BOARD_LOCK_EXIT=130; exit 130' INT
  trap 'BOARD_LOCK_EXIT=143; exit 143' TERM
}
