#!/bin/bash
# torchrun: the same line on each host.   NODES=2 HEAD=host1 JOB_TOKEN_FILE=~/token tools/launch/examples/torchrun.sh
# HEAD is the first host. JOB_TOKEN_FILE is the path of a file with one secret, equal on all hosts, that only you may
# read.
set -u
program=${PROGRAM:-./train}  # the program //models/gpt:train
export JOB_FLIGHT=${JOB_FLIGHT:-$PWD/flight.$(date +%s)}
mkdir -p "$JOB_FLIGHT"

# --no-python: the program is not a script. torchrun ends all ranks when one fails, and its exit code is 1; the ranks'
# output is above its table. The coordination service uses another port than torchrun's own store.
torchrun --no-python --nnodes "${NODES:-1}" --nproc_per_node 2 --rdzv_backend c10d \
  --rdzv_endpoint "${HEAD:-localhost}:29400" \
  --rdzv_id "${ID:-weft}" "$program" --mesh "${MESH:-dp2}" "$@"
code=$?
if ((code)) && [[ -n ${DIAGNOSE:-} ]]; then  # //tools:diagnose, over the records of all hosts in one folder
  "$DIAGNOSE" "$JOB_FLIGHT"
fi
exit $code
