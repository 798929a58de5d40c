# Slurm with its accounting database: munged, mariadbd, slurmdbd, slurmctld and four slurmd.
# Everything here runs inside the namespace.

start_slurm() {
  local node
  if slurm_ready; then return 0; fi
  make_gpu_devices
  install -d -o slurm -g slurm "$D"/slurm/state/slurmctld "$D"/slurm/log
  for node in 1 2 3 4; do install -d "$D/slurm/state/slurmd/node$node"; done
  start_munge
  start_database
  alive "$D/run/slurmdbd.pid" slurmdbd || slurmdbd
  wait_until 60 sacctmgr -n show cluster
  make_accounts
  alive "$D/run/slurmctld.pid" slurmctld || slurmctld
  wait_until 30 scontrol ping
  for node in 1 2 3 4; do
    alive "$D/run/slurmd-node$node.pid" slurmd || slurmd -N "node$node"
  done
  wait_until 60 slurm_ready
}

slurm_ready() {
  alive "$D/run/slurmctld.pid" slurmctld || return 1
  [ "$(sinfo -h -N -p batch -o '%N %t' 2>/dev/null | grep -cE ' (idle|mix|alloc)$')" = 4 ]
}

make_gpu_devices() {
  local i
  for i in 0 1; do
    [ -c /dev/fakegpu$i ] || mknod -m 666 /dev/fakegpu$i c 1 3
  done
}

start_munge() {
  alive "$D/run/munge/munged.pid" munged && return 0
  install -d -m 700 -o munge -g munge "$D/munge"
  install -d -m 755 -o munge -g munge "$D/run/munge"
  if [ ! -s "$D/munge/key" ]; then
    install -m 600 -o munge -g munge /dev/null "$D/munge/key"
    head -c 128 /dev/urandom >"$D/munge/key"
  fi
  runuser -u munge -- munged --num-threads=2 --key-file="$D/munge/key" --seed-file="$D/munge/seed" \
    --log-file="$D/munge/log" --pid-file="$D/run/munge/munged.pid"
  wait_until 10 munge -n
}

start_database() {
  chown mysql:mysql "$D/run/mysqld"
  if ! alive "$D/run/mysqld/mysqld.pid" 'mariadbd'; then
    if [ ! -d "$D/mysql/mysql" ]; then
      install -d -m 700 -o mysql -g mysql "$D/mysql"
      mariadb-install-db --no-defaults --user=mysql --datadir="$D/mysql" --skip-test-db >"$D/log/mariadb-install.log" 2>&1
    fi
    setsid runuser -u mysql -- mariadbd --defaults-file="$here/conf/mariadb.cnf" --datadir="$D/mysql" \
      --socket=/run/mysqld/mysqld.sock --pid-file="$D/run/mysqld/mysqld.pid" \
      </dev/null >"$D/log/mariadbd.log" 2>&1 &
    wait_until 60 mariadb-admin --no-defaults --socket=/run/mysqld/mysqld.sock ping
  fi
  mariadb --no-defaults --socket=/run/mysqld/mysqld.sock -e "
    CREATE DATABASE IF NOT EXISTS slurm_acct_db;
    CREATE USER IF NOT EXISTS slurm@localhost IDENTIFIED BY 'only-on-loopback';
    GRANT ALL ON slurm_acct_db.* TO slurm@localhost;"
}

# The cluster must be known to the database before its controller starts for the first time.
make_accounts() {
  sacctmgr -nP show cluster towline | grep -q towline && return 0
  {
    sacctmgr -i add cluster towline
    sacctmgr -i add qos high Priority=100
    sacctmgr -i add qos one MaxJobsPerUser=1 MaxSubmitJobsPerUser=3
    sacctmgr -i add qos tiny MaxTRESPerJob=cpu=1 MaxWallDurationPerJob=00:02:00
    sacctmgr -i add account proj1,proj2 Description=lab Organization=lab QOS=normal,high,one,tiny
    sacctmgr -i add user alice,bob Account=proj1 DefaultAccount=proj1
    sacctmgr -i add user alice Account=proj2 MaxJobs=1
  } >"$D/log/sacctmgr.log" 2>&1
}

end_slurm() {
  local node
  for node in 1 2 3 4; do end "$D/run/slurmd-node$node.pid" slurmd; done
  end "$D/run/slurmctld.pid" slurmctld
  end "$D/run/slurmdbd.pid" slurmdbd
  end "$D/run/munge/munged.pid" munged
  end "$D/run/mysqld/mysqld.pid" mariadbd
}
