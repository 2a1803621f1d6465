//! Fencing hosts: a request is answered when no device can serve the hosts any more.

use crate::bench::*;
use crate::story::{five, stories};

const ALL: [u16; 5] = [0, 1, 2, 3, 4];

fn generations(hosts: impl IntoIterator<Item = u32>) -> Vec<Generation> {
    hosts.into_iter().map(Generation).collect()
}

fn fence(ticket: u64, below: u32, except: &[u32], also: &[u32]) -> MonitorCommand {
    let (except, also) = (generations(except.iter().copied()), generations(also.iter().copied()));
    MonitorCommand::Fence { ticket, below: Generation(below), except, also }
}

impl Bench {
    /// A lock server requests that these hosts be fenced.
    pub fn fence(&mut self, ticket: u64, also: &[u32]) {
        self.say(lock_server(0), fence(ticket, 0, &[], also));
    }

    /// True if the lock server is told that the fence is complete.
    pub fn is_fenced(&mut self, ticket: u64) -> bool {
        std::iter::from_fn(|| self.hear(lock_server(0))).any(|answer| answer.reply == MonitorReply::Fenced { ticket })
    }
}

#[test]
fn fences_beyond_the_room_are_dropped_and_a_number_makes_room() {
    let mut bench = Bench::new();
    let most = limits::FENCED_MAX as u32;
    let all: Vec<_> = (1..=most).collect();
    bench.fence(1, &all);
    bench.fence(2, &[most + 1]);
    bench.pass_with(SECOND, &nodes(&ALL, &[]));
    assert_eq!((bench.epoch(), bench.is_fenced(2), bench.monitor.counters().fences_refused), (2, false, 1));
    bench.say(host(most + 2), fence(1, most, &[], &[]));
    bench.fence(2, &[most + 1]);
    bench.pass_with(SECOND, &nodes(&ALL, &[]));
    assert!(bench.is_fenced(2));
    // The most requests at a time.
    bench.stalled = true;
    for ticket in 100..170 {
        bench.fence(ticket, &[most + ticket as u32]);
    }
    bench.resume_disk();
    bench.pass_with(SECOND, &nodes(&ALL, &[]));
    assert_eq!(bench.monitor.counters().fences_refused, 1 + 6);
}

#[test]
fn hosts_that_do_not_exist_yet_are_not_fenced() {
    let mut bench = Bench::new();
    let next = LAST_GENERATION.0 + 1;
    bench.pass_with(SECOND, &nodes(&ALL, &[7]));
    for below in [next + 1, u32::MAX] {
        bench.say(host(7), fence(u64::from(below), below, &[7], &[]));
    }
    // A lock server has heard a host that does not exist. That must not keep it from having another one fenced.
    bench.fence(2, &[6, next, u32::MAX]);
    bench.pass_with(SECOND, &nodes(&ALL, &[]));
    assert!(bench.is_fenced(2));
    let fence_of = |bench: &Bench| bench.membership().fence.clone();
    assert_eq!((fence_of(&bench).below, fence_of(&bench).also), (Generation(0), [Generation(6)].into()));
    assert_eq!((bench.epoch(), bench.monitor.counters().fences_ahead), (2, 3));
    // Every host that was given out can be fenced, and the next one once it is given out.
    bench.say(host(7), fence(3, next, &[7], &[]));
    assert_eq!(fence_of(&bench).below, Generation(next));
    bench.request(ControlRequest::NoteGenerations { last: Generation(next) }).expect("it is told");
    bench.say(host(7), fence(4, next + 1, &[7], &[]));
    bench.pass_with(SECOND, &nodes(&ALL, &[7]));
    assert_eq!(fence_of(&bench).below, Generation(next + 1));
    // A late word of an earlier generation changes nothing.
    bench.request(ControlRequest::NoteGenerations { last: Generation(3) }).expect("it is told");
    bench.say(host(7), fence(5, 9, &[7], &[]));
    bench.pass_with(SECOND, &nodes(&ALL, &[7]));
    assert_eq!((fence_of(&bench).below, bench.monitor.counters().fences_ahead), (Generation(next + 1), 3));
}

stories! {
    five;

    fn a_fence_is_final_when_every_device_that_may_serve_enforces_it():
        "1s 01234 h7";
        "fence 5 7" => "e2";
        "fenced 5" => "no";
        // A device is told of the epoch in the answer to one report, and reports that epoch in the next.
        "hear 001122334";
        "late 0 e1"; // A duplicate of an earlier report.
        "fence 5 7";
        "fenced 5" => "no";
        "hear 4";
        "fenced 5" => "yes";
        "fence 5 7";
        "fenced 5" => "yes"; // The first answer was lost.
        "count fences" => "2";

    fn after_a_restart_of_the_monitor_devices_have_to_say_it_again():
        "fence 5 7" => "e2";
        "1s 01234";
        "fenced 5" => "yes";
        "restart";
        "refuses 7" => "yes";
        "fence 5 7";
        "1s 0123";
        "fenced 5" => "no";
        "hear 4";
        "fenced 5" => "yes";

    fn a_device_that_is_about_to_be_taken_out_is_out_when_a_fence_is_answered():
        "1s 01234";
        "undecided 3 7";
        "fence 5 7" => "e2";
        "1s 01234";
        "stall"; // The device's lease expires, and the record of that is being written.
        "4600ms 0124";
        "fenced 5" => "no"; // Until that is durable, the device could return and decide otherwise than a reader saw.
        "resume" => "e3: 3 out";
        "1s 0124";
        "fenced 5" => "yes";

    fn undecided_writes_of_a_fenced_host_are_waited_for():
        "1s 01234";
        "undecided 3 6 8";
        "fence 5 7" => "e2";
        "1s 01234";
        "fenced 5" => "yes"; // Nothing of this host is undecided.
        "fence 6 8" => "e3";
        "1s 01234";
        "fenced 6" => "no";
        "undecided 3"; // A late duplicate of a report in an earlier epoch, in which the device knew of no fence.
        "late 3 e2";
        "fenced 6" => "no";
        "undecided 3 100-355"; // So many that the list may be incomplete.
        "hear 3";
        "fenced 6" => "no";
        "undecided 3 6";
        "hear 3";
        "fenced 6" => "yes"; // It is decided.

    fn a_host_that_does_not_exist_yet_does_not_count():
        "silent 2";
        "8800ms 01234 h1048577"; // It alone misses the device.

    fn a_fence_that_changes_nothing_is_no_new_epoch_but_waits_for_the_first():
        "h1 fences below 10 except 5 6" => "e2";
        "fence 2 3";
        "fenced 2" => "no";
        "1s 01234";
        "fenced 2" => "yes";
        "hear 4";
        "4600ms 0123" => "e3: 4 out";
        "fence 3 3"; // It does not wait for an epoch that began for another reason.
        "fenced 3" => "yes";
}
