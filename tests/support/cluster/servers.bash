# sshd in several shapes, and dropbear.

# start_sshd NAME PORT AUTH USERS: an sshd of its own with its own log, prompt count and PAM service.
#   AUTH   key       a key
#          menu      a key, then a menu ("1" or the passcode 123456)
#          code      a key, then a bare prompt for the passcode
#          password  the account's password, then the menu
# USERS is a list for AllowUsers. Lines on stdin win over those below, since sshd takes the first
# value it meets; a Match block among them ends up last. TOWLINE_FACTOR adds options of the module.
# At log level DEBUG1 the log has a line a connection, a channel and a session, for tests to count.
start_sshd() {
  local name=$1 port=$2 auth=$3 users=$4 dir=$D/sshd/$1 extra=
  local pid=$D/run/sshd-$1.pid
  case "$name" in '' | *[!a-z0-9-]*) fail "a server's name is of a-z, 0-9 and -: $name" ;; esac
  alive "$pid" 'sshd*' && return 0
  install -d -m 700 "$dir"
  : >"$dir/log"
  : >"$dir/prompts"
  [ -t 0 ] || extra=$(cat)
  sshd_pam "$name" "$auth" >"$D/etc/pam.d/sshd-$name"
  sshd_config "$name" "$port" "$auth" "$users" "$extra" >"$dir/sshd_config"
  # Before OpenSSH 9.8 the PAM service is the name that sshd was started under.
  ln -sfn /usr/sbin/sshd "$D/sbin/sshd-$name"
  # The listener forks away, so a mistake in the file is told here and the port's fate in the log.
  inside "$D/sbin/sshd-$name" -f "$dir/sshd_config" -E "$dir/log" </dev/null ||
    fail "sshd $name refuses its configuration: $(tail -n 3 "$dir/log")"
  wait_until 10 sshd_settled "$name"
  alive "$pid" 'sshd*' || fail "sshd $name: $(grep -m 1 -E 'Bind to port|error|fatal' "$dir/log")"
}

# Either it listens and has said so in its pid file, or it has said why not.
sshd_settled() {
  grep -qE 'Cannot bind any address|fatal:' "$D/sshd/$1/log" || alive "$D/run/sshd-$1.pid" 'sshd*'
}

sshd_pam() {
  local factor="$D/sbin/pam_towline_factor.so count=$D/sshd/$1/prompts"
  case "$2" in
    key) echo "auth required pam_deny.so" ;;
    menu) echo "auth required $factor code=123456 ${TOWLINE_FACTOR:-}" ;;
    code) echo "auth required $factor code=123456 plain ${TOWLINE_FACTOR:-}" ;;
    password)
      # The same stack serves both steps: the module has nothing to say before the password is right.
      echo "auth [success=done ignore=ignore default=die] $factor code=123456 after=password ${TOWLINE_FACTOR:-}"
      echo "auth required pam_unix.so"
      ;;
    *) fail "no such way to log in: $2 (key, menu, code, password)" ;;
  esac
  echo "account required pam_unix.so"
  echo "session optional pam_limits.so"
  echo "session required $factor"
}

sshd_config() {
  local name=$1 port=$2 auth=$3 users=$4 extra=$5
  # What comes before a Match block is global, so it goes first; a block ends the file.
  awk '/^[[:space:]]*[Mm]atch[[:space:]]/ { exit } { print }' <<<"$extra"
  printf '%s\n' "Port $port" "ListenAddress 127.0.0.1" "PidFile $D/run/sshd-$name.pid" \
    "HostKey $D/keys/host_ed25519" "HostKey $D/keys/host_ecdsa" "HostKey $D/keys/host_rsa" \
    "MaxSessions 1" "MaxStartups 100:30:200" "LoginGraceTime 120" "LogLevel DEBUG1" "UsePAM yes" \
    "PermitRootLogin no" "AllowUsers $users" "PrintMotd no" "PrintLastLog no" "UseDNS no" \
    "AcceptEnv LANG LC_*" "Subsystem sftp internal-sftp"
  case "$auth" in
    key)
      printf '%s\n' "PubkeyAuthentication yes" "PasswordAuthentication no" "KbdInteractiveAuthentication no"
      ;;
    menu | code)
      printf '%s\n' "PubkeyAuthentication yes" "PasswordAuthentication no" "KbdInteractiveAuthentication yes" \
        "AuthenticationMethods publickey,keyboard-interactive:pam"
      ;;
    password)
      printf '%s\n' "PubkeyAuthentication no" "PasswordAuthentication yes" "KbdInteractiveAuthentication yes" \
        "AuthenticationMethods password,keyboard-interactive:pam"
      ;;
  esac
  if openssh_at_least 9 8; then
    # From 9.8 on sshd punishes an address that fails often, and all of ours are the same.
    printf '%s\n' "PAMServiceName sshd-$name" "PerSourcePenalties no"
  fi
  awk '/^[[:space:]]*[Mm]atch[[:space:]]/ { seen = 1 } seen { print }' <<<"$extra"
}

openssh_at_least() {
  local major minor
  IFS=. read -r major minor < <(ssh -V 2>&1 | sed -n 's/^OpenSSH_\([0-9]*\.[0-9]*\).*/\1/p')
  ((major > $1 || (major == $1 && minor >= $2)))
}

# Its connections end with it: a test that has failed must not leave a login behind. They go first,
# while the listener is there to collect them: nothing else does on a machine without an init.
end_sshd() {
  local pid=$D/run/sshd-$1.pid listener children i
  if alive "$pid" 'sshd*'; then
    read -r listener <"$pid"
    for ((i = 0; i < 100; i++)); do
      children=$(ps -o pid= --ppid "$listener") || break
      # shellcheck disable=SC2086 # one word a pid
      kill $children 2>/dev/null || true
      sleep 0.02
    done
  fi
  end "$pid" 'sshd*'
  rm -f "$D/sbin/sshd-$1" "$D/etc/pam.d/sshd-$1"
}

# Private servers are named t-…; those of a test that was killed are found here.
end_private_sshds() {
  local file name
  for file in "$D"/run/sshd-t-*.pid; do
    [ -e "$file" ] || continue
    name=$(basename "$file" .pid)
    end_sshd "${name#sshd-}"
    rm -rf "$D/sshd/${name#sshd-}"
  done
}

fixed_sshds() {
  local everybody="alice bob carol tl-*"
  start_sshd key 2261 key "$everybody" </dev/null
  start_sshd menu 2262 menu "$everybody" </dev/null
  start_sshd code 2263 code "$everybody" </dev/null
  start_sshd password 2264 password "alice bob" </dev/null
}

fixed_dropbear() {
  local pid=$D/run/dropbear.pid
  alive "$pid" dropbear && return 0
  [ -s "$D/keys/host_dropbear" ] || dropbearkey -t ed25519 -f "$D/keys/host_dropbear" >/dev/null 2>&1
  dropbearkey -y -f "$D/keys/host_dropbear" | grep '^ssh-' >"$D/keys/host_dropbear.pub"
  # -s: no passwords; -w: not for root; -E: log to stderr, which the daemon keeps.
  inside setsid dropbear -F -E -s -w -r "$D/keys/host_dropbear" -p 127.0.0.1:2271 -P "$pid" \
    </dev/null >"$D/log/dropbear.log" 2>&1 &
  wait_until 10 alive "$pid" dropbear
}
