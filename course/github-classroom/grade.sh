#!/usr/bin/env bash
# One step of the workflow: grade.sh SUBMISSION RUBRIC; the payload becomes the step's output "result".
set -uo pipefail

program=${PROGRAM:-$(dirname "$0")/../../run.py}
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT

python "$program" grade "$1" --rubric "$2" --out "$out"
echo "run.py grade ended with status $?"

name=$(basename "$(realpath "$1")")
sed -n 's/^MINIDNN_RESULTS=/result=/p' "$out/students/$name/github-classroom.env" >> "$GITHUB_OUTPUT"
