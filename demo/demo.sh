#!/usr/bin/env bash
# Shows what tenure is for, in half a minute: a key whose holder is killed, and four runners that share the
# tasks of a small project, one of which is killed in the middle of a task.
# `make demo` builds the command, puts its path into TENURE and runs this script.
set -eu

PATH=$(dirname "${TENURE:?run this through: make demo}"):$PATH
unset TENURE TENURE_HOLDER TENURE_PARENT_LEASES TENURE_TASK_ID TENURE_TOKEN TENURE_KEY
project=$(mktemp -d)
jobs=()
finish() {
    exec 2>/dev/null
    for job in "${jobs[@]}"; do kill "$job" || true; done
    wait || true
    rm -rf "$project"
}
trap finish EXIT
cd "$project"

if [ -t 1 ]; then
    bold=$'\e[1m' dim=$'\e[2m' plain=$'\e[0m'
    pause() { sleep "$1"; }
else
    bold='' dim='' plain=''
    pause() { :; }
fi

# A sentence about what comes.
say() { printf '\n%s# %s%s\n' "$dim" "$*" "$plain"; pause 1.5; }

# Types a command, and runs it. In a subshell: this shell would print that a job was killed where the command prints.
types() {
    printf '%s$ %s%s\n' "$bold" "$*" "$plain"
    pause 0.7
    (eval "$*") 2>&1 || printf '%s(exit code %s)%s\n' "$dim" "$?" "$plain"
    pause 1
}

# The same in the background.
starts() {
    printf '%s$ %s &%s\n' "$bold" "$*" "$plain"
    pause 0.7
    eval "exec $*" 2>&1 &
    jobs+=("$!")
}

# Waits until a command succeeds.
until_done() { until eval "$*" >/dev/null 2>&1; do sleep 0.05; done; }

# The shell's own words about the jobs that are killed here are not part of the demo.
exec 2>/dev/null

say "A key is held while a command runs. agent-1 builds:"
types tenure init --quiet
starts tenure run build --as agent-1 -- sleep 60
builder=$!
until_done tenure locks show build
types tenure locks
say "agent-2 wants to build, too, and waits. Then agent-1 is killed:"
starts tenure run build --as agent-2 -- echo "'agent-2 builds now'"
waiter=$!
until_done "tenure locks show build --json | grep -q agent-2"
pause 1
children=$(cat "/proc/$builder/task/$builder/children")
types kill -9 "$builder" $children
wait "$waiter" || true
pause 1
say "agent-2 took over at once, on proof and not on a guess. The history has it:"
types tenure locks history build
say "The token is the number of a grant. It only grows: a late writer is found out."
types tenure fence build --token 1

say "Runners share a list of tasks the same way. One waits for two others:"
for section in Backend Frontend; do tenure sections add "$section" --quiet; done >/dev/null
{
    tenure tasks add "Write the migration" --section Backend --priority 8 --quiet
    tenure tasks add "Fix the login bug" --section Backend --quiet
    tenure tasks add "Draw the login page" --section Frontend --quiet
    tenure tasks add "Lint everything" --quiet
    tenure tasks add "Update the licences" --quiet
    tenure tasks add "Release it" --priority 9 --depends-on "Draw the login page" --depends-on "Write the migration" --quiet
} >/dev/null
types tenure tasks
say "Four runners work; runner-2 is killed in the middle of its task:"
# shellcheck disable=SC2016 # The runner's shell expands it.
work='echo "  $TENURE_HOLDER: $TENURE_TASK_TITLE (token $TENURE_TASK_TOKEN)"; sleep $PACE'
printf '%s$ tenure tasks work --as runner-1 -- ./agent.sh &   # and three more%s\n' "$bold" "$plain"
runners=()
for runner in 1 2 3 4; do
    # runner-2 takes its time, so that it is killed in the middle.
    pace=0.$((1 + 2 * runner))
    [ "$runner" != 2 ] || pace=20
    PACE=$pace tenure tasks work --as "runner-$runner" --quiet -- sh -c "$work" 2>&1 &
    runners+=("$!")
    jobs+=("$!")
done
victim=${runners[1]}
task=''
until [ -n "$task" ]; do
    sleep 0.02
    task=$(tenure locks | awk '$1 ~ /^task:/ && $2 == "runner-2" { print $1; exit }')
done
types kill -9 "$victim"
for runner in "${runners[@]}"; do wait "$runner" || true; done
pause 1
say "All tasks are done, and another runner did the task of the killed one:"
types tenure tasks
types tenure locks history "$task"
say "runner-2 comes back and reports its old task. It is refused:"
types tenure tasks update "$task" --status failed --as runner-2

say "You saw two holders die and leave no lock behind, and two late ones refused."
