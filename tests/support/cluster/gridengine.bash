# Grid Engine: one master, one execution host (login1 itself), one queue, two parallel environments.
# Everything here runs inside the namespace, over private copies of the package's cell and spool.

start_sge() {
  local missing
  missing=$("$here/packages" missing sge)
  [ -z "$missing" ] || fail "missing packages: ${missing//$'\n'/ }; run: $("$here/packages" command sge)"
  export SGE_ROOT=/var/lib/gridengine SGE_CELL=default SGE_QMASTER_PORT=6444 SGE_EXECD_PORT=6445
  export SGE_EXECD_PIDFILE=$D/run/sge/execd.pid
  lay_over_gridengine
  # The master keeps its pid in its spool, whatever it is told; it must not be started twice.
  alive "$D/sge/spool/qmaster/qmaster.pid" sge_qmaster || sge_qmaster
  wait_until 30 qconf -sh
  make_queue
  alive "$SGE_EXECD_PIDFILE" sge_execd || sge_execd
  # Until the first load report the queue's state column says "au".
  wait_until 60 sge_ready
}

sge_ready() { qstat -f -q all.q | grep -qE 'lx-amd64 *$'; }

lay_over_gridengine() {
  if [ ! -d "$D/sge/cell" ]; then
    install -d -m 755 "$D/sge"
    cp -a /var/lib/gridengine/default "$D/sge/cell.new"
    cp -a /var/spool/gridengine "$D/sge/spool"
    mv "$D/sge/cell.new" "$D/sge/cell"
  fi
  install -d -o sgeadmin -g sgeadmin "$D/sge/spool/execd" "$D/run/sge"
  in_place "$D/sge/cell:/var/lib/gridengine/default" || mount --bind "$D/sge/cell" /var/lib/gridengine/default
  in_place "$D/sge/spool:/var/spool/gridengine" || mount --bind "$D/sge/spool" /var/spool/gridengine
  # The package leaves the master's host empty when it is installed without questions.
  echo login1 >"$D/sge/cell/common/act_qmaster"
  echo 'login1 localhost' >"$D/sge/cell/common/host_aliases"
  chown sgeadmin:sgeadmin "$D"/sge/cell/common/{act_qmaster,host_aliases}
}

# qconf exits 1 for what is there already, so the queue, which comes last, tells whether all is done.
make_queue() {
  qconf -sql 2>/dev/null | grep -qx all.q && return 0
  local entry scratch
  scratch=$(mktemp -d)
  {
    qconf -am root
    qconf -as login1
    qconf -ah login1
    host_lines >"$scratch/host"
    qconf -Ae "$scratch/host"
    printf '%s\n' 'group_name @allhosts' 'hostlist login1' >"$scratch/group"
    qconf -Ahgrp "$scratch/group"
    for entry in 'smp:$pe_slots' 'mpi:$round_robin'; do
      environment_lines "${entry%%:*}" "${entry#*:}" >"$scratch/pe"
      qconf -Ap "$scratch/pe"
    done
    # Fifteen seconds between two looks at the queue are usual; tests want two.
    qconf -ssconf | sed -e 's/^schedule_interval .*/schedule_interval 0:0:2/' \
      -e 's/^flush_submit_sec .*/flush_submit_sec 1/' -e 's/^flush_finish_sec .*/flush_finish_sec 1/' >"$scratch/scheduler"
    qconf -Msconf "$scratch/scheduler"
    # Without load thresholds a busy test machine doesn't close the queue.
    qconf -sq | sed -e 's/^qname .*/qname all.q/' -e 's/^hostlist .*/hostlist @allhosts/' -e 's/^slots .*/slots 4/' \
      -e 's/^pe_list .*/pe_list smp mpi/' -e 's#^shell .*#shell /bin/bash#' \
      -e 's/^load_thresholds .*/load_thresholds NONE/' >"$scratch/queue"
    qconf -Aq "$scratch/queue"
  } >"$D/log/qconf.log" 2>&1 || true
  rm -rf "$scratch"
  qconf -sql | grep -qx all.q || fail "no queue: $(cat "$D/log/qconf.log")"
}

host_lines() {
  printf '%s\n' 'hostname login1' 'load_scaling NONE' 'complex_values slots=8' 'user_lists NONE' 'xuser_lists NONE' \
    'projects NONE' 'xprojects NONE' 'usage_scaling NONE' 'report_variables NONE'
}

# qsort_args must be there in this version, or the environment is refused and then the queue too.
environment_lines() {
  printf '%s\n' "pe_name $1" 'slots 999' 'user_lists NONE' 'xuser_lists NONE' 'start_proc_args NONE' 'stop_proc_args NONE' \
    "allocation_rule $2" 'control_slaves FALSE' 'job_is_first_task TRUE' 'urgency_slots min' 'accounting_summary FALSE' \
    'qsort_args NONE'
}

end_sge() {
  end "$D/run/sge/execd.pid" sge_execd
  end "$D/sge/spool/qmaster/qmaster.pid" sge_qmaster
}
