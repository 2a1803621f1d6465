//! Hosts that take more than their share, or keep what others need.

use crate::bench::*;

const SECOND: Duration = Duration::from_secs(1);

impl Bench {
    /// The monitor says which devices are unavailable.
    fn hear_of_devices(&mut self, unavailable: &[u16]) {
        let unavailable = unavailable.iter().copied().map(DeviceId).collect();
        let answer = MonitorAnswer { membership: None, unavailable, reply: MonitorReply::Changed };
        self.message(NodeId::Monitor, Message::MonitorAnswer(answer));
    }

    /// Lets time pass, in which these hosts send heartbeats and the monitor says which devices are unavailable whenever it is asked.
    fn pass_with_monitor(&mut self, span: Duration, alive: &[braid_base::Generation], unavailable: &[u16]) {
        let end = self.now.time.after(span);
        while self.now.time < end {
            self.pass_with(SECOND / 2, alive);
            if std::mem::take(&mut self.renewals) > 0 {
                self.hear_of_devices(unavailable);
            }
        }
    }
}

fn limit() -> Duration {
    let config = LockServerConfig::of_volumes(braid_base::LockServerId(0), ONE, Default::default(), settings());
    config.evict_after.expect("it is limited")
}

#[test]
fn a_host_that_keeps_a_lock_of_a_volume_is_fenced_whether_the_lock_is_cached_or_not() {
    for term in [PATIENT, LockTerm::Cached] {
        let mut bench = Bench::of_volumes();
        bench.lock(ONE, 1, Exclusive, (0, 1 << 30), term);
        bench.lock(TWO, 1, Exclusive, (7, 1), PATIENT);
        bench.pass_with_monitor(limit() - SECOND, &[ONE, TWO], &[]);
        assert!(bench.fences.is_empty(), "operations last that long");
        bench.pass_with_monitor(SECOND * 3, &[ONE, TWO], &[]);
        assert_eq!(bench.fences.front().map(|(_, hosts)| hosts.clone()), Some(vec![ONE]));
        assert_eq!(bench.fence_decisions(), [(ONE, FenceCause::KeepsLocks)]);
        bench.fence_all();
        assert_eq!(bench.hear(TWO), granted(1, true));
        assert_eq!((bench.server.counters().evicted, bench.server.counters().fenced), (1, 1));
    }
}

#[test]
fn a_host_is_not_fenced_for_its_locks_while_a_device_is_unavailable_or_the_monitor_is_silent() {
    let mut bench = Bench::of_volumes();
    bench.lock(ONE, 1, Exclusive, (0, 8), PATIENT);
    bench.lock(TWO, 1, Exclusive, (7, 1), PATIENT);
    // It can't undo its write on that device, and keeps its lock until it can.
    bench.pass_with_monitor(limit() * 2, &[ONE, TWO], &[3]);
    bench.pass_with(limit() * 2, &[ONE, TWO]);
    assert!(bench.fences.is_empty() && bench.renewals > 0);
    bench.hear_of_devices(&[3]);
    bench.pass_with_monitor(limit() - SECOND, &[ONE, TWO], &[]);
    assert!(bench.fences.is_empty(), "it has some time, from when the device is back");
    bench.pass_with_monitor(SECOND * 3, &[ONE, TWO], &[]);
    assert!(!bench.fences.is_empty() && bench.fences.iter().all(|(_, hosts)| *hosts == [ONE]));
}

#[test]
fn locks_that_nobody_else_wants_cost_no_question_to_the_monitor() {
    let mut bench = Bench::of_volumes();
    bench.lock(ONE, 1, Exclusive, (0, 8), PATIENT);
    bench.lock(ONE, 2, Exclusive, (7, 1), PATIENT);
    bench.pass_with(limit() * 2, &[ONE, TWO]);
    assert_eq!((bench.fences.len(), bench.renewals), (0, 0));
}

/// A lock may have 2048 extents, so a bound on the number of locks alone would allow any amount of memory.
#[test]
fn one_host_has_at_most_as_many_extents_as_it_leaves_to_others() {
    let mut bench = Bench::of_volumes();
    bench.check_every_step = false;
    let request = |lock_id: u64| {
        let base = lock_id * limits::EXTENTS_MAX as u64;
        let blocks = (base..).take(limits::EXTENTS_MAX);
        let extent = |block| LockExtent { position: 0, range: BlockRange::new(block, 1), mode: Exclusive };
        LockCommand::Lock { lock_id, object: OBJECT, extents: blocks.map(extent).collect(), term: LockTerm::Cached }
    };
    let share = (limits::LOCK_EXTENTS_MAX / 2 / limits::EXTENTS_MAX) as u64;
    for lock_id in 0..share {
        bench.say(ONE, request(lock_id));
        assert_eq!(bench.hear(ONE), granted(lock_id, false));
    }
    bench.say(ONE, request(share));
    let busy = Some(LockReply::Refused { lock_id: share, refusal: LockRefusal::Busy });
    assert_eq!(bench.hear(ONE), busy);
    bench.say(TWO, request(share + 1));
    assert_eq!(bench.hear(TWO), granted(share + 1, false), "there is room for others");
    // What it gives back it may have again; and all of it when it has ended.
    bench.unlock(ONE, 5);
    bench.unlock(ONE, 6);
    bench.hear(ONE);
    bench.hear(ONE);
    bench.say(ONE, request(5));
    assert_eq!(bench.hear(ONE), granted(5, false));
}
