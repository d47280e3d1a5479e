#!/bin/bash
# torchrun: one replica, which it starts again when a rank fails. Run it on the host of each replica:
#   REPLICA=a REPLICAS=host0:29600 REPLICAS_TOKEN_FILE=~/token RUN=/shared/run tools/launch/examples/replica_torchrun.sh
# The service of replicas runs on host0: launch --serve host0:29600 --journal /shared/run/journal --replicas 2
# --token_file ~/token. The token is a file with one secret, equal on all hosts, that only you may read.
set -u
program=${PROGRAM:-./train}  # the program //models/gpt:train
: "${REPLICA:?need the name of this replica}" "${REPLICAS:?need host:port of the service}" "${RUN:?need a shared folder}"
export JOB_FLIGHT=$RUN/flight/$REPLICA

# --standalone: the processes of the replica are on this host.
torchrun --standalone --no-python --nproc_per_node 2 --max_restarts 3 "$program" --mesh "${MESH:-replica2,fsdp2}" \
  --checkpoint_dir "$RUN" --resume "$@"
code=$?
if ((code)) && [[ -n ${DIAGNOSE:-} ]]; then  # //tools:diagnose, over the records of all replicas
  "$DIAGNOSE" "$RUN"/flight/*
fi
exit $code
