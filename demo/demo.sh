#!/bin/sh
# What tenure is for, to watch: four runners share the jobs of a small project, one of them is
# killed in the middle of a job, another takes that job over, and the story of each job is told.
# Started by `make demo`, which builds the command and names it in TENURE.
set -eu

tenure=${TENURE:?run this through: make demo}
project=$(mktemp -d)
trap 'rm -rf "$project"' EXIT
cd "$project"
unset TENURE_HOLDER

say() { printf '\n\033[1m%s\033[0m\n' "$*"; }
[ -t 1 ] || say() { printf '\n%s\n' "$*"; }

say "1. A project"
"$tenure" init

jobs="lint build unit-tests docs package deploy"

# A runner goes through the jobs. It skips what is done, and takes what nobody else is working on;
# what somebody else is working on it leaves to them. Only a holder marks a job as done, and only
# if it still holds it.
cat > runner.sh <<'RUNNER'
me=$1
while :; do
    left=0
    for job in $JOBS; do
        [ -e "done-$job" ] && continue
        left=1
        "$TENURE" run "$job" --as "$me" --no-wait --quiet -- sh -c '
            [ -e "done-$TENURE_KEY" ] && exit 0
            echo "  $TENURE_HOLDER works on $TENURE_KEY (token $TENURE_TOKEN)"
            sleep 0.$PACE
            "$TENURE" fence "$TENURE_KEY" --token "$TENURE_TOKEN" --quiet &&
            echo "$TENURE_HOLDER" > "done-$TENURE_KEY" &&
            echo "  $TENURE_HOLDER finished $TENURE_KEY"' 2>/dev/null || true
    done
    [ $left = 0 ] && exit 0
    sleep 0.05
done
RUNNER

say "2. Four runners share six jobs; runner-2 is killed in the middle of one"
export TENURE="$tenure" JOBS="$jobs"
pids=""
pace=3
for runner in runner-1 runner-2 runner-3 runner-4; do
    PACE=$pace sh runner.sh "$runner" &
    [ "$runner" = runner-2 ] && victim=$!
    pids="$pids $!"
    pace=$((pace + 2))
done

# Once runner-2 holds a job: kill -9 the runner, and the tenure that holds the job for it.
holder=""
while [ -z "$holder" ]; do
    sleep 0.02
    holder=$("$tenure" locks list --json | tr -d ' ",' |
        awk -F: '$1 == "key" { key = $2 } $1 == "holder" { who = $2 } $1 == "pid" && who == "runner-2" { print key, $2; exit }')
done
kill -9 "$victim"
kill -9 "${holder#* }"
printf '  *** runner-2 was killed while it worked on %s\n' "${holder% *}"
for pid in $pids; do wait "$pid" 2>/dev/null || true; done

say "3. Who did what"
for job in $jobs; do printf '  %-12s %s\n' "$job" "$(cat "done-$job")"; done

say "4. The story of ${holder% *}, which was taken over on proof of death"
"$tenure" locks history "${holder% *}"

say "5. Waiting in line: three ask for the same key, and get it in the order they came"
"$tenure" run build --as first --quiet -- sleep 0.6 &
sleep 0.2
"$tenure" run build --as second --wait 1m -- echo "  second has it" &
sleep 0.2
"$tenure" run build --as third --wait 1m -- echo "  third has it" &
sleep 0.1
"$tenure" locks list
wait

say "6. Nothing is left behind"
"$tenure" locks list
