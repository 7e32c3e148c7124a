#!/usr/bin/env bash
# Makes a bare Debian in a temporary folder, and tests in it that this project works on a new machine:
#
#   sudo course/bare.sh readme       installs only the packages that the README names, then `make run` and `make test`
#   sudo course/bare.sh gradescope   runs gradescope/setup.sh and gradescope/run_autograder, as the service does; then
#                                    the scripts of PrairieLearn and GitHub Classroom, in the same system
#   sudo course/bare.sh              both
#
# It uses the last commit of this checkout, and needs 3 GB in $TMPDIR and 20 minutes or more. SUITE names the Debian
# release (default: bookworm).
# FASHION_MNIST_DIR names a folder with the data set; without it, the data set is downloaded. The exit status is 77 if
# this machine cannot make a bare Debian.
set -euo pipefail
cd "$(dirname "$0")/.."

if [ "$(id -u)" != 0 ] || ! command -v debootstrap > /dev/null; then
  echo "course/bare.sh needs root and debootstrap (apt-get install debootstrap)" >&2
  exit 77
fi
place=$(mktemp -d)
trap 'rm -rf --one-file-system "$place"' EXIT

# bare NAME: a Debian in $place/NAME. Host names and this machine's certificates are copied into it.
bare() {
  [ -d "$place/base" ] || debootstrap --variant=minbase "${SUITE:-bookworm}" "$place/base" > "$place/log" \
    || { tail -n 20 "$place/log" >&2; exit 77; }
  cp -a "$place/base" "$place/$1"
  cp -L /etc/resolv.conf /etc/hosts "$place/$1/etc/"
  mkdir -p "$place/$1/usr/local/share/ca-certificates" "$place/$1/srv/data"
  cp /usr/local/share/ca-certificates/*.crt "$place/$1/usr/local/share/ca-certificates/" 2> /dev/null || true
  [ -z "${FASHION_MNIST_DIR:-}" ] || cp "$FASHION_MNIST_DIR"/* "$place/$1/srv/data/"
}

# inside NAME USER COMMAND: runs a shell command in that Debian. Its mounts and processes are removed at the end.
inside() {
  local variables=(PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME="/home/$2" LANG=C.UTF-8)
  [ "$2" != root ] || variables+=(HOME=/root)
  [ -z "${FASHION_MNIST_DIR:-}" ] || variables+=(FASHION_MNIST_DIR=/srv/data)
  # shellcheck disable=SC2016 # the inner shell expands them
  unshare --mount --pid --fork --kill-child bash -c '
    mount -t proc proc "$1/proc" && mount --rbind /dev "$1/dev" && mount -t tmpfs tmpfs "$1/tmp"
    root=$1 user=$2 command=$3
    shift 3
    exec chroot --userspec="$user" "$root" env --ignore-environment "$@" bash -euc "$command"
  ' bash "$place/$1" "$2" "$3" "${variables[@]}"
}

readme() {
  local packages
  packages=$(grep --only-matching --max-count=1 'apt-get install [^`]*' README.md)
  bare readme
  inside readme root "apt-get update -q && DEBIAN_FRONTEND=noninteractive $packages --yes --no-install-recommends"
  inside readme root 'useradd --create-home student'
  git clone --quiet --no-hardlinks . "$place/readme/home/student/mini_dnn"
  chown -R --reference="$place/readme/home/student" "$place/readme/home/student/mini_dnn"
  inside readme student 'cd ~/mini_dnn && time make run'
  inside readme student 'cd ~/mini_dnn && time make test'
}

gradescope() {
  bare gradescope
  local home=$place/gradescope/autograder
  mkdir -p "$home/source" "$home/results"
  # docs/course.md makes a zip file of the same
  git archive --format=tar --prefix= --add-file=course/rubric.toml --add-file=course/gradescope/setup.sh \
    --add-file=course/gradescope/run_autograder --prefix=mini_dnn/ HEAD | tar -x -C "$home/source"
  cp "$home/source/run_autograder" "$home/"
  inside gradescope root 'time bash /autograder/source/setup.sh && chmod +x /autograder/run_autograder'
  local kind
  for kind in wrong right; do
    rm -rf "$home/submission" "$home/results"
    cp -r milestones/m1/direct "$home/submission"
    [ "$kind" = right ] || sed -i 's/acc +=/acc -=/' "$home/submission/kernel.cu"
    inside gradescope root 'time /autograder/run_autograder'
    echo "$kind: $(inside gradescope root 'python3 -c "
import json
found = json.load(open(\"/autograder/results/results.json\"))
full = sum(test[\"max_score\"] for test in found[\"tests\"])
print(sum(test[\"score\"] for test in found[\"tests\"]), \"of\", full)"')" | tee -a "$place/points"
  done
  # the right one has all points, and the wrong one has none
  awk '$1 == "right:" { good += $2 == $4 && $4 > 0 } $1 == "wrong:" { good += $2 == 0 } END { exit good != 2 }' \
    "$place/points"
  # shellcheck disable=SC2016 # the inner shell expands them
  inside gradescope root '
    source=/autograder/source
    export PATH=$source/venv/bin:$PATH PROGRAM=$source/mini_dnn/run.py
    mkdir -p /grade/tests
    cp -r /autograder/submission /grade/student
    cp $source/rubric.toml /grade/tests/
    bash $source/mini_dnn/course/prairielearn/grade.sh
    python -c "
import json
found = json.load(open(\"/grade/results/results.json\"))
print(\"PrairieLearn:\", found[\"score\"])
assert found[\"gradable\"] and found[\"score\"] == 1"
    export GITHUB_OUTPUT=/tmp/output
    bash $source/mini_dnn/course/github-classroom/grade.sh /autograder/submission $source/rubric.toml
    grep --quiet "^result=." $GITHUB_OUTPUT
    echo "GitHub Classroom: one result"'
}

case ${1:-both} in
  readme) readme ;;
  gradescope) gradescope ;;
  both) readme && gradescope ;;
  *) echo "usage: course/bare.sh [readme|gradescope]" >&2 && exit 2 ;;
esac
echo "course/bare.sh ${1:-both}: all of it works"
