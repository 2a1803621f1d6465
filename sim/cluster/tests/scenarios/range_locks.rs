//! Scenarios of programs that lock ranges, while hosts, lock servers and messages fail.

use crate::story::*;
use braid_base::RangeDivision;
use braid_machine::RangesRequest;
use braid_wire::{LockExtent, LockMode};

const SPACE: ObjectId = ObjectId(1 << 63);
/// One lock server, or three that take pieces in turn.
const SERVERS: [u16; 2] = [1, 3];
const PIECE: u64 = 1 << 10;
/// The piece that the first of the servers grants.
const FIRST: (u64, u64) = (PIECE, PIECE);
/// All pieces that scenarios lock.
const WHOLE: (u64, u64) = (0, 6 * PIECE);
/// A host ends its locks itself when it was not heard for so long.
const OWN_LEASE: Duration = Duration::from_millis(3_500);
const EXCLUSIVE: LockMode = LockMode::Exclusive;
const SHARED: LockMode = LockMode::Shared;

/// An array with so many lock servers.
fn servers(count: u16) -> (Cluster, HostSlot, HostSlot) {
    let mut options = Options { lock_servers: count, ..Options::calm("raid1:2", 2, 1, 1) };
    options.settings.range_division = RangeDivision::RoundRobin(PIECE);
    array_of(options)
}

fn all_servers(array: &Cluster) -> Vec<NodeId> {
    array.lock_servers().into_iter().map(NodeId::LockServer).collect()
}

fn ask(array: &mut Cluster, host: HostSlot, (start, count): (u64, u64), mode: LockMode, over: Option<u64>) -> OpId {
    let extents = vec![LockExtent { position: 0, range: BlockRange::new(start, count), mode }];
    array.ask(host, RangesRequest::Lock { object: SPACE, extents, over, width: 0, wait: None })
}

/// The lock, and whether it was kept.
fn granted(array: &mut Cluster, asked: OpId) -> (u64, bool) {
    match array.finish(asked) {
        Ok(HostSuccess::RangeLocked { lock, kept }) => (lock, kept),
        other => panic!("not locked: {other:?}"),
    }
}

fn lock(array: &mut Cluster, host: HostSlot, range: (u64, u64), mode: LockMode) -> u64 {
    let asked = ask(array, host, range, mode, None);
    granted(array, asked).0
}

fn unlock(array: &mut Cluster, host: HostSlot, lock: u64) -> HostOutcome {
    let asked = array.ask(host, RangesRequest::Unlock { lock });
    array.finish(asked)
}

fn listen(array: &mut Cluster, host: HostSlot, lock: u64) -> OpId {
    array.ask(host, RangesRequest::AwaitRecall { lock })
}

/// The time until this host has all pieces, which it gives back then.
fn time_to_lock_all(array: &mut Cluster, host: HostSlot) -> Duration {
    time_of(array, |array| {
        let all = lock(array, host, WHOLE, EXCLUSIVE);
        assert_eq!(unlock(array, host, all), DONE);
    })
}

/// What a host that dies has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Level {
    /// A program uses it.
    Used,
    /// The host keeps it, and no program uses it.
    Cached,
    /// A program waits for it behind another host.
    Waiting,
    /// A program has it at the first lock server, and waits for the others.
    InPart,
}

#[test]
fn locks_of_a_host_that_died_are_granted_within_a_lease() {
    let levels = [Level::Used, Level::Cached, Level::Waiting, Level::InPart];
    with_each_pair(SERVERS, levels, servers, |array, [a, b], count, level| {
        let others = match level {
            Level::Waiting => Some(lock(array, b, WHOLE, EXCLUSIVE)),
            Level::InPart => Some(lock(array, b, ((count as u64 - 1) * PIECE, PIECE), EXCLUSIVE)),
            _ => None,
        };
        let asked = ask(array, a, WHOLE, SHARED, None);
        if others.is_none() {
            let (had, _) = granted(array, asked);
            if level == Level::Cached {
                assert_eq!(unlock(array, a, had), DONE);
            }
        }
        array.run_for(Duration::from_millis(50));
        array.crash(array.node(a));
        if let Some(others) = others {
            assert_eq!(unlock(array, b, others), DONE);
        }
        let took = time_to_lock_all(array, b);
        // Each of the servers finds out by itself that the host is silent.
        assert!(took > OWN_LEASE && took < A_LEASE + Duration::from_secs(1), "{count}, {level:?}: {took:?}");
    });
}

#[test]
fn a_lock_server_that_starts_again_grants_nothing_before_each_host_has_reported() {
    with_each_pair(SERVERS, [Level::Used, Level::Cached], servers, |array, [a, b], count, level| {
        let had = lock(array, a, WHOLE, EXCLUSIVE);
        if level == Level::Cached {
            assert_eq!(unlock(array, a, had), DONE);
        }
        let holder = array.node(a);
        for server in array.lock_servers() {
            array.world.network.cut(holder, NodeId::LockServer(server));
            array.crash(NodeId::LockServer(server));
            array.restart_lock_server(server);
        }
        let asked = ask(array, b, WHOLE, EXCLUSIVE, None);
        array.run_for(Duration::from_secs(1));
        assert!(!array.requests.is_answered(asked), "{count}, {level:?}");
        array.world.network.heal();
        array.run_for(Duration::from_secs(3));
        assert_eq!(array.requests.is_answered(asked), level == Level::Cached, "{count}, {level:?}");
        if level == Level::Used {
            assert_eq!(unlock(array, a, had), DONE, "{count}: it is not lost");
        }
        granted(array, asked);
        assert!(array.fenced().is_empty());
    });
}

#[test]
fn a_host_cut_off_from_a_lock_server_ends_what_this_one_has_granted_before_others_get_it() {
    with_each(SERVERS, servers, |array, [a, b], count| {
        // The other piece is at another server, if there is one.
        let pieces = [FIRST, (0, PIECE)].map(|piece| lock(array, a, piece, EXCLUSIVE));
        let [lost, other] = pieces.map(|lock| listen(array, a, lock));
        let node = array.node(a);
        cut(array, node, LOCK_SERVER);
        let asked = ask(array, b, FIRST, EXCLUSIVE, None);
        let begun = array.world.now();
        assert_eq!(array.finish(lost), Err(HostError::LockLost));
        let took = array.world.now().since(begun);
        assert!(took < OWN_LEASE && !array.requests.is_answered(asked), "{count}: {took:?}");
        array.run_for(Duration::from_millis(1));
        assert_eq!(array.requests.is_answered(other), count == 1, "{count}");
        let refused = ask(array, a, FIRST, SHARED, None);
        assert!(matches!(array.finish(refused), Err(HostError::LockServerSilent { .. })), "{count}");
        granted(array, asked);
        assert!(array.world.now().since(begun) < A_LEASE, "{count}");
        array.run_for(Duration::from_secs(1));
        replace_fenced(array, a);
    });
}

#[test]
fn a_lock_server_that_is_suspended_takes_locks_away_only_after_a_lease_and_fences_nobody() {
    with_each_pair(SERVERS, [2, 6], servers, |array, [a, b], count, seconds| {
        let had = lock(array, a, WHOLE, EXCLUSIVE);
        let lost = listen(array, a, had);
        for server in all_servers(array) {
            array.world.stall(server, Duration::from_secs(seconds));
        }
        let asked = ask(array, b, WHOLE, SHARED, None);
        array.run_for(Duration::from_secs(seconds + 1));
        if seconds > 4 {
            assert_eq!(array.finish(lost), Err(HostError::LockLost), "{count}");
            assert_eq!(unlock(array, a, had), Err(HostError::LockLost), "{count}");
        } else {
            assert_eq!(array.finish(lost), DONE, "{count}: it is recalled");
            assert!(!array.requests.is_answered(asked));
            assert_eq!(unlock(array, a, had), DONE);
        }
        let took = time_of(array, |array| drop(array.finish(asked)));
        assert!(took < Duration::from_secs(1) && array.fenced().is_empty(), "{count}, {seconds}: {took:?}");
    });
}

#[test]
fn of_two_programs_that_promote_the_second_gives_up_its_share_and_is_next() {
    with_each_pair(SERVERS, [false, true], servers, |array, [a, b], count, on_one_host| {
        let hosts = if on_one_host { [a, a] } else { [a, b] };
        let shares = hosts.map(|host| lock(array, host, WHOLE, SHARED));
        // The second one is told that its share is wanted before it promotes, too.
        let told = listen(array, hosts[1], shares[1]);
        let first = ask(array, hosts[0], WHOLE, EXCLUSIVE, Some(shares[0]));
        assert_eq!(array.finish(told), DONE);
        let second = ask(array, hosts[1], WHOLE, EXCLUSIVE, Some(shares[1]));
        let (exclusive, _) = granted(array, first);
        array.run_for(Duration::from_secs(1));
        assert!(!array.requests.is_answered(second), "{count}, {on_one_host}");
        assert_eq!(unlock(array, hosts[0], exclusive), DONE);
        assert!(!granted(array, second).1, "{count}, {on_one_host}: another program had it in between");
        assert_eq!(unlock(array, hosts[1], shares[1]), Err(HostError::NoSuchLock));
    });
}
