# Accounts, keys, the second-factor module and the namespace that everything else runs in.

# One user a login shell. Debian's csh is bsd-csh; "csh" itself may be a link to tcsh.
shell_users=(
  tl-sh:/bin/sh tl-dash:/bin/dash tl-bash:/bin/bash tl-rbash:/bin/rbash tl-zsh:/bin/zsh tl-csh:/bin/bsd-csh
  tl-tcsh:/bin/tcsh tl-fish:/usr/bin/fish tl-ksh:/bin/ksh93 tl-mksh:/bin/mksh
)
# carol has no account with the scheduler. tl-places and tl-profile have what tests do to caches and start-up files.
plain_users=(
  alice:/bin/bash bob:/bin/bash carol:/bin/bash
  tl-places:/bin/bash tl-profile:/bin/bash tl-nologin:/usr/sbin/nologin
)

# Keys of the client. All but "stranger" are authorised for all users.
user_keys=(ed25519 rsa ecdsa encrypted)
key_passphrase=towline-passphrase

prepare_directories() {
  install -d -m 755 "$D" "$D"/run "$D"/log "$D"/etc "$D"/sbin "$D"/sshd "$D"/home
  install -d -m 700 "$D"/keys
  # Mount points of the namespace; empty outside of it.
  install -d -m 755 /run/towline-tests /run/sshd /run/mysqld /run/munge
}

base() {
  forget_another_boot
  if alive "$D/run/namespace.pid" sleep && cmp -s "$D/made-by" <(made_by); then return 0; fi
  local missing
  missing=$("$here/packages" missing)
  [ -z "$missing" ] || fail "missing packages: ${missing//$'\n'/ }; run: $("$here/packages" command)"
  make_users
  make_keys
  authorise_keys
  build_module
  copy_configuration
  if ! alive "$D/run/namespace.pid" sleep; then
    setsid unshare --uts --mount --propagation private -- "$self" __namespace </dev/null >"$D/log/namespace.log" 2>&1 &
    wait_until 10 alive "$D/run/namespace.pid" sleep
  fi
  inside "$self" __lay_over
  made_by >"$D/made-by"
}

# A change in these files is taken over by the next start.
made_by() { cat "$here"/base.bash "$here"/pam_towline_factor.c "$here"/conf/* | cksum; }

# Pid files of before a restart name strangers.
forget_another_boot() {
  local now
  now=$(cat /proc/sys/kernel/random/boot_id)
  [ "$(cat "$D/boot" 2>/dev/null)" = "$now" ] && return 0
  rm -f "$D"/run/*.pid
  echo "$now" >"$D/boot"
}

# Accounts are the machine's, since every program looks there; their homes are ours, so that two state
# directories, or a person of the same name, never meet.
make_users() {
  local entry name
  for entry in "${plain_users[@]}" "${shell_users[@]}"; do
    name=${entry%%:*}
    id "$name" >/dev/null 2>&1 ||
      useradd --no-create-home --home-dir "/home/$name" --shell "${entry#*:}" "$name"
    [ ! -d "$D/home/$name" ] || continue
    # Moved into place last, so that a home which is there is complete.
    cp -a /etc/skel "$D/home/.$name"
    chown -R "$name:$(id -gn "$name")" "$D/home/.$name"
    chmod 755 "$D/home/.$name"
    mv "$D/home/.$name" "$D/home/$name"
  done
}

make_keys() {
  local kind
  for kind in host_ed25519 host_ecdsa host_rsa "${user_keys[@]/#/id_}" id_stranger; do
    [ -s "$D/keys/$kind" ] && continue
    case "$kind" in
      *_rsa) ssh-keygen -q -t rsa -b 3072 -N '' -C "$kind" -f "$D/keys/$kind" ;;
      *_ecdsa) ssh-keygen -q -t ecdsa -N '' -C "$kind" -f "$D/keys/$kind" ;;
      id_encrypted) ssh-keygen -q -t ed25519 -N "$key_passphrase" -C "$kind" -f "$D/keys/$kind" ;;
      *) ssh-keygen -q -t ed25519 -N '' -C "$kind" -f "$D/keys/$kind" ;;
    esac
  done
}

authorise_keys() {
  local entry name kind
  for kind in "${user_keys[@]}"; do cat "$D/keys/id_$kind.pub"; done >"$D/authorized_keys"
  for entry in "${plain_users[@]}" "${shell_users[@]}"; do
    name=${entry%%:*}
    install -d -m 700 -o "$name" -g "$(id -gn "$name")" "$D/home/$name/.ssh"
    install -m 600 -o "$name" -g "$(id -gn "$name")" "$D/authorized_keys" "$D/home/$name/.ssh/authorized_keys"
  done
}

build_module() {
  local made=$D/sbin/pam_towline_factor.so
  [ "$made" -nt "$here/pam_towline_factor.c" ] && return 0
  gcc -Wall -Wextra -Werror -O1 -shared -fPIC -o "$made.new" "$here/pam_towline_factor.c" -lpam
  mv -f "$made.new" "$made"
}

# Copies that are laid over the originals inside the namespace. Written in place where they exist,
# so that a namespace which has them mounted sees the change.
copy_configuration() {
  install -d -m 755 "$D"/etc/slurm "$D"/etc/pam.d "$D"/slurm/state "$D"/slurm/log "$D"/run/mysqld "$D"/run/munge
  cat "$here/conf/hosts" >"$D/etc/hosts"
  cp -a /etc/pam.d/. "$D/etc/pam.d/"
  # Accounts with known passwords exist inside only: nobody can use them through another door.
  [ -e "$D/etc/shadow" ] || install -m 640 -g shadow /dev/null "$D/etc/shadow"
  local hash
  hash=$(openssl passwd -6 -salt towline towline-password)
  awk -F: -v OFS=: -v hash="$hash" '$1 == "alice" || $1 == "bob" { $2 = hash } { print }' /etc/shadow >"$D/etc/shadow"
  cat "$here/conf/slurm.conf" >"$D/etc/slurm/slurm.conf"
  cat "$here/conf/gres.conf" >"$D/etc/slurm/gres.conf"
  cat "$here/conf/cgroup.conf" >"$D/etc/slurm/cgroup.conf"
  [ -e "$D/etc/slurm/slurmdbd.conf" ] || install -m 600 -o slurm -g slurm /dev/null "$D/etc/slurm/slurmdbd.conf"
  cat "$here/conf/slurmdbd.conf" >"$D/etc/slurm/slurmdbd.conf"
}

# The process that keeps the namespace alive and findable.
hold_namespace() {
  hostname login1
  echo $$ >"$D/run/namespace.pid"
  exec sleep infinity
}

# Lays the copies over the originals; run again, it adds what a newer version of this list has.
lay_over() {
  local entry
  for entry in "$D/etc/hosts:/etc/hosts" "$D/etc/pam.d:/etc/pam.d" "$D/etc/shadow:/etc/shadow" \
    "$D/home:/home" "$D/run:/run/towline-tests" "$D/run/mysqld:/run/mysqld" "$D/run/munge:/run/munge" \
    "$D/etc/slurm:/etc/slurm" "$D/slurm/state:/var/lib/slurm" "$D/slurm/log:/var/log/slurm"; do
    in_place "$entry" || mount --bind "${entry%%:*}" "${entry#*:}"
  done
}

# Being a mount point is not enough: outside, /home may be one already.
in_place() { [ "${1%%:*}" -ef "${1#*:}" ]; }
