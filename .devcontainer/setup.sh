#!/usr/bin/env bash
# Sets up a fresh container, or any Debian or Ubuntu: compiler, Python, the virtual environment, clangd's file.
set -euo pipefail
cd "$(dirname "$0")/.."

missing=()
command -v g++ >/dev/null || missing+=(g++)
command -v make >/dev/null || missing+=(make)
command -v git >/dev/null || missing+=(git)
python3 -c 'import venv, ensurepip' 2>/dev/null || missing+=(python3-venv)
command -v clangd >/dev/null || missing+=(clangd)
if [ ${#missing[@]} -gt 0 ]; then
  sudo=()
  [ "$(id -u)" = 0 ] || sudo=(sudo)
  "${sudo[@]}" apt-get update -q
  "${sudo[@]}" apt-get install -qy "${missing[@]}"
fi

make setup
.venv/bin/python run.py editor
