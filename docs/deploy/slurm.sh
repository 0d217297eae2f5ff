#!/usr/bin/env bash
# One learner and N samplers on Slurm. Samplers connect to the learner's gate; there is no broker. From the repository's root:
#
#   sbatch --nodes 9 docs/deploy/slurm.sh --env Sokoban --minutes 60
#
# The first node runs the learner, each other node a sampler. The arguments go to `bun run cluster`.
#SBATCH --job-name bunraku
#SBATCH --nodes 2
#SBATCH --ntasks-per-node 1
#SBATCH --exclusive
set -euo pipefail
umask 077

run="$PWD/runs/slurm-$SLURM_JOB_ID"
mkdir -p runs
# In the environment, because other users can read the process list.
BUNRAKU_TOKEN=$(openssl rand -hex 24)
export BUNRAKU_TOKEN

nodes=$(scontrol show hostnames "$SLURM_JOB_NODELIST")
first=$(head -n 1 <<< "$nodes")
others=$(tail -n +2 <<< "$nodes" | paste -sd,)

if [ -n "$others" ]; then
  # Samplers wait for the gate, and leave when the run is over.
  srun --nodes "$((SLURM_NNODES - 1))" --ntasks "$((SLURM_NNODES - 1))" --nodelist "$others" \
    bun run sampler --join "ws://$first:7000" --patience 600 &
fi
srun --nodes 1 --ntasks 1 --nodelist "$first" \
  bun run cluster --run-dir "$run" --join.listen=ws://0.0.0.0:7000 "$@"
wait
