//! A machine that joins an array while it runs, by a token.

use braid_machines::{LONG, LOSS_PAUSE_MAX, Machine, Machines, PAUSE_MAX};
use braid_processes::daemon::signal;
use braid_processes::poll_until;
use rustix::process::Signal;
use std::thread::sleep;
use std::time::Duration;

/// Without a pact, leases would have ended.
const OUTAGE: Duration = Duration::from_secs(10);

#[test]
fn a_machine_joins_later_leads_and_is_given_up_when_it_is_lost() {
    let Some(mut machines) = Machines::start() else { return };
    let load = machines.all[0].load();
    let token = machines.all[1].braid(&["cluster", "token"]).done().json();
    let token = token["token"].as_str().expect("a token");
    let join = |machine: &Machine, by: &str| {
        machine.braid(&["cluster", "join", by, "--machine", &format!("{}={}", machine.name, machine.address)])
    };
    let [fourth, fifth] = [4, 5].map(|id| machines.further(id));
    join(&fourth, "10.77.0.1:7400").refused(3, "no-such-machine");
    let (secret, at) = token.split_once('@').expect("a token");
    join(&fourth, &format!("{secret}x@{at}")).refused(2, "bad-token");
    join(&fourth, &format!("{}.07@{at}", &secret[..36])).refused(1, "bad-token");
    join(&fourth, token).done();
    let said = join(&fifth, token).refused(1, "bad-token");
    assert!(said.contains("machine m4 has used it"), "{said}");
    machines.all.push(fourth);
    machines.all[3].start_agent();
    machines.all[3].braid(&["device", "add"]).done();
    machines.all[3].braid(&["volume", "migrate", "vol0", "--devices", "6,1,2"]).done();
    poll_until(LONG, || match machines.leader(0) {
        (3, _) => Ok(()),
        (leader, pid) => {
            signal(pid, Signal::KILL);
            poll_until(LONG, || if machines.leader(0).1 == pid { Err("it leads".to_string()) } else { Ok(()) });
            Err(format!("m{} led", leader + 1))
        }
    });
    machines.all[0].braid(&["cluster", "remove", "m4"]).refused(1, "monitor-running");
    load.assert_pause("monitors are killed", PAUSE_MAX);
    machines.all[3].die();
    machines.all[0].await_volume("degraded");
    load.assert_pause("the fourth machine dies", LOSS_PAUSE_MAX);
    machines.all[0].braid(&["cluster", "remove", "m4"]).done();
    machines.all[..3].iter_mut().for_each(Machine::kill_etcd);
    sleep(OUTAGE);
    load.assert_pause("etcd is unavailable", PAUSE_MAX);
    machines.all[..3].iter_mut().for_each(Machine::start_etcd);
    // Its devices and hosts may come back.
    machines.all[3].link("up");
    machines.all[3].start_agent();
    machines.all[0].await_volume("healthy");
    machines.assert_kept(load.stop());
}
