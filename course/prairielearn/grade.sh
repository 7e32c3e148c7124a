#!/usr/bin/env bash
# PrairieLearn runs this for each submission; the rubric is tests/rubric.toml of the question.
# If grading itself fails, the submission is not gradable and does not cost the student an attempt.
set -uo pipefail

grade=${GRADE:-/grade}
program=${PROGRAM:-/opt/mini_dnn/run.py}
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT

python "$program" grade "$grade/student" --rubric "$grade/tests/rubric.toml" --out "$out"
status=$?

mkdir -p "$grade/results"
if ! install -m 644 "$out/students/student/prairielearn.json" "$grade/results/results.json"; then
  echo "run.py grade ended with status $status and left no result" >&2
  echo '{"gradable": false, "message": "The grader itself failed; please tell the course staff."}' \
    > "$grade/results/results.json"
fi
