#!/usr/bin/env bash
# Measures what a machine with one NVIDIA GPU can do, in about six minutes and without a network. Lists the engines that work, trains Bandit
# and SimpleSokoban on each device, and, if Python has PyTorch, compares a training step and decoding with PyTorch. node_modules must be
# installed, and for cuda `bun run setup cuda` must have run.
#
# Usage: bash bench/gpu.sh [FOLDER [DEVICE …]], by default bench-gpu cuda webgpu. The figures go to FOLDER/figures.txt. Exit code 0: every
# device trained.
# BUN is the command of Bun (npx -y bun@1.4.4); BUNRAKU_PYTHON is a Python with torch, transformers, safetensors and numpy.
set -uo pipefail
cd "$(dirname "$0")/.."
folder=${1:-bench-gpu}
devices=("${@:2}")
[ "${#devices[@]}" -gt 0 ] || devices=(cuda webgpu)
mkdir -p "$folder"
figures=$folder/figures.txt
read -ra bun <<<"${BUN:-npx -y bun@1.4.4}"
failed=0

# part SECONDS NAME COMMAND …: runs COMMAND for at most SECONDS; its last lines of output and its exit code go to the figures.
part() {
  local seconds=$1 name=$2 code began=$SECONDS
  shift 2
  echo "== $name"
  timeout -k 5 "$seconds" "$@" >"$folder/last.log" 2>&1
  code=$?
  { echo "== $name: exit code $code after $((SECONDS - began)) s"; tail -n 20 "$folder/last.log"; } >>"$figures"
  return "$code"
}

: >"$figures"
part 10 "GPU" nvidia-smi
part 60 "doctor" "${bun[@]}" run doctor
torch=$("${BUNRAKU_PYTHON:-python3}" -c "import torch, transformers, safetensors, numpy; print('yes')" 2>/dev/null)
for device in "${devices[@]}"; do
  train=("${bun[@]}" run cluster --json --exit --port 0 --engine compiled "--engine.device=$device")
  part 60 "$device, Bandit" "${train[@]}" --preset bandit --updates 20 --run-dir "$folder/bandit-$device" || failed=1
  part 120 "$device, SimpleSokoban, 300 steps of warm start" "${train[@]}" --updates 20 --run-dir "$folder/sokoban-$device" \
    '--warmStart.stages=[{"name":"learn","steps":300,"batch":32,"learningRate":0.002,"finalFraction":0.1,"warmUpSteps":30}]' || failed=1
  if [ "$torch" = yes ]; then
    part 150 "$device, step" "${bun[@]}" run bench step "--step.device=$device" --step.rounds=2
    # Samplers do not decode on webgpu.
    [ "$device" = webgpu ] || part 60 "$device, decode" "${bun[@]}" run bench decode "--decode.device=$device" --decode.rounds=1
  else
    echo "== $device: no step and no decode, because Python lacks torch, transformers, safetensors or numpy" >>"$figures"
  fi
done
cat "$figures"
exit "$failed"
