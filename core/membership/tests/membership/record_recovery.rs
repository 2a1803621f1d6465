//! A lost record is rebuilt from the devices' disks.

use crate::bench::*;
use braid_membership::record_recovery::{EPOCH_MARGIN, RecoveredRecord, RecoveryRefused};

const DEVICES: u16 = 4;
const LAST_HOST: u32 = 40;

/// Devices that follow the rules, a monitor, and the history of both.
struct History {
    bench: Bench,
    rng: Rng,
    /// All memberships that were durable at the monitor.
    decided: BTreeMap<Epoch, Membership>,
    /// All epochs that each device has adopted.
    adopted: BTreeMap<DeviceId, Vec<Epoch>>,
    fenced: BTreeSet<Generation>,
    next_ticket: u64,
}

impl History {
    fn new(seed: u64) -> History {
        let mut bench = Bench::of(DEVICES);
        bench.adopt(volume(1, RaidLevel::Raid5 { data: 3 }, &[0, 1, 2, 3]));
        let adopted = (0..DEVICES).map(|device| (DeviceId(device), Vec::new())).collect();
        let mut history = History {
            bench,
            rng: Rng::new(seed),
            decided: BTreeMap::new(),
            adopted,
            fenced: BTreeSet::new(),
            next_ticket: 0,
        };
        history.pass(4, &[0, 1, 2, 3]);
        history
    }

    /// Lets this many heartbeats pass, in which these devices and a host ask for leases.
    fn pass(&mut self, heartbeats: u32, alive: &[u16]) {
        for _ in 0..heartbeats {
            for number in alive {
                self.renew(*number);
            }
            self.bench.renew(host(7));
            self.bench.pass(SECOND / 2);
            let membership = self.bench.membership().clone();
            self.decided.insert(membership.epoch, membership);
        }
    }

    fn renew(&mut self, number: u16) {
        let answer = self.bench.answer_to(device(number));
        let leased = matches!(answer.reply, MonitorReply::Lease { .. });
        // A membership is adopted only together with a lease.
        let Some(membership) = answer.membership.filter(|_| leased) else { return };
        self.bench.epochs.insert(device(number), membership.epoch);
        self.adopted.entry(DeviceId(number)).or_default().push(membership.epoch);
        self.decided.insert(membership.epoch, membership);
    }

    /// A random event of the array.
    fn turn(&mut self) {
        let heartbeats = self.rng.below(14) as u32 + 1;
        let unavailable = self.rng.below(2 * u64::from(DEVICES)) as u16;
        let alive: Vec<u16> = (0..DEVICES).filter(|device| *device != unavailable).collect();
        match self.rng.below(4) {
            0 => {
                self.next_ticket += 1;
                let also = Generation(self.rng.below(u64::from(LAST_HOST)) as u32 + 8);
                self.fenced.insert(also);
                let (ticket, below, except) = (self.next_ticket, Generation(0), Vec::new());
                self.bench.say(host(7), MonitorCommand::Fence { ticket, below, except, also: vec![also] });
                // Some devices may not hear of it before the end.
                let reached = self.rng.below(u64::from(DEVICES) + 1) as usize;
                alive[..reached.min(alive.len())].iter().copied().for_each(|device| self.renew(device));
            }
            1 => {
                let returning =
                    |member: &&braid_base::Member| matches!(member.member_state, MemberState::Returning { .. });
                if let Some(member) = self.bench.membership().members.iter().find(returning).copied() {
                    self.bench
                        .say(host(7), MonitorCommand::Resynchronised { device: member.device, since: member.since });
                }
            }
            _ => {}
        }
        self.pass(heartbeats, &alive);
    }

    /// The last decisions of the monitor may reach some devices, or none.
    fn decide_unheard(&mut self) {
        for _ in 0..self.rng.below(3) {
            self.next_ticket += 1;
            let (ticket, also) = (self.next_ticket, vec![Generation(self.next_ticket as u32 % LAST_HOST + 8)]);
            let (below, except) = (Generation(0), Vec::new());
            self.bench.say(host(7), MonitorCommand::Fence { ticket, below, except, also });
            for device in 0..DEVICES {
                if self.rng.chance(1, 4) {
                    self.renew(device);
                }
            }
        }
        let membership = self.bench.membership().clone();
        self.decided.insert(membership.epoch, membership);
    }

    /// The disk of a device with this epoch.
    fn says(&self, device: DeviceId, epoch: Epoch) -> DeviceTestimony {
        DeviceTestimony {
            device,
            disk: DiskId(device.0.into()),
            membership: self.decided.get(&epoch).cloned(),
            level: Level::FIRST,
        }
    }

    fn lives_by(&self, device: DeviceId) -> Epoch {
        self.adopted[&device].last().copied().unwrap_or_default()
    }

    /// All disks as they are, and nothing else known.
    fn evidence(&self) -> Evidence {
        Evidence {
            array: ArrayId([1; 16]),
            devices: self.adopted.keys().map(|device| (*device, Some(DiskId(device.0.into())))).collect(),
            heard: self.adopted.keys().map(|device| self.says(*device, self.lives_by(*device))).collect(),
            lived_by: BTreeMap::new(),
            level: Level::FIRST,
            without: BTreeSet::new(),
            hosts_below: Generation(LAST_HOST + 9),
        }
    }

    fn newest_adopted(&self) -> Epoch {
        self.adopted.values().flatten().copied().max().expect("some device has adopted an epoch")
    }

    /// Starts a monitor with the record and lets it hear these devices as they are. Returns which got a lease, and the membership in the
    /// end.
    fn serve(&self, record: &RecoveredRecord, heard: &[u16]) -> (BTreeSet<u16>, Membership) {
        let mut bench = Bench::on(config(DEVICES), record.disk_image());
        assert_eq!((bench.monitor.service(), bench.membership()), (MonitorService::Serving, record.membership()));
        bench.adopt(volume(1, RaidLevel::Raid5 { data: 3 }, &[0, 1, 2, 3]));
        let mut epochs: BTreeMap<u16, Epoch> =
            heard.iter().map(|device| (*device, self.lives_by(DeviceId(*device)))).collect();
        let mut leased = BTreeSet::new();
        for _ in 0..40 {
            for (number, epoch) in &mut epochs {
                bench.epochs.insert(device(*number), *epoch);
                let answer = bench.answer_to(device(*number));
                if matches!(answer.reply, MonitorReply::Lease { .. }) {
                    leased.insert(*number);
                    *epoch = answer.membership.map_or(*epoch, |membership| membership.epoch);
                }
                assert_eq!(bench.monitor.service(), MonitorService::Serving);
            }
            bench.renew(host(LAST_HOST + 9));
            for member in bench.membership().members.clone() {
                if matches!(member.member_state, MemberState::Returning { .. }) {
                    let (device, since) = (member.device, member.since);
                    bench.say(host(LAST_HOST + 9), MonitorCommand::Resynchronised { device, since });
                }
            }
            bench.pass(SECOND / 2);
        }
        (leased, bench.membership().clone())
    }
}

/// Every device with an unchanged disk is let in, and no device that was out counts as in, whatever the monitor had decided unheard.
#[test]
fn a_lost_record_is_made_anew_from_all_devices() {
    let mut lagging = 0;
    for seed in 0..60 {
        let mut history = History::new(seed);
        for _ in 0..history.rng.below(8) {
            history.turn();
        }
        history.decide_unheard();
        let record = recover(&history.evidence()).unwrap_or_else(|refused| panic!("seed {seed}: {refused}"));
        let last = &history.decided[&history.newest_adopted()];
        lagging += u32::from(history.bench.membership().epoch > last.epoch);
        let made = record.membership();
        assert!(made.epoch.0 > history.bench.membership().epoch.0 + EPOCH_MARGIN / 2, "no epoch number is reused");
        for (a, b) in last.members.iter().zip(&made.members) {
            let readable = |member_state| member_state == MemberState::In;
            assert_eq!((a.device, a.since, readable(a.member_state)), (b.device, b.since, readable(b.member_state)));
            assert_eq!(a.member_state == MemberState::Out, b.member_state == MemberState::Out);
        }
        let kept_out = |host: &Generation| made.fence.refuses(*host);
        assert!((0..LAST_HOST + 9).map(Generation).all(|host| kept_out(&host)) && history.fenced.iter().all(kept_out));
        assert!(!made.fence.refuses(Generation(LAST_HOST + 9)), "new hosts are not fenced");
        let (leased, end) = history.serve(&record, &[0, 1, 2, 3]);
        assert_eq!(leased.len(), 4, "seed {seed}: all have right disks: {end:?}");
        assert!(end.members.iter().all(|member| member.member_state == MemberState::In), "seed {seed}: {end:?}");
    }
    assert!(lagging > 5, "the monitor had often decided what no device adopted: {lagging}");
}

/// For every set of devices that can be read, and every set that the operator gives up.
#[test]
fn missing_devices_are_named_and_those_given_up_never_come_back() {
    for seed in 0..12 {
        let mut history = History::new(seed);
        for _ in 0..5 {
            history.turn();
        }
        history.decide_unheard();
        let whole = history.evidence();
        for mask in 0u16..1 << DEVICES {
            let is_read = |device: DeviceId| mask >> device.0 & 1 == 1;
            let (read, unread): (Vec<_>, Vec<_>) = whole.devices.keys().copied().partition(|device| is_read(*device));
            let heard: Vec<_> = whole.heard.iter().filter(|testimony| is_read(testimony.device)).cloned().collect();
            let evidence = Evidence { heard, ..whole.clone() };
            let Some(newest) = evidence.heard.iter().map(DeviceTestimony::epoch).max().filter(|newest| newest.0 > 0)
            else {
                assert_eq!(recover(&evidence), Err(RecoveryRefused::NothingAdopted));
                continue;
            };
            if !unread.is_empty() {
                let missing = RecoveryRefused::Missing { devices: unread.clone() };
                assert_eq!(recover(&evidence), Err(missing));
            }
            let evidence = Evidence { without: unread.iter().copied().collect(), ..evidence };
            let record = match recover(&evidence) {
                Ok(record) => record,
                Err(refused) => panic!("seed {seed}, {mask:b}: {refused}"),
            };
            assert_eq!((record.newest, &record.left_out), (newest, &unread));
            // Devices that were not read may turn up again, with an epoch that this record does not know.
            let (leased, end) = history.serve(&record, &[0, 1, 2, 3]);
            let read: BTreeSet<u16> = read.iter().map(|device| device.0).collect();
            assert!(leased.is_subset(&read), "seed {seed}, {mask:b}: {leased:?}, {end:?}");
            for member in &end.members {
                let stays_in = history.decided[&newest].member(member.device).map(|member| member.member_state);
                let came_in = member.member_state == MemberState::In && stays_in != Some(MemberState::In);
                assert!(!came_in || read.contains(&member.device.0), "seed {seed}, {mask:b}: {end:?}");
            }
        }
    }
}

/// A disk that lacks writes is never let in, as far as the epochs that its device was heard to have can tell.
#[test]
fn an_older_disk_is_refused() {
    let (mut refused, mut by_others) = (0, 0);
    for seed in 0..60 {
        let mut history = History::new(seed);
        for _ in 0..8 {
            history.turn();
        }
        let heard_last = RecordSummary::read(history.bench.disk()).expect("it is whole").lived_by;
        for (device, epochs) in history.adopted.clone() {
            for older in epochs.iter().rev().skip(1).copied().chain([Epoch(0)]) {
                let mut evidence = history.evidence();
                evidence.heard[usize::from(device.0)] = history.says(device, older);
                let alone = recover(&evidence);
                evidence.lived_by = heard_last.clone();
                let known = heard_last[&device];
                let outcome = recover(&evidence);
                if older < known {
                    let is_outdated = |outcome: &Result<RecoveredRecord, RecoveryRefused>| {
                        matches!(outcome, Err(RecoveryRefused::Outdated { device: named, found, .. })
                            if (*named, *found) == (device, older))
                    };
                    assert!(is_outdated(&outcome), "seed {seed}, {device} of {older}: {outcome:?}");
                    refused += 1;
                    // The other devices know that it was out since.
                    let newest = &history.decided[&history.newest_adopted()];
                    let member = newest.member(device).expect("it is there");
                    if member.member_state == MemberState::In && older < member.since {
                        assert!(is_outdated(&alone), "seed {seed}, {device} of {older}: {alone:?}");
                        by_others += 1;
                    }
                    evidence.without.insert(device);
                    let record = recover(&evidence).expect("the operator gives it up");
                    assert!(record.lived_by(device) > older);
                }
            }
        }
    }
    assert!(refused > 100 && by_others > 20, "{refused}, {by_others}");
}

#[test]
fn disks_of_two_histories_or_of_other_slots_are_refused() {
    let mut history = History::new(1);
    history.pass(12, &[0, 1, 2]);
    let good = history.evidence();
    let newest = history.newest_adopted();
    let mut other = good.clone();
    other.heard[1].membership.as_mut().expect("it has one").fence.also.insert(Generation(3));
    let (first, second) = (DeviceId(0), DeviceId(1));
    assert_eq!(recover(&other), Err(RecoveryRefused::Disagreement { epoch: newest, first, second }));
    let mut other = good.clone();
    other.heard[2].disk = DiskId(99);
    let (device, found, expected) = (DeviceId(2), DiskId(99), DiskId(2));
    assert_eq!(recover(&other), Err(RecoveryRefused::OtherDisk { device, found, expected }));
    let mut other = good.clone();
    other.heard.push(good.heard[3].clone());
    assert_eq!(recover(&other), Err(RecoveryRefused::Twice { device: DeviceId(3) }));
    let mut other = good.clone();
    for testimony in &mut other.heard {
        testimony.membership.as_mut().expect("all have one").epoch = Epoch(u32::MAX - EPOCH_MARGIN);
    }
    assert!(matches!(recover(&other), Err(RecoveryRefused::NoEpochs { .. } | RecoveryRefused::Disagreement { .. })));
    let mut other = good.clone();
    other.heard.iter_mut().for_each(|testimony| testimony.membership = None);
    assert_eq!(recover(&other), Err(RecoveryRefused::NothingAdopted));
    // A device that was removed is not named any more, and not waited for.
    let mut fewer = good.clone();
    fewer.devices.remove(&DeviceId(3));
    fewer.heard.pop();
    assert_eq!(recover(&fewer).map(|record| record.membership().members.len()), Ok(3));
}

/// An empty replacement disk that waits outside is let in as an empty one.
#[test]
fn an_empty_disk_that_waits_outside_is_let_in() {
    let mut history = History::new(2);
    history.pass(12, &[0, 1, 3]);
    assert_eq!(history.bench.member_state(2), MemberState::Out);
    let mut evidence = history.evidence();
    evidence.devices.insert(DeviceId(2), Some(DiskId(77)));
    evidence.heard[2] =
        DeviceTestimony { device: DeviceId(2), disk: DiskId(77), membership: None, level: Level::FIRST };
    let record = recover(&evidence).expect("all are heard");
    let mut bench = Bench::on(config(DEVICES), record.disk_image());
    bench.disks.insert(DeviceId(2), DiskId(77));
    bench.adopt(volume(1, RaidLevel::Raid5 { data: 3 }, &[0, 1, 2, 3]));
    for number in [0, 1, 3] {
        bench.epochs.insert(device(number), history.newest_adopted());
    }
    bench.pass_with(SECOND * 5, &nodes(&[0, 1, 2, 3], &[7]));
    assert!(matches!(bench.member_state(2), MemberState::Returning { .. }), "{:?}", bench.membership());
}

#[test]
fn a_record_is_up_to_date_if_no_device_lives_by_a_later_epoch() {
    let mut history = History::new(3);
    let older = history.bench.disk().to_vec();
    history.pass(12, &[0, 1, 3]);
    let heard = history.evidence().heard;
    let summary = |disk: &[u8]| RecordSummary::read(disk).expect("it is whole");
    assert!(summary(history.bench.disk()).is_up_to_date(&heard) && !summary(&older).is_up_to_date(&heard));
    assert!(!summary(&vec![0; older.len()]).is_up_to_date(&heard), "it is empty");
    assert_eq!(RecordSummary::read(&older[1..]), Err(MonitorError::Damaged));
    assert_eq!(RecordSummary::read(&vec![1; older.len()]), Err(MonitorError::Damaged));
    let made = recover(&history.evidence()).expect("all are heard");
    assert_eq!(&summary(&made.disk_image()).membership, made.membership());
}
