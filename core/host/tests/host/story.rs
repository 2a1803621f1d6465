//! Stories of a host: a table of calls, each with what follows from it: what the host sends to devices and lock servers, and what it
//! answers its users. Of equal messages, the first is shown.
//!
//! `w writes 0` is a write of block 0, which the story calls `w`; `s writes 0+4` is one of four blocks; `r reads 1` is a read. They may have a
//! patience: `endless`, or `minute`. `#1 write 0 4` says that devices 0 and 4 are sent writes of the first transaction of the story; `pre` is
//! a pre-write, and `pre+read` one that reads what it announces. `0 4 accept` has these devices execute what they were sent last and have not
//! answered; `all accept #2` is about one transaction only; `0 accepts =7` answers reads with sevens. `lock A XX` asks for a lock of two exclusive
//! extents, which the story calls `A`; `lock B 19S` for one of 19 shared ones.

use crate::stage::*;
use braid_ordering::{Atomicity, WriteMode};
pub use braid_stories::{Told, stories};
use braid_stories::{first_word, number_of, span_of, state_of, yes_or_no};
use braid_wire::Progress;
use braid_wire::locking::{LockExtent, LockMode, LockRefusal, LockTerm};
use std::collections::BTreeMap;

const OTHER: Generation = Generation(9);

pub struct Story {
    pub stage: Stage,
    ops: BTreeMap<OpId, String>,
    /// What each device was sent last of each transaction, and has not answered.
    pub open: Vec<(DeviceId, Command)>,
    /// The transactions and the locks, in the order of their first messages.
    transactions: Vec<(TransactionId, Stamp)>,
    locks: Vec<(LockServerId, u64)>,
    written: BTreeSet<TransactionId>,
    shows_heartbeats: bool,
    /// What each device was last asked to forget.
    forgets: BTreeMap<DeviceId, TransactionId>,
}

/// Tells a story, and returns it for another part.
pub fn tell(stage: Stage, parts: &[(&str, &str)]) -> Story {
    let (ops, open, transactions, locks) = (BTreeMap::new(), Vec::new(), Vec::new(), Vec::new());
    Story {
        stage,
        ops,
        open,
        transactions,
        locks,
        written: BTreeSet::new(),
        shows_heartbeats: false,
        forgets: BTreeMap::new(),
    }
    .told(parts)
}

/// A story of a host without a monitor, whose volume is ordered by timestamps.
pub fn raid5(parts: &[(&str, &str)]) -> Story {
    tell(Stage::raid5(Ordering::Timestamp), parts)
}

/// The same of a host that was told by the monitor that all devices are in.
pub fn monitored(parts: &[(&str, &str)]) -> Story {
    tell(Stage::with_monitor(Ordering::Timestamp), parts)
}

impl Told for Story {
    fn call(&mut self, text: &str) -> Vec<String> {
        let mut found = self.execute(text);
        found.extend(self.found());
        found
    }
}

impl Story {
    /// An operation that was requested without the story.
    pub fn name(&mut self, op: OpId, name: &str) {
        self.ops.insert(op, name.into());
    }

    /// The story's nth transaction.
    pub fn transaction(&self, number: usize) -> TransactionId {
        self.transactions[number - 1].0
    }

    pub fn stamp(&self, number: usize) -> Stamp {
        self.transactions[number - 1].1
    }

    fn execute(&mut self, text: &str) -> Vec<String> {
        let words: Vec<&str> = text.split(' ').collect();
        let stage = &mut self.stage;
        match words[..] {
            ["array", "with", servers, "servers", .., how] => {
                let acquisition = if how == "once" { Acquisition::Timeout } else { Acquisition::Ordered };
                *stage = Stage::with_lock_servers(Ordering::ServerLock, number_of(servers), acquisition);
            }
            ["array", ref kind @ .., ordering] => {
                let ordering = ordering.parse().expect("an ordering");
                *stage = match kind {
                    ["monitored"] => Stage::with_monitor(ordering),
                    ["monitored", "consistent"] => Stage::promising(Atomicity::Consistent, ordering),
                    _ => Stage::raid5(ordering),
                };
            }
            ["pass", span] => stage.pass(span_of(span)),
            ["lack", ref devices @ ..] => {
                stage.lack(&devices.iter().map(|number| number_of(number)).collect::<Vec<_>>())
            }
            ["enter", ref states @ ..] => stage.enter(&states.iter().map(|state| state_of(state)).collect::<Vec<_>>()),
            ["fence", ref which @ ..] => {
                let mut membership = stage.next_epoch(&[]);
                match which {
                    ["below", host] => membership.fence.below = Generation(number_of(host)),
                    hosts => membership.fence.also.extend(hosts.iter().map(|host| Generation(number_of(host)))),
                }
                stage.news(membership);
            }
            ["show", "heartbeats"] => self.shows_heartbeats = true,
            ["idle?"] => return yes_or_no(stage.host.is_idle()),
            ["count", counter] => {
                let counted = stage.host.counters().list().into_iter().find(|(name, _)| *name == counter);
                return vec![counted.expect("there is such a counter").1.to_string()];
            }
            ["grant", lock] => self.lock_says(lock, |lock_id| LockReply::Granted { lock_id, waited: false }),
            ["unlocked", lock] => self.lock_says(lock, |lock_id| LockReply::Unlocked { lock_id }),
            ["time", "out", lock] => {
                self.lock_says(lock, |lock_id| LockReply::Refused { lock_id, refusal: LockRefusal::Timeout })
            }
            ["locks?"] => return vec![stage.host.locks().len().to_string()],
            ["revoke", lock] => self.lock_says(lock, |lock_id| LockReply::Revoke { lock_ids: vec![lock_id] }),
            ["abandon", ref names @ ..] => {
                let ops = self.ops.iter().filter(|(_, name)| names.contains(&&name[..])).map(|(op, _)| *op).collect();
                let op = self.stage.ask(ArrayRequest::Abandon { ops });
                assert_eq!(self.stage.outcome(op), DONE);
            }
            ["serve", ref ops @ ..] => return self.serve(ops),
            [op, "disconnects"] => {
                let asked = stage.ask(ArrayRequest::Disconnect);
                self.ops.insert(asked, op.into());
            }
            [op, verb @ ("writes" | "reads"), range, ref patience @ ..] => {
                let (start, count) = range.split_once('+').unwrap_or((range, "1"));
                let (offset, length) =
                    (number_of::<u64>(start) * BLOCK_BYTES as u64, number_of::<usize>(count) * BLOCK_BYTES);
                let patience = match patience {
                    ["endless"] => Patience::Endless,
                    ["minute"] => Patience::For(Duration::from_secs(60)),
                    _ => Patience::Host,
                };
                let (volume, data) = (VOLUME, Bytes::from(vec![1; length]));
                let asked = stage.ask(match verb {
                    "writes" => VolumeRequest::Write { volume, offset, data, patience },
                    _ => VolumeRequest::Read { volume, offset, length, patience },
                });
                self.ops.insert(asked, op.into());
            }
            _ => self.devices_say(text, &words),
        }
        Vec::new()
    }

    fn lock_says(&mut self, lock: &str, reply: impl Fn(u64) -> LockReply) {
        let (server, lock_id) = self.locks[usize::from(lock.as_bytes()[0] - b'A')];
        self.stage.grant(server, 3, reply(lock_id));
    }

    fn devices_say(&mut self, text: &str, words: &[&str]) {
        let verb = words.iter().position(|word| *word != "all" && word.parse::<u16>().is_err()).expect("a verb");
        let (devices, words) = words.split_at(verb);
        let devices: Vec<u16> = match devices {
            ["all"] => (0..5).collect(),
            numbers => numbers.iter().map(|number| number_of(number)).collect(),
        };
        let after = |mark: char| words.iter().find_map(|word| word.strip_prefix(mark));
        let of = after('#').map(|number| self.transaction(number_of(number)));
        for device in devices.into_iter().map(DeviceId) {
            let is_meant =
                |(to, command): &mut (DeviceId, Command)| *to == device && of.is_none_or(|of| subject(command).0 == of);
            if words[0].starts_with("accept") {
                let accepted: Vec<_> = self.open.extract_if(.., is_meant).collect();
                self.stage.accept_all(&accepted, after('=').map_or(0, number_of));
                continue;
            }
            if let ["confirms" | "confirm", ..] = words {
                let commits = of.iter().map(|of| of.sequence).collect();
                self.stage.confirm(device, commits);
                continue;
            }
            if let ["forgets" | "forget"] = words {
                self.stage.answer(device, Reply::Forgotten { transaction: self.forgets[&device] });
                continue;
            }
            if let ["rejects", rejection] = words {
                let rejection = match *rejection {
                    "Fenced" => Rejection::Fenced,
                    "TooManyHosts" => Rejection::TooManyHosts,
                    other => panic!("not a rejection: {other}"),
                };
                self.stage.answer(device, Reply::Rejected { rejection });
                continue;
            }
            let sent = self.open.iter_mut().find_map(|sent| is_meant(sent).then(|| sent.1.clone()));
            let transaction = of.or(sent.as_ref().map(|sent| subject(sent).0)).expect("a transaction");
            let seen = |ahead| {
                let stamp = subject(sent.as_ref().expect("it was sent something")).1;
                Stamp { clock: stamp.clock.ahead(ahead), host: OTHER }
            };
            let reply = match words {
                ["refuse" | "refuses", refusal, ..] => {
                    let refusal = match *refusal {
                        "TooLate" => {
                            let ahead =
                                if let [.., "by", span] = words { span_of(span) } else { Duration::from_micros(1) };
                            Refusal::TooLate { seen: seen(ahead) }
                        }
                        "TooFarAhead" => Refusal::TooFarAhead { clock: self.clock_of(words) },
                        "NoPrewrite" => Refusal::NoPrewrite,
                        "LockTimeout" => Refusal::LockTimeout,
                        "Busy" => Refusal::Busy,
                        other => panic!("not a refusal: {other}"),
                    };
                    Reply::Refused { transaction, step: step_of(sent.as_ref()), refusal }
                }
                ["fails", failure, ..] => {
                    let failure = match *failure {
                        "NoSpace" => Failure::NoSpace,
                        "Disk" => Failure::Disk,
                        "Lost" => Failure::Lost { block: 0 },
                        other => panic!("not a failure: {other}"),
                    };
                    Reply::Failed { transaction, step: step_of(sent.as_ref()), failure }
                }
                ["vote" | "votes", vote, ..] => {
                    let vote = match *vote {
                        "Prepared" => Vote::Prepared,
                        "NeverPrepared" => Vote::NeverPrepared,
                        "Committed" => Vote::Committed,
                        "TooFarAhead" => Vote::TooFarAhead { clock: self.clock_of(words) },
                        other => panic!("not a vote: {other}"),
                    };
                    Reply::Vote { transaction, vote }
                }
                ["has", "written", ..] => Reply::Written { transaction, waited: false },
                ["says", "committed", ..] => Reply::Decided { transaction, outcome: Outcome::Commit },
                ["waits", ..] => Reply::Executing { transaction, progress: Progress::Waiting },
                ["lacks", "part", "of", from, ..] => {
                    let missing = vec![DeviceId(number_of(from))];
                    Reply::Executing { transaction, progress: Progress::Gathering { missing } }
                }
                _ => panic!("not a call: {text}"),
            };
            if !matches!(reply, Reply::Written { .. } | Reply::Executing { .. }) {
                self.open.retain_mut(|sent| !is_meant(sent));
            }
            self.stage.answer(device, reply);
        }
    }

    /// The clock of a device, which is right unless the call says otherwise.
    fn clock_of(&self, words: &[&str]) -> Clock {
        if words.contains(&"of") { Clock(0) } else { self.stage.now.clock }
    }

    /// Plays devices that accept everything, until these operations are answered. Nothing else is shown.
    fn serve(&mut self, ops: &[&str]) -> Vec<String> {
        let mut answers = BTreeMap::new();
        for _ in 0..80 {
            for found in self.found() {
                let op = ops.iter().position(|op| found.split(' ').next() == Some(*op));
                answers.extend(op.map(|op| (op, found)));
            }
            if answers.len() == ops.len() {
                return answers.into_values().collect();
            }
            let mut open = std::mem::take(&mut self.open);
            open.retain(|sent| !is_resolve(sent));
            self.stage.accept_all(&open, 0);
            if open.is_empty() {
                self.stage.pass(Duration::from_millis(250));
            }
        }
        panic!("not answered: {ops:?}, but {answers:?}");
    }

    /// What has come from the host since.
    fn found(&mut self) -> Vec<String> {
        let mut groups: Vec<(String, BTreeSet<u16>)> = Vec::new();
        let mut writes: BTreeMap<TransactionId, (BTreeSet<u16>, BTreeSet<u16>)> = BTreeMap::new();
        for (device, Request { command, settled, commits, .. }) in std::mem::take(&mut self.stage.sent) {
            let known = |commit: &u64| self.transactions.iter().position(|(known, _)| known.sequence == *commit);
            let with = match self.shows_heartbeats {
                false if command == Command::Heartbeat => continue,
                false => String::new(),
                true => commits.iter().map(|it| format!(" with #{}", known(it).expect("it is known") + 1)).collect(),
            };
            let mut shown = format!("{}{with}", kind_of(&command));
            if let Command::Forget { transaction } = command {
                self.forgets.insert(device, transaction);
                assert!(
                    transaction.host != HOST || settled > transaction.sequence,
                    "the mark is above all its transactions"
                );
            }
            if has_subject(&command) {
                let named @ (transaction, _) = subject(&command);
                let known = self.transactions.iter().position(|known| *known == named);
                let number = known.unwrap_or(self.transactions.len());
                self.transactions.extend(known.is_none().then_some(named));
                shown = format!("#{} {shown}", number + 1);
                if let Command::Write { participants, .. } = &command
                    && !self.written.contains(&transaction)
                {
                    let (to, all) = writes.entry(transaction).or_default();
                    to.insert(device.0);
                    all.extend(participants.iter().map(|device| device.0));
                }
                self.open.retain(|(to, open)| (*to, subject(open).0) != (device, transaction));
                self.open.push((device, command));
            }
            match groups.iter_mut().find(|(kind, _)| *kind == shown) {
                Some((_, devices)) => {
                    devices.insert(device.0);
                }
                None => groups.push((shown, BTreeSet::from([device.0]))),
            }
        }
        for (transaction, (to, participants)) in writes {
            assert_eq!(to, participants, "the participants are those that are sent a write");
            self.written.insert(transaction);
        }
        let numbers = |devices: &BTreeSet<u16>| devices.iter().map(|number| format!(" {number}")).collect::<String>();
        let mut found: Vec<String> =
            groups.iter().map(|(kind, devices)| format!("{kind}{}", numbers(devices))).collect();
        for (server, command) in self.stage.lock_commands() {
            let shown = self.lock_shown(server, &command);
            let at = if server == SERVER { String::new() } else { format!(" at {}", server.0) };
            found.extend((!shown.is_empty()).then(|| format!("{shown}{at}")));
        }
        for (op, outcome) in std::mem::take(&mut self.stage.replies) {
            found.push(format!("{} {}", self.ops[&op], outcome_shown(&outcome)));
        }
        let mut seen = BTreeSet::new();
        found.retain(|line| seen.insert(line.clone()));
        found
    }

    fn lock_shown(&mut self, server: LockServerId, command: &LockCommand) -> String {
        let mut name = |lock_id: u64| {
            let known = self.locks.iter().position(|known| *known == (server, lock_id));
            let number = known.unwrap_or(self.locks.len());
            self.locks.extend(known.is_none().then_some((server, lock_id)));
            char::from(b'A' + number as u8)
        };
        match command {
            LockCommand::Heartbeat { .. } => String::new(),
            LockCommand::Lock { lock_id, extents, term, .. } => {
                let mode = |extent: &LockExtent| if extent.mode == LockMode::Exclusive { 'X' } else { 'S' };
                let mut modes = extents.iter().map(mode).collect::<String>();
                if modes.len() > 4 && modes.chars().all(|mode| mode == 'S') {
                    modes = format!("{}S", modes.len());
                }
                let term = match term {
                    LockTerm::Transaction { impatient: true } => " impatient",
                    LockTerm::Transaction { impatient: false } => "",
                    LockTerm::Cached => " cached",
                    LockTerm::Lease => " leased",
                    LockTerm::Held { .. } | LockTerm::HeldRange { .. } => " held",
                };
                format!("lock {} {modes}{term}", name(*lock_id))
            }
            LockCommand::Unlock { lock_id } => format!("unlock {}", name(*lock_id)),
            LockCommand::Yield { lock_ids } => {
                format!("yield {}", lock_ids.iter().map(|id| name(*id)).collect::<String>())
            }
            other => panic!("not shown in stories: {other:?}"),
        }
    }
}

fn step_of(command: Option<&Command>) -> Step {
    match command {
        Some(Command::Read { .. }) => Step::Read,
        Some(Command::Prewrite { .. }) => Step::Prewrite,
        Some(Command::Execute { .. }) => Step::Execute,
        Some(Command::Write { .. }) => Step::Write,
        other => panic!("it is not refused: {other:?}"),
    }
}

fn has_subject(command: &Command) -> bool {
    !matches!(
        command,
        Command::Manage { .. }
            | Command::Objects { .. }
            | Command::Await { .. }
            | Command::Forget { .. }
            | Command::Heartbeat
    )
}

fn kind_of(command: &Command) -> String {
    let kind = match command {
        Command::Read { .. } => "read",
        Command::Prewrite { reads, .. } if reads.is_empty() => "pre",
        Command::Prewrite { prewrites, reads, .. } if reads == prewrites => "pre+read",
        Command::Prewrite { .. } => "pre+other read",
        Command::Execute { .. } => "execute",
        Command::Write { mode: WriteMode::Intent, .. } => "write",
        Command::Write { .. } => "write at once",
        Command::Decide { outcome: Outcome::Commit, .. } => "commit",
        Command::Decide { outcome: Outcome::Abort, .. } => "abort",
        Command::Decide { outcome: Outcome::Interrupted, .. } => "interrupt",
        Command::Retract { .. } => "retract",
        Command::Resolve { .. } => "resolve",
        Command::Forget { .. } => "forget",
        Command::Manage { task, .. } => return first_word(task),
        Command::Heartbeat => "heartbeat",
        other => return first_word(other),
    };
    kind.into()
}

fn outcome_shown(outcome: &HostOutcome) -> String {
    let named = |devices: &[DeviceId]| devices.iter().map(|device| format!(" {}", device.0)).collect::<String>();
    match outcome {
        Ok(HostSuccess::Done) => "done".into(),
        Ok(HostSuccess::Data(data)) => {
            let bytes: BTreeSet<u8> = data.iter().flat_map(|bytes| bytes.iter().copied()).collect();
            format!("has {}", bytes.iter().map(u8::to_string).collect::<Vec<_>>().join(" "))
        }
        Ok(other) => first_word(other),
        Err(HostError::Unavailable { devices }) => format!("Unavailable{}", named(devices)),
        Err(HostError::TimedOut { devices, waited }) => format!("TimedOut{} in {waited:?}", named(devices)),
        Err(HostError::LockServerSilent { server, waited }) => format!("LockServerSilent {} in {waited:?}", server.0),
        Err(HostError::Device { device, failure }) => format!("{failure:?} {}", device.0),
        Err(other) => first_word(other),
    }
}
