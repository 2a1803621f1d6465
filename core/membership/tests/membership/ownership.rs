//! The ownership of file systems: one compare-and-swap changes the owner and fences the previous one, and is answered like a fence.

use crate::bench::*;
use crate::story::{five, stories};

const ALL: [u16; 5] = [0, 1, 2, 3, 4];
const FS: u16 = 3;

type Answer = Result<Ownership, OwnershipRefused>;

fn owned(owner: u32, since: u32) -> Ownership {
    Ownership { since: Epoch(since), owner: Some(Generation(owner)) }
}

fn by_none(since: u32) -> Ownership {
    Ownership { since: Epoch(since), owner: None }
}

impl Bench {
    /// A host sends a request about a file system.
    fn ask_owner(&mut self, from: u32, ticket: u64, file_system: u16, request: OwnershipRequest) {
        let file_system = FileSystemId(file_system);
        self.say(host(from), MonitorCommand::Ownership { ticket, file_system, request });
    }

    fn take_over(&mut self, by: u32, ticket: u64, from: Ownership) {
        self.ask_owner(by, ticket, FS, OwnershipRequest::TakeOver { from });
    }

    /// The answers to a host's request so far.
    fn told(&mut self, to: u32, ticket: u64) -> Vec<Answer> {
        let answers = std::iter::from_fn(|| self.hear(host(to)));
        let of_ticket = answers.filter_map(|answer| match answer.reply {
            MonitorReply::Ownership { ticket: answered, result } if answered == ticket => Some(result),
            _ => None,
        });
        of_ticket.collect()
    }

    /// Takes over, lets all devices adopt the epoch, and returns the answer.
    fn taken_over(&mut self, by: u32, ticket: u64, from: Ownership) -> Answer {
        self.take_over(by, ticket, from);
        self.pass_with(SECOND, &nodes(&ALL, &[]));
        let told = self.told(by, ticket);
        assert_eq!(told.len(), 1, "{told:?}");
        told[0]
    }

    fn owner(&mut self, file_system: u16) -> Ownership {
        self.ask_owner(999, 1, file_system, OwnershipRequest::Inquire);
        self.told(999, 1)[0].expect("a question is answered")
    }
}

#[test]
fn a_record_that_is_written_in_part_has_owner_and_fence_or_neither() {
    for written in 0..=4 {
        let mut bench = Bench::new();
        assert_eq!(bench.taken_over(7, 1, by_none(0)), Ok(owned(7, 2)));
        bench.stalled = true;
        bench.take_over(8, 1, owned(7, 2));
        let done = (0..written).take_while(|_| bench.run_command()).count();
        bench.restart(config(5));
        let (is_fenced, owner) = (bench.membership().fence.refuses(Generation(7)), bench.owner(FS));
        assert_eq!(is_fenced, owner == owned(8, 3), "{done} writes: {owner:?}");
        assert!(is_fenced || owner == owned(7, 2));
        assert_eq!(bench.taken_over(8, 1, owned(7, 2)), Ok(owned(8, 3)), "{done} writes");
    }
}

#[test]
fn tables_have_their_bounds() {
    let mut bench = Bench::new();
    let most = limits::FILE_SYSTEMS_MAX as u16;
    for file_system in 0..most {
        bench.ask_owner(7, file_system.into(), file_system, OwnershipRequest::TakeOver { from: by_none(0) });
    }
    bench.pass_with(SECOND, &nodes(&ALL, &[]));
    bench.ask_owner(7, 1_000, most, OwnershipRequest::TakeOver { from: by_none(0) });
    assert_eq!(bench.told(7, 1_000), [Err(OwnershipRefused::TooManyFileSystems)]);
    // The most requests at a time, and a fence that does not fit.
    bench.stalled = true;
    let from = owned(7, 2);
    bench.fence(1, &(100..100 + limits::FENCED_MAX as u32).collect::<Vec<_>>());
    for ticket in 0..70 {
        bench.ask_owner(8, 2_000 + ticket, 0, OwnershipRequest::TakeOver { from });
    }
    assert_eq!(bench.monitor.counters().fences_refused, 6);
    bench.resume_disk();
    assert_eq!(bench.monitor.counters().fences_refused, 70, "there is no room for the fence");
    assert_eq!(bench.owner(0), from);
    bench.say(
        host(9),
        MonitorCommand::Fence {
            ticket: 1,
            below: Generation(5_000),
            except: vec![Generation(7), Generation(8)],
            also: vec![],
        },
    );
    bench.ask_owner(8, 3_000, 0, OwnershipRequest::TakeOver { from });
    bench.pass_with(SECOND, &nodes(&ALL, &[]));
    assert_eq!(bench.told(8, 3_000).len(), 1, "a number has made room");
}

stories! {
    five;

    fn a_change_of_ownership_waits_for_leases_and_undecided_writes_like_a_fence():
        "1s 01234";
        "h7 takes from none e0" => "e2";
        "1s 01234" => "h7/1: h7 e2";
        "hear 3"; // A device that does not hear the monitor may serve until its lease has expired.
        "h8 takes from h7 e2" => "e3";
        "4300ms 0124";
        "200ms 0124" => "e4: 3 out, h8/1: h8 e3";
        "undecided 1 8";
        "h9 takes from h8 e3" => "e5";
        "1s 0124";
        "undecided 1";
        "1s 0124" => "h9/1: h9 e5";

    fn requests_in_one_record_are_judged_by_what_is_durable():
        "stall"; // While the disk is busy with this, the others wait.
        "fence 1 1";
        "h7 takes from none e0";
        "h8 takes from none e0";
        "fence 2 9";
        "h9 takes from none e0 of 4";
        "write";
        "write" => "e2"; // Two copies.
        "write"; // One copy has it.
        "resume" => "e3, h8/1: differs h7 e3, h9/1: Fenced";
        "owner of 4" => "none e0";

    fn only_the_owner_releases():
        "h7 takes from none e0" => "e2";
        "1s 01234" => "h7/1: h7 e2";
        "h8 releases e2" => "h8/1: differs h7 e2";
        "h7 releases e3 as 2" => "h7/2: differs h7 e2";
        "h7 takes from h7 e2 as 3" => "h7/3: differs h7 e2"; // No host takes over from itself.
        "refuses 7" => "no";
        "stall"; // A release waits for the disk alone.
        "h7 releases e2 as 4";
        "resume" => "e3, h7/4: none e3";

    fn a_take_over_that_was_overtaken_before_its_answer_is_refused():
        "h7 takes from none e0" => "e2";
        "h8 takes from h7 e2" => "e3, h7/1: differs h8 e3";
        "1s 01234" => "h8/1: h8 e3";
        "h7 takes from none e0" => "h7/1: differs h8 e3";

    fn a_fenced_host_takes_nothing_over():
        "fence 1 7" => "e2";
        "h7 takes from none e0" => "h7/1: Fenced";
        "owner" => "none e0";
}
