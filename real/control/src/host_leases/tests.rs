//! Tests of host leases in a folder.

use super::*;
use crate::MetadataService;
use crate::folder::tests::Scratch;
use braid_host_leases::Fence;
use std::collections::BTreeSet;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

const LEASE: Duration = Duration::from_secs(4);

fn at(seconds: u64) -> Moment {
    LeaseTime { boot: "this".into(), elapsed: Duration::from_secs(seconds) }.into()
}

fn told() -> LeaseReport {
    LeaseReport { revision: 3, machine: MACHINE.clone(), ..LeaseReport::default() }
}

#[test]
fn generations_never_repeat_under_concurrent_takers() {
    let (_scratch, folder) = Scratch::with_array("takers");
    let mut taken = Vec::new();
    let take = || folder.leases().take_generation("test", &at(1)).unwrap();
    std::thread::scope(|scope| {
        let takers = [(); 4].map(|()| scope.spawn(|| [(); 10].map(|()| take())));
        for taker in takers {
            taken.extend(taker.join().unwrap());
        }
    });
    assert_eq!(taken.iter().collect::<BTreeSet<_>>().len(), 40);
    for generation in &taken {
        folder.leases().release(*generation).unwrap();
    }
    let next = folder.leases().take_generation("test", &at(1)).unwrap();
    assert!(taken.iter().all(|earlier| *earlier < next), "released generations are not reused");
}

#[test]
fn a_lost_counter_is_not_begun_again() {
    let (_scratch, folder) = Scratch::with_array("counter");
    folder.leases().take_generation("test", &at(1)).unwrap();
    std::fs::remove_file(folder.path(GENERATIONS)).unwrap();
    let error = folder.leases().take_generation("test", &at(1)).unwrap_err();
    assert!(matches!(error, ControlError::GenerationsMissing { .. }), "{error}");
}

#[test]
fn a_lease_lives_while_it_is_renewed_and_no_longer() {
    let (_scratch, folder) = Scratch::with_array("lease");
    let generation = folder.leases().take_generation("test", &at(10)).unwrap();
    let live = |now: &Moment| folder.leases().hosts(now, LEASE).unwrap()[0].live;
    assert!(live(&at(14)));
    assert!(!live(&at(15)));
    let counters = BTreeMap::from([("operations".to_string(), 3)]);
    let report = LeaseReport { counters, revision: 7, ..LeaseReport::default() };
    folder.leases().renew(generation, &at(13), report.clone()).unwrap();
    folder.leases().renew(generation, &at(14), report.clone()).unwrap();
    assert!(live(&at(18)));
    let shown = LeaseReport { machine: MACHINE.clone(), ..report };
    assert_eq!(folder.leases().hosts(&at(18), LEASE).unwrap()[0].report, shown);
    assert!(!live(&at(19)));
    assert!(!live(&LeaseTime { boot: "next".into(), elapsed: Duration::from_secs(15) }.into()), "another boot");
    folder.leases().release(generation).unwrap();
    assert_eq!(folder.leases().hosts(&at(15), LEASE).unwrap(), []);
}

#[test]
fn a_host_whose_lease_ran_out_is_fenced_and_can_not_come_back() {
    let (_scratch, folder) = Scratch::with_array("fence");
    let dead = folder.leases().take_generation("dead", &at(10)).unwrap();
    let alive = folder.leases().take_generation("alive", &at(10)).unwrap();
    let ended = folder.leases().take_generation("ended", &at(10)).unwrap();
    folder.leases().release(ended).unwrap();
    let expired = folder.leases().expire(alive, &at(11), LEASE).unwrap();
    assert_eq!((expired.gone, expired.fence.except), (vec![], vec![dead, alive]));
    folder.leases().renew(alive, &at(14), told()).unwrap();
    let Expired { gone, fence, .. } = folder.leases().expire(alive, &at(15), LEASE).unwrap();
    assert_eq!((gone, &fence), (vec![dead], &Fence { below: Generation(4), except: vec![alive] }));
    let again = folder.leases().expire(alive, &at(15), LEASE).unwrap();
    assert_eq!((again.gone, &again.fence), (vec![dead], &fence), "returned until it is forgotten");
    let events = folder.events().unwrap().0;
    assert_eq!(events.iter().map(|event| event.kind).collect::<Vec<_>>(), [crate::EventKind::HostFenced]);
    assert!(events[0].text.starts_with("the lease of host h1 (dead) is ended"), "{}", events[0].text);
    assert!(
        matches!(folder.leases().renew(dead, &at(15), told()), Err(ControlError::LeaseLost { generation }) if generation == dead)
    );
    folder.leases().forget(&[dead]).unwrap();
    assert_eq!(folder.leases().expire(alive, &at(15), LEASE).unwrap().gone, []);
    assert!(folder.leases().renew(dead, &at(15), told()).is_err(), "it can't be renewed after that either");
    assert!(folder.leases().take_generation("new", &at(15)).unwrap() >= fence.below, "a new host is never fenced");
}

#[test]
fn a_host_is_asked_to_end_and_no_later_one() {
    let (_scratch, folder) = Scratch::with_array("asked");
    let take = |what| folder.leases().take_generation(what, &at(1)).unwrap();
    let (asked, other) = (take("asked"), take("other"));
    folder.leases().ask_to_end(asked).unwrap();
    assert_eq!([asked, other].map(|host| folder.leases().is_asked_to_end(host)), [true, false]);
    folder.leases().release(asked).unwrap();
    assert!(!folder.leases().is_asked_to_end(asked), "the request is removed with the lease");
    // A request that comes late is removed with the next expiry.
    folder.leases().ask_to_end(asked).unwrap();
    folder.leases().expire(other, &at(2), LEASE).unwrap();
    assert!(!folder.leases().is_asked_to_end(asked));
    let host = folder.leases().hosts(&at(2), LEASE).unwrap().remove(0);
    assert_eq!((host.process, host.report.origin), (Process::own(), None));
}

#[test]
fn one_host_is_fenced_and_no_other() {
    let (_scratch, folder) = Scratch::with_array("one");
    let take = |what| folder.leases().take_generation(what, &at(10)).unwrap();
    let (silent, changer, later) = (take("silent"), take("changer"), take("later"));
    assert_eq!(folder.leases().expire_one(changer, &at(14), LEASE).unwrap(), LeaseEnd::Lives);
    let fence = Fence { below: later, except: vec![silent] };
    let expired = LeaseEnd::Ended(fence);
    assert_eq!(folder.leases().expire_one(changer, &at(15), LEASE).unwrap(), expired);
    assert!(matches!(folder.leases().renew(changer, &at(15), told()), Err(ControlError::LeaseLost { .. })));
    folder.leases().renew(silent, &at(15), told()).unwrap();
    // It is returned until it is forgotten.
    assert_eq!(folder.leases().expire_one(changer, &at(15), LEASE).unwrap(), expired);
    folder.leases().forget(&[changer]).unwrap();
    assert_eq!(folder.leases().expire_one(changer, &at(15), LEASE).unwrap(), expired, "also if it is forgotten");
}

#[test]
fn an_empty_lease_of_a_power_loss_has_run_out() {
    let (_scratch, folder) = Scratch::with_array("empty");
    let generation = folder.leases().take_generation("test", &at(10)).unwrap();
    let judge = folder.leases().take_generation("judge", &at(10)).unwrap();
    std::fs::write(folder.leases().lease_path(generation), "").unwrap();
    assert!(!folder.leases().hosts(&at(10), LEASE).unwrap()[0].live);
    let expired = folder.leases().expire(judge, &at(10), LEASE).unwrap();
    assert_eq!((expired.gone, expired.fence.except), (vec![generation], vec![judge]));
    assert!(matches!(folder.leases().renew(generation, &at(10), told()), Err(ControlError::LeaseLost { .. })));
    folder.leases().forget(&[generation]).unwrap();
    assert_eq!(folder.leases().hosts(&at(10), LEASE).unwrap().len(), 1);
}

#[test]
fn leases_are_renewed_while_another_process_holds_the_folder_s_lock() {
    let (_scratch, folder) = Scratch::with_array("suspended");
    let generation = folder.leases().take_generation("test", &at(10)).unwrap();
    // A process may be suspended while it holds the lock.
    let _lock = folder.lock().unwrap();
    folder.leases().renew(generation, &at(14), told()).unwrap();
    let host = &folder.leases().hosts(&at(18), LEASE).unwrap()[0];
    assert_eq!((host.live, &host.report), (true, &told()));
}

#[test]
fn a_renewal_that_was_suspended_brings_no_lease_back() {
    let (_scratch, folder) = Scratch::with_array("late");
    let take = |what| folder.leases().take_generation(what, &at(10)).unwrap();
    let (late, judge, ended) = (take("late"), take("judge"), take("ended"));
    folder.leases().renew(judge, &at(15), told()).unwrap();
    folder.leases().renew(ended, &at(15), told()).unwrap();
    folder.leases().release(ended).unwrap();
    // Both had checked their leases before they were suspended.
    let live = || {
        folder.leases().hosts(&at(15), LEASE).unwrap().into_iter().filter(|host| host.live).map(|host| host.generation)
    };
    assert_eq!(folder.leases().expire(judge, &at(15), LEASE).unwrap().gone, [late]);
    folder.leases().write_heartbeat(late, &heartbeat(Some(at(15).into()), told())).unwrap();
    folder.leases().write_heartbeat(ended, &heartbeat(Some(at(15).into()), told())).unwrap();
    assert_eq!(live().collect::<Vec<_>>(), [judge]);
    assert_eq!(folder.leases().expire(judge, &at(15), LEASE).unwrap().gone, [late]);
    assert!(folder.leases().renew(late, &at(15), told()).is_err());
    folder.leases().forget(&[late]).unwrap();
    folder.leases().write_heartbeat(late, &heartbeat(Some(at(15).into()), told())).unwrap();
    assert_eq!(live().collect::<Vec<_>>(), [judge]);
    std::fs::write(folder.path(HOSTS).join(format!(".{}.heartbeat.new", ended.0)), "{").unwrap();
    renewals::create(&folder.leases().renewals_path(ended)).unwrap();
    assert_eq!(folder.leases().expire(judge, &at(15), LEASE).unwrap().gone, []);
    let left = std::fs::read_dir(folder.path(HOSTS)).unwrap().count();
    assert_eq!(left, 2, "late renewals are removed: the judge's lease and its renewals stay");
}

#[test]
fn a_host_that_expires_others_keeps_its_lease_unless_it_was_expired_itself() {
    let (_scratch, folder) = Scratch::with_array("judge");
    let take = |what| folder.leases().take_generation(what, &at(10)).unwrap();
    let (judge, other) = (take("judge"), take("other"));
    assert_eq!(folder.leases().expire(judge, &at(20), LEASE).unwrap().gone, [other]);
    assert!(matches!(folder.leases().expire_one(judge, &at(20), LEASE).unwrap(), LeaseEnd::Ended(_)));
    let refused = folder.leases().expire(judge, &at(20), LEASE);
    assert!(matches!(refused, Err(ControlError::LeaseLost { generation }) if generation == judge));
}

#[test]
fn a_lease_is_renewed_in_place() {
    let (_scratch, folder) = Scratch::with_array("no-inode");
    let host = folder.leases().take_generation("test", &at(10)).unwrap();
    let live = |seconds| folder.leases().hosts(&at(seconds), LEASE).unwrap()[0].live;
    for seconds in [14, 15, 19] {
        folder.leases().renew(host, &at(seconds), told()).unwrap();
    }
    assert!(live(23) && !live(24));
    // Where nothing can be written, the host learns that its lease is not over, or is.
    let renewals = folder.leases().renewals_path(host);
    std::fs::remove_file(&renewals).unwrap();
    std::fs::create_dir(&renewals).unwrap();
    assert!(matches!(folder.leases().renew(host, &at(20), told()), Err(ControlError::Unrenewed { .. })));
    let lease = std::fs::read_to_string(folder.leases().lease_path(host)).unwrap();
    std::fs::write(folder.leases().lease_path(host), lease.replace("\"expired\": false", "\"expired\": true")).unwrap();
    assert!(matches!(folder.leases().renew(host, &at(20), told()), Err(ControlError::LeaseLost { .. })));
}

#[test]
fn a_report_that_is_too_long_keeps_what_others_need() {
    let (_scratch, folder) = Scratch::with_array("long-report");
    let host = folder.leases().take_generation("test", &at(10)).unwrap();
    let unreadable = crate::MountReport::of(1, Path::new(std::ffi::OsStr::from_bytes(b"/m\xff")));
    assert_eq!((unreadable.directory.as_str(), unreadable.directory_bytes.as_deref()), ("/m\u{fffd}", Some("2f6dff")));
    let mut report = told();
    report.counters = (0..1000).map(|number| (format!("counter_{number}"), number)).collect();
    report.counters.insert(LOCK_REQUESTS.to_string(), 7);
    // The longest path that can be mounted on.
    report.mount = Some(crate::MountReport::of(1, Path::new(&"d".repeat(4096))));
    folder.leases().renew(host, &at(11), report).unwrap();
    let seen = folder.leases().hosts(&at(11), LEASE).unwrap().remove(0);
    assert_eq!((seen.process, seen.report.mount.is_some()), (Process::own(), true));
    assert_eq!((seen.report.revision, seen.report.counters), (3, BTreeMap::from([(LOCK_REQUESTS.to_string(), 7)])));
    // A path of control characters is cut, and what nobody should have written is left out.
    for (directory, is_kept) in [("\u{1}".repeat(1_400), true), ("d".to_string(), false)] {
        let mount = Some(crate::MountReport::of(1, Path::new(&directory)));
        let lock_server = Some(crate::LockService { id: 0, address: "\u{1}".repeat(if is_kept { 10 } else { 2_000 }) });
        folder.leases().renew(host, &at(12), LeaseReport { mount, lock_server, ..told() }).unwrap();
        let seen = folder.leases().hosts(&at(12), LEASE).unwrap().remove(0);
        assert_eq!((seen.report.revision, seen.report.mount.is_some()), (3, is_kept));
    }
}

#[test]
fn a_list_of_hosts_that_is_too_long_is_published_as_cut() {
    let (_scratch, folder) = Scratch::with_array("long-list");
    let host = folder.leases().take_generation("test", &at(10)).unwrap();
    for (count, is_cut) in [(10, false), (2_000, true)] {
        let hosts: Vec<u32> = (1_000_000..1_000_000 + count).collect();
        let (address, locks) = ("unix:mds".to_string(), Vec::new());
        let server =
            MetadataService { file_system: 1, address, serves: true, settled: false, hosts, hosts_cut: false, locks };
        folder.leases().renew(host, &at(11), LeaseReport { metadata_server: Some(server), ..told() }).unwrap();
        let seen = folder.leases().hosts(&at(11), LEASE).unwrap().remove(0).report.metadata_server.unwrap();
        assert_eq!((seen.hosts_cut, seen.hosts.is_empty()), (is_cut, is_cut));
    }
}

#[test]
fn a_lease_that_an_earlier_release_renews_counts() {
    let (_scratch, folder) = Scratch::with_array("earlier");
    let generation = folder.leases().take_generation("test", &at(10)).unwrap();
    let lease = r#"{"schema": 1, "pid": 7, "what": "up", "boot": "this", "renewed_nanos": 20000000000,
        "report": {"counters": {}, "revision": 3}, "expired": false}"#;
    std::fs::write(folder.leases().lease_path(generation), lease).unwrap();
    let host = &folder.leases().hosts(&at(24), LEASE).unwrap()[0];
    let told = LeaseReport { machine: None, ..told() };
    assert_eq!((host.live, host.role.as_str(), &host.report), (true, "up", &told));
}
