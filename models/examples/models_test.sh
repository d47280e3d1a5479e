#!/usr/bin/env bash
# Short runs of the examples learn: models_test.sh CNN CHAR_LSTM VAE DDPM SEQ2SEQ DQN
set -u
failures=0
fail() { echo "FAILED: $*"; failures=$((failures + 1)); }
# result PROGRAM STEPS PATTERN CONDITION: the number that PATTERN (sed) finds in the last line fulfils CONDITION (awk).
result() {
  local out number
  out=$("$1" --steps "$2" --seed 1) || fail "$1: exit code $?"
  number=$(tail -n 1 <<<"$out" | sed -nE "s/$3/\1/p")
  [[ -n $number ]] && echo "$number" | awk "{exit !($4)}" || fail "$1: $out"
}
result "$1" 25 '^accuracy on held-out digits: ([0-9.]+) %$' '$1 > 30'
result "$2" 12 '^held-out loss: ([0-9.]+) nats per character$' '$1 < 3.8'
result "$3" 150 '^held-out digits: ([0-9.]+) nats, .*$' '$1 < 250'
result "$4" 200 '^distance of samples to the moons: ([0-9.]+),.*$' '$1 < 0.3'
result "$5" 60 '^held-out strings sorted without a mistake: ([0-9.]+) %$' '$1 > 20'
result "$6" 1500 '^mean steps over 20 episodes: ([0-9.]+) of 500$' '$1 > 40'
exit $((failures > 0))
