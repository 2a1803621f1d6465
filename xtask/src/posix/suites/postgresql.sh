# PostgreSQL on a mount, with kills: postgresql.sh MOUNT SCRATCH SECONDS BRAID ARRAY FILE-SYSTEM. Prints a line for each round: its name, and ok or failed.
#
# While pgbench runs, one of these is killed: nothing, a device, the monitor, the metadata server, PostgreSQL itself, the host of the mount. What
# does not start by itself is started again. Then branches, tellers and accounts must add up to the history, each acknowledged transaction be
# there, and pg_amcheck find nothing.
mount=$1 scratch=$2 seconds=$3 braid=$4 array=$5 file_system=$6
bin=$(ls -d /usr/lib/postgresql/*/bin | tail -n 1)
data=$mount/postgresql/data
mkdir -p "$mount/postgresql" "$scratch"
chown postgres "$mount/postgresql" "$scratch"
as() { runuser -u postgres -- env -C "$scratch" "PATH=$bin:$PATH" "PGHOST=$scratch" PGDATABASE=postgres "$@"; }
begin() { # the processes of a server that was killed may need some time to end
    for _ in $(seq 30); do
        as pg_ctl --pgdata "$data" --log "$scratch/server.log" --wait --timeout 300 --options "-k '$scratch' -c listen_addresses=" start >&2 && break
        sleep 1
    done
    head -n 1 "$data/postmaster.pid" >"$scratch/server.pid"
}
whole() { # prints what is wrong
    acknowledged=$(cat "$scratch"/load.* 2>/dev/null | wc -l)
    as psql --no-align --tuples-only --command "
        select 'history has ' || rows || ' of $acknowledged' from (select count(*) as rows from pgbench_history) as h where rows < $acknowledged;
        with sums (name, sum) as (values ('history', (select coalesce(sum(delta), 0) from pgbench_history)),
            ('accounts', (select sum(abalance) from pgbench_accounts)), ('tellers', (select sum(tbalance) from pgbench_tellers)),
            ('branches', (select sum(bbalance) from pgbench_branches)))
        select string_agg(name || ' ' || sum, ', ') from sums having count(distinct sum) > 1" 2>&1
    as pg_amcheck --all --heapallindexed --parent-check --install-missing 2>&1 | grep -v "^NOTICE: "
}
as initdb --pgdata "$data" --data-checksums --auth trust >&2
begin
as pgbench --initialize --scale 1 --quiet >&2 || { echo "created failed"; exit; }
for fault in nothing device monitor metadata server host; do
    as pgbench --no-vacuum --client 4 --jobs 2 --time "$seconds" --log --log-prefix "$scratch/load.$fault" >"$scratch/$fault.out" 2>&1 &
    sleep $((seconds / 2))
    server=$(cat "$scratch/server.pid")
    case $fault in
    device) kill -9 "$("$braid" status --pid d2 --array "$array")" ;;
    monitor) kill -9 "$("$braid" status --pid monitor --array "$array")" ;;
    metadata) kill -9 "$("$braid" status --pid "mds $file_system" --array "$array")" ;;
    server) kill -9 "$server" ;;
    host)
        host=$("$braid" host list --json --array "$array" |
            python3 -c 'import json, sys; print(*(h["pid"] for h in json.load(sys.stdin)["hosts"] if h["directory"] == sys.argv[1]))' "$mount")
        kill -9 $host "$server"
        sleep 1
        "$braid" fs mount "$file_system" "$mount" --array "$array" >&2 ;;
    esac
    case $fault in server | host) begin ;; esac
    wait $!
    ended=$? found=$(whole)
    case $fault in nothing | device | monitor | metadata) [ $ended = 0 ] || found="pgbench ended with $ended; $found" ;; esac
    count=$(cat "$scratch/load.$fault".* | wc -l)
    if [ -z "$found" ]; then echo "$fault ok $count transactions"; else echo "$fault failed" $found; fi
done
as pg_ctl --pgdata "$data" --wait --mode fast stop >&2
