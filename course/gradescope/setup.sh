#!/usr/bin/env bash
# Sets up the image. Gradescope, or the Dockerfile next to this file, runs this script once, as root, on Ubuntu.
set -euo pipefail

source=${AUTOGRADER:-/autograder}/source
export DEBIAN_FRONTEND=noninteractive

apt-get update
apt-get install -y g++ python3 python3-venv
python=python3
if ! python3 -c 'import sys; sys.exit(sys.version_info < (3, 11))'; then # Ubuntu 22.04 has 3.10
  apt-get install -y software-properties-common
  add-apt-repository -y ppa:deadsnakes/ppa
  apt-get install -y python3.12 python3.12-venv
  python=python3.12
fi

"$python" -m venv "$source/venv"
"$source/venv/bin/python" -m pip install --quiet --editable "$source/mini_dnn"

# The data set is downloaded, and the emulator and its checked mode are compiled, now instead of for each submission.
cd "$source/mini_dnn"
"$source/venv/bin/python" run.py --batch 100 --impl m3 --device emulator --data fashion-mnist
"$source/venv/bin/python" run.py check --impl m1 --device emulator
