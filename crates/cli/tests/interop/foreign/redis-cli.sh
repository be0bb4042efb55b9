#!/usr/bin/env bash
# A peer for ../peer.rs: a redis-cli session, with commands as typed by a user.
#
# This process becomes redis-cli, and a child types the commands. So a signal to this process stops or kills the server's client
# itself, and no typed command is still on its way.
set -euo pipefail
port=$2
script='if redis.call("get", KEYS[1]) == ARGV[1] then return redis.call("del", KEYS[1]) else return 0 end'

# The functions must not rely on `set -e`: it is off in a condition.
fail() { echo "redis-cli.sh: $*" >&2; exit 1; }

# LINE VARIABLE...: types the line, and reads a line of its reply into each variable. Nil is an empty line.
ask() {
  printf '%s\n' "$1" >&6 || fail "the session has ended"
  for variable in "${@:2}"; do
    IFS= read -r "${variable?}" <&5 || fail "the session has ended"
  done
}

# NAME TTL
take() {
  local end='' reply
  token=script:$$:$RANDOM$RANDOM name=$1
  if [ "$2" != 0 ]; then end=" PX $2"; fi
  ask "SET $name $token NX$end" reply
  case $reply in OK) ;; '') return 1 ;; *) fail "SET: $reply" ;; esac
}

release() {
  local reply
  ask "EVAL '$script' 1 $name $token" reply
  case $reply in 1) ;; 0) return 1 ;; *) fail "EVAL: $reply" ;; esac
}

# The counter: reads, adds one and writes, in separate commands. NAME TTL TURNS WHO
count() {
  local turn count last changes changed reply
  for ((turn = 1; turn <= $3; turn++)); do
    until take "$1" "$2"; do sleep 0.005; done
    ask 'MGET count last changes' count last changes
    changed=1
    if [ "$last" = "$4" ]; then changed=0; fi
    ask "MSET count $((${count:-0} + 1)) last $4 changes $((${changes:-0} + changed)) by:$4 $turn" reply
    [ "$reply" = OK ] || fail "MSET: $reply"
    release || fail "lost while it counted"
    sleep "0.00$((RANDOM % 3 + 1))"
  done
}

obey() {
  echo "ready $(redis-cli --version | cut -d' ' -f2)"
  while read -r verb words; do
    # shellcheck disable=SC2086
    case $verb in
      release) if release; then echo released; else echo lost; fi ;;
      count) count $words; echo counted ;;
      wait) until take $words; do sleep 0.01; done; echo held ;;
      *) if take $words; then echo held; else echo busy; fi ;;
    esac
  done
}

# 3 and 4 are what the test says and is told, 5 and 6 what redis-cli says and is told.
exec 3<&0 4>&1
coproc types { obey 5<&0 6>&1 <&3 >&4; }
exec redis-cli -p "$port" <&"${types[0]}" >&"${types[1]}" 3<&- 4>&-
