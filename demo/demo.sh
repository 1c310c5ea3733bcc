#!/bin/sh
# Shows what tenure is for: four runners share the tasks of a small project, one of them is killed in
# the middle of a task, another takes that task over, and the history proves it.
# `make demo` builds the command, puts its path into TENURE and runs this script.
set -eu

tenure=${TENURE:?run this through: make demo}
project=$(mktemp -d)
trap 'rm -rf "$project"' EXIT
cd "$project"
unset TENURE_HOLDER TENURE_WITHIN TENURE_TASK_ID TENURE_TOKEN

say() { printf '\n\033[1m%s\033[0m\n' "$*"; }
[ -t 1 ] || say() { printf '\n%s\n' "$*"; }

say "1. A project with sections, tasks, and an order among them"
"$tenure" init --quiet
for section in Backend Frontend Docs; do "$tenure" sections add "$section" --quiet >/dev/null; done
add() { "$tenure" tasks add "$@" --quiet >/dev/null; }
add "Write the migration" --section Backend --priority 8
add "Fix the login bug" --section Backend
add "Draw the login page" --section Frontend
add "Test the login page" --section Frontend --depends-on "Draw the login page" --depends-on "Fix the login bug"
add "Explain the login" --section Docs
add "Lint everything"
add "Update the licences"
add "Release it" --priority 9 --depends-on "Test the login page" --depends-on "Write the migration"
"$tenure" tasks list

say "2. Four runners share them; runner-2 is killed with SIGKILL in the middle of a task"
# A runner is one line. One runner at a time works in a section, no runner starts a task whose
# dependencies are not done, and another runner starts the task of a dead one again.
work='echo "  $TENURE_HOLDER: $TENURE_TASK_TITLE (token $TENURE_TOKEN)"; sleep 0.$PACE'
pids=""
pace=3
for runner in runner-1 runner-2 runner-3 runner-4; do
    PACE=$pace "$tenure" tasks work --as "$runner" --quiet -- sh -c "$work" &
    [ "$runner" = runner-2 ] && victim=$!
    pids="$pids $!"
    pace=$((pace + 2))
done
# Once runner-2 has a task: kill -9.
task=""
while [ -z "$task" ]; do
    sleep 0.02
    task=$("$tenure" locks list | awk '$1 ~ /^task:/ && $2 == "runner-2" { print $1; exit }')
done
kill -9 "$victim"
"$tenure" tasks list --status in_progress |
    awk '/ runner-2 / { sub(/.* runner-2 +/, ""); printf "  *** runner-2 was killed while working on: %s\n", $0; exit }'
for pid in $pids; do { wait "$pid" || true; } 2>/dev/null; done

say "3. Everything is done"
"$tenure" tasks list

say "4. The history of the task that was taken over: on proof of death, not on a guess"
"$tenure" locks history "$task"

say "5. A runner that comes too late is refused (exit 7), and nothing changes"
"$tenure" tasks update "$task" --status failed --as runner-2 || echo "  exit code $?"

say "6. Any other key works the same way: three callers get it in the order in which they asked"
"$tenure" run build --as first --quiet -- sleep 0.6 &
sleep 0.2
"$tenure" run build --as second --wait 1m -- echo "  second has it" &
sleep 0.2
"$tenure" run build --as third --wait 1m -- echo "  third has it" &
sleep 0.1
"$tenure" locks list
wait

say "7. Nothing is left behind"
"$tenure" locks list
