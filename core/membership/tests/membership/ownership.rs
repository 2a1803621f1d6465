//! The ownership of file systems: one compare-and-swap changes the owner and fences the previous one, and is answered like a fence.

use crate::bench::*;

const ALL: [u16; 5] = [0, 1, 2, 3, 4];
const FS: u16 = 3;

type Answer = Result<Ownership, OwnershipRefused>;

fn owned(owner: u32, since: u32) -> Ownership {
    Ownership { since: Epoch(since), owner: Some(Generation(owner)) }
}

fn by_none(since: u32) -> Ownership {
    Ownership { since: Epoch(since), owner: None }
}

fn differs(present: Ownership) -> Answer {
    Err(OwnershipRefused::Differs(present))
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

    fn release(&mut self, by: u32, ticket: u64, since: u32) {
        self.ask_owner(by, ticket, FS, OwnershipRequest::Release { since: Epoch(since) });
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
fn a_take_over_is_answered_when_every_device_that_may_serve_refuses_the_previous_owner() {
    let mut bench = Bench::new();
    bench.pass_with(SECOND, &nodes(&ALL, &[7, 8]));
    assert_eq!(bench.owner(FS), by_none(0));
    assert_eq!(bench.taken_over(7, 1, by_none(0)), Ok(owned(7, 2)));
    bench.take_over(8, 1, owned(7, 2));
    // One record has both; no device knows of it yet.
    assert_eq!((bench.epoch(), bench.owner(FS)), (3, owned(8, 3)));
    assert!(bench.membership().fence.refuses(Generation(7)));
    for number in 0..4 {
        bench.renew(device(number));
        bench.renew(device(number));
    }
    assert_eq!(bench.told(8, 1), []);
    bench.renew(device(4));
    bench.renew(device(4));
    assert_eq!(bench.told(8, 1), [Ok(owned(8, 3))]);
    assert_eq!(bench.epoch(), 3);
}

#[test]
fn a_change_of_ownership_waits_for_leases_and_undecided_writes_like_a_fence() {
    let mut bench = Bench::new();
    bench.pass_with(SECOND, &nodes(&ALL, &[]));
    assert_eq!(bench.taken_over(7, 1, by_none(0)), Ok(owned(7, 2)));
    // A device that does not hear the monitor may serve until its lease has expired.
    bench.renew(device(3));
    bench.take_over(8, 1, owned(7, 2));
    let others = nodes(&[0, 1, 2, 4], &[]);
    bench.pass_with(LEASE - SECOND / 10, &others);
    assert_eq!(bench.told(8, 1), []);
    bench.pass_with(NOTICE, &others);
    assert_eq!((bench.told(8, 1), bench.member_state(3)), (vec![Ok(owned(8, 3))], MemberState::Out));
    bench.undecided.insert(device(1), vec![Generation(8)]);
    bench.take_over(9, 1, owned(8, 3));
    bench.pass_with(SECOND, &others);
    assert_eq!(bench.told(9, 1), []);
    bench.undecided.clear();
    bench.pass_with(SECOND, &others);
    assert_eq!(bench.told(9, 1), [Ok(owned(9, 5))]);
}

#[test]
fn a_request_that_is_repeated_is_answered_as_before_even_by_a_restarted_monitor() {
    let mut bench = Bench::new();
    assert_eq!(bench.taken_over(7, 1, by_none(0)), Ok(owned(7, 2)));
    assert_eq!(bench.taken_over(8, 1, owned(7, 2)), Ok(owned(8, 3)));
    // Its answer was lost.
    assert_eq!(bench.taken_over(8, 1, owned(7, 2)), Ok(owned(8, 3)));
    bench.restart(config(5));
    bench.take_over(8, 1, owned(7, 2));
    assert_eq!(bench.told(8, 1), [], "devices have to report their epochs to the new monitor");
    bench.pass_with(SECOND, &nodes(&ALL, &[]));
    assert_eq!((bench.told(8, 1), bench.epoch()), (vec![Ok(owned(8, 3))], 3));
    // With another ticket, too.
    assert_eq!(bench.taken_over(8, 2, owned(7, 2)), Ok(owned(8, 3)));
}

#[test]
fn of_hosts_that_contend_one_takes_over() {
    let mut bench = Bench::new();
    bench.stalled = true;
    bench.take_over(7, 1, by_none(0));
    bench.take_over(8, 1, by_none(0));
    bench.take_over(9, 1, by_none(0));
    assert_eq!((bench.told(8, 1), bench.told(9, 1)), (vec![], vec![]), "nothing is durable yet");
    bench.resume_disk();
    assert_eq!(bench.told(8, 1), [differs(owned(7, 2))]);
    assert_eq!(bench.told(9, 1), [differs(owned(7, 2))]);
    bench.pass_with(SECOND, &nodes(&ALL, &[]));
    assert_eq!(bench.told(7, 1), [Ok(owned(7, 2))]);
    assert_eq!(bench.owner(FS), owned(7, 2));
}

#[test]
fn requests_in_one_record_are_judged_by_what_is_durable() {
    let mut bench = Bench::new();
    bench.stalled = true;
    // While the disk is busy with this, the others wait.
    bench.say(host(1), MonitorCommand::Fence { ticket: 1, below: Generation(1), except: vec![], also: vec![] });
    for by in [7, 8] {
        bench.take_over(by, 1, by_none(0));
    }
    let fence = MonitorCommand::Fence { ticket: 2, below: Generation(0), except: vec![], also: vec![Generation(9)] };
    bench.say(host(1), fence);
    bench.ask_owner(9, 1, FS + 1, OwnershipRequest::TakeOver { from: by_none(0) });
    assert!(bench.run_command() && bench.run_command(), "two copies");
    assert_eq!(bench.epoch(), 2);
    assert!(bench.run_command());
    let told: Vec<_> = [7, 8, 9].into_iter().flat_map(|by| bench.told(by, 1)).collect();
    assert_eq!(told, [], "one copy has it");
    bench.resume_disk();
    assert_eq!((bench.epoch(), bench.told(8, 1)), (3, vec![differs(owned(7, 3))]));
    assert_eq!(bench.told(9, 1), [Err(OwnershipRefused::Fenced)]);
    assert_eq!(bench.owner(FS + 1), by_none(0));
}

#[test]
fn late_copies_change_nothing() {
    let mut bench = Bench::new();
    assert_eq!(bench.taken_over(7, 1, by_none(0)), Ok(owned(7, 2)));
    bench.release(7, 2, 2);
    assert_eq!((bench.told(7, 2), bench.owner(FS)), (vec![Ok(by_none(3))], by_none(3)));
    assert!(!bench.membership().fence.refuses(Generation(7)), "a release fences nobody");
    bench.take_over(7, 1, by_none(0));
    assert_eq!(bench.told(7, 1), [differs(by_none(3))]);
    assert_eq!(bench.taken_over(8, 1, by_none(3)), Ok(owned(8, 4)));
    // The same host may own it again.
    assert_eq!(bench.taken_over(7, 3, owned(8, 4)), Ok(owned(7, 5)));
    bench.release(7, 2, 2);
    assert_eq!(bench.told(7, 2), [Ok(owned(7, 5))], "what it asked for is long done");
    bench.take_over(8, 1, by_none(3));
    assert_eq!(bench.told(8, 1), [differs(owned(7, 5))]);
    bench.restart(config(5));
    bench.release(7, 2, 2);
    bench.take_over(8, 1, by_none(3));
    bench.take_over(7, 1, by_none(0));
    assert_eq!((bench.owner(FS), bench.epoch()), (owned(7, 5), 5));
}

#[test]
fn only_the_owner_releases() {
    let mut bench = Bench::new();
    assert_eq!(bench.taken_over(7, 1, by_none(0)), Ok(owned(7, 2)));
    bench.release(8, 1, 2);
    assert_eq!(bench.told(8, 1), [differs(owned(7, 2))]);
    bench.release(7, 2, 3);
    assert_eq!(bench.told(7, 2), [differs(owned(7, 2))]);
    bench.take_over(7, 3, owned(7, 2));
    assert_eq!(bench.told(7, 3), [differs(owned(7, 2))], "no host takes over from itself");
    assert!(!bench.membership().fence.refuses(Generation(7)));
    // A release waits for the disk alone.
    bench.stalled = true;
    bench.release(7, 4, 2);
    assert_eq!(bench.told(7, 4), []);
    bench.resume_disk();
    assert_eq!(bench.told(7, 4), [Ok(by_none(3))]);
}

#[test]
fn a_take_over_that_was_overtaken_before_its_answer_is_refused() {
    let mut bench = Bench::new();
    bench.take_over(7, 1, by_none(0));
    assert_eq!(bench.told(7, 1), []);
    bench.take_over(8, 1, owned(7, 2));
    assert_eq!(bench.told(7, 1), [differs(owned(8, 3))]);
    bench.pass_with(SECOND, &nodes(&ALL, &[]));
    assert_eq!(bench.told(8, 1), [Ok(owned(8, 3))]);
    bench.take_over(7, 1, by_none(0));
    assert_eq!(bench.told(7, 1), [differs(owned(8, 3))]);
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
fn a_fenced_host_takes_nothing_over() {
    let mut bench = Bench::new();
    bench.fence(1, &[7]);
    bench.take_over(7, 1, by_none(0));
    assert_eq!(bench.told(7, 1), [Err(OwnershipRefused::Fenced)]);
    assert_eq!(bench.owner(FS), by_none(0));
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

#[test]
fn a_take_over_by_a_device_or_lock_server_is_ignored() {
    let mut bench = Bench::new();
    for node in [device(0), lock_server(0)] {
        let request = OwnershipRequest::TakeOver { from: by_none(0) };
        bench.say(node, MonitorCommand::Ownership { ticket: 1, file_system: FileSystemId(FS), request });
    }
    assert_eq!((bench.owner(FS), bench.epoch()), (by_none(0), 1));
}

#[test]
fn a_rebuilt_record_has_no_owner_and_no_earlier_request_finds_what_it_names() {
    let mut bench = Bench::new();
    assert_eq!(bench.taken_over(7, 1, by_none(0)), Ok(owned(7, 2)));
    let membership = bench.membership().clone();
    let heard = ALL.map(|number| DeviceTestimony {
        device: DeviceId(number),
        disk: braid_base::DiskId(number.into()),
        membership: Some(membership.clone()),
    });
    let evidence = Evidence {
        array: config(5).array,
        devices: ALL.into_iter().map(|number| (DeviceId(number), None)).collect(),
        heard: heard.to_vec(),
        lived_by: BTreeMap::new(),
        without: BTreeSet::new(),
        hosts_below: Generation(40),
    };
    let rebuilt = recover(&evidence).expect("all disks were read");
    let epoch = rebuilt.membership().epoch.0;
    assert!(RecordSummary::read(&rebuilt.disk_image()).is_ok());
    let mut bench = Bench::on(config(5), rebuilt.disk_image());
    assert_eq!(bench.owner(FS), by_none(epoch));
    bench.take_over(50, 1, by_none(0));
    bench.take_over(51, 1, owned(7, 2));
    assert_eq!((bench.told(50, 1), bench.told(51, 1)), (vec![differs(by_none(epoch))], vec![differs(by_none(epoch))]));
    bench.take_over(50, 2, by_none(epoch));
    assert_eq!(bench.owner(FS), owned(50, epoch + 1));
}
