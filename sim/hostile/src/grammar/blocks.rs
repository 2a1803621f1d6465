//! Messages between hosts and devices, and between devices.

use super::Grammar;
use braid_base::{BlockRange, Generation};
use braid_blocks::{Base, Column, ParityRows, Piece, Sending, Sent, Want};
use braid_wire::{
    Answer, Command, Failure, Inspection, Managed, ObjectDescription, Orphan, Outcome, Partial, Progress, Refusal,
    Rejection, Reply, Request, Step, Suspect, SuspectBlocks, Task, Vote,
};

impl Grammar {
    pub(super) fn request(&mut self, host: Generation) -> Request {
        let settled = if self.choices.chance(10) { self.number(120) } else { 0 };
        let (over, commits) = (self.sequences(), self.sequences());
        let command = self.command();
        // A transaction belongs to the host that sends it, as a rule.
        let host = match &command {
            Command::Read { transaction, .. }
            | Command::Prewrite { transaction, .. }
            | Command::Write { transaction, .. }
            | Command::Execute { transaction, .. }
            | Command::Retract { transaction, .. }
                if !self.choices.chance(5) =>
            {
                transaction.host
            }
            _ => host,
        };
        Request { host, epoch: self.epoch(), settled, over, commits, command }
    }

    fn command(&mut self) -> Command {
        let known = self.transaction();
        let (transaction, stamp, object, ordering) = (known.id, known.stamp, known.object, known.ordering);
        let ranges = if self.choices.chance(15) { self.ranges() } else { known.ranges.clone() };
        let (participants, linkage) = (self.devices(), self.linkage());
        match self.choices.below(20) {
            0 => Command::Heartbeat,
            1 | 2 => {
                let want = self.choices.pick(&[Want::Data, Want::Data, Want::Allocation, Want::Linkage, Want::Salvage]);
                Command::Read { transaction, stamp, object, ordering, extents: ranges, want }
            }
            3 | 4 => {
                let reads = if self.choices.chance(40) { self.ranges() } else { Vec::new() };
                Command::Prewrite { transaction, stamp, object, ordering, prewrites: ranges, reads }
            }
            5..=8 => {
                let (mode, pieces) = (self.mode(), self.pieces(&ranges));
                Command::Write { transaction, stamp, object, ordering, participants, linkage, mode, pieces }
            }
            9 | 10 => {
                let column = Box::new(self.column(&ranges));
                Command::Execute { transaction, stamp, object, ordering, participants, linkage, column }
            }
            11 | 12 => {
                let outcome = self.choices.pick(&[Outcome::Commit, Outcome::Abort, Outcome::Interrupted]);
                Command::Decide { transaction, stamp, outcome }
            }
            13 => Command::Retract { transaction, stamp },
            14 => Command::Resolve { transaction, stamp },
            15 => Command::Forget { transaction },
            16 | 17 => Command::Manage { ticket: self.number(5_000), task: self.task() },
            18 => Command::Objects {
                sequence: self.number(200),
                abandoned: self.intervals(),
                request: self.object_request(),
            },
            _ => {
                let (ticket, name) = (self.number(500), self.attribute());
                let (seen, patience) = (self.bytes(9), self.number(5_000) as u32);
                Command::Await { ticket, object: self.object_number(), name, seen, patience }
            }
        }
    }

    fn task(&mut self) -> Task {
        let object = self.object();
        match self.choices.below(12) {
            0 | 1 => {
                let (first, blocks) = (self.number(4).saturating_mul(16), self.number(64));
                let absent = if self.choices.chance(30) { self.number(64) } else { 0 };
                let (ordering, atomicity, redundant) = (self.ordering(), self.atomicity(), self.choices.chance(70));
                Task::CreateObject { object, first, blocks, ordering, redundant, atomicity, absent }
            }
            2 => Task::SetOrdering { object, ordering: self.ordering_of(object) },
            3 => {
                let range = BlockRange { start: self.number(3).saturating_mul(16), count: self.number(128) };
                let absent = if self.choices.chance(40) { self.range() } else { BlockRange::new(0, 0) };
                Task::ResizeObject { object, range, absent }
            }
            4 if self.choices.chance(15) => Task::RemoveObject { object },
            4 | 5 => Task::ListObjects,
            6 => Task::Flush,
            7 => Task::ListMissed { device: self.device(), object, from: self.number(99) },
            8 => Task::Inspect,
            9 => Task::ListAbsent { object, from: self.number(99) },
            _ => Task::ListAllocated { object, range: self.range() },
        }
    }

    fn column(&mut self, ranges: &[BlockRange]) -> Column {
        let mut column = Column::default();
        for range in ranges {
            match self.choices.below(4) {
                0 | 1 => column.pieces.extend(self.pieces(&[*range])),
                2 => {
                    let base = self.choices.pick(&[Base::Old, Base::Zeros]);
                    let own = if self.choices.chance(60) { self.pieces(&[*range]) } else { Vec::new() };
                    column.parity.push(ParityRows { blocks: *range, base, from: self.devices(), own });
                }
                _ => {
                    let what = self.choices.pick(&[Sent::Old, Sent::New, Sent::Change]);
                    let (to, at) = (self.device(), self.number(30));
                    column.sends.push(Sending { blocks: *range, to, at, what });
                    if what != Sent::Old {
                        column.pieces.extend(self.pieces(&[*range]));
                    }
                }
            }
        }
        column
    }

    pub(super) fn partial(&mut self) -> Partial {
        let known = self.transaction();
        let ranges = if self.choices.chance(30) { self.ranges() } else { known.ranges.clone() };
        Partial { epoch: self.epoch(), transaction: known.id, object: known.object, pieces: self.pieces(&ranges) }
    }

    pub(super) fn intervals(&mut self) -> Vec<(u64, u64)> {
        if !self.choices.chance(20) {
            return Vec::new();
        }
        let mut intervals: Vec<(u64, u64)> =
            (0..self.choices.below(3)).map(|_| (self.number(90), self.number(90))).collect();
        if self.choices.chance(80) {
            intervals.retain(|(first, end)| first < end);
            intervals.sort_unstable();
            intervals.dedup_by(|next, before| next.0 <= before.1);
        }
        intervals
    }

    pub(super) fn answer(&mut self) -> Answer {
        Answer { epoch: self.epoch(), confirmed: self.sequences(), reply: self.reply() }
    }

    fn reply(&mut self) -> Reply {
        let known = self.transaction();
        let (transaction, waited) = (known.id, self.choices.chance(20));
        let step = self.choices.pick(&[Step::Read, Step::Prewrite, Step::Write, Step::Execute]);
        match self.choices.below(18) {
            0 => Reply::Heartbeat { orphans: self.orphans(), suspects: self.suspects(), busy: self.choices.chance(30) },
            1..=3 => {
                let ranges = if self.choices.chance(10) { self.ranges() } else { known.ranges.clone() };
                Reply::Data { transaction, waited, pieces: self.pieces(&ranges) }
            }
            4 => Reply::Accepted { transaction, waited },
            5..=7 => Reply::Written { transaction, waited },
            8 => {
                let progress = if self.choices.chance(50) {
                    Progress::Waiting
                } else {
                    Progress::Gathering { missing: self.devices() }
                };
                Reply::Executing { transaction, progress }
            }
            9 => Reply::Refused { transaction, step, refusal: self.refusal() },
            10 => Reply::Failed { transaction, step, failure: self.failure() },
            11 => Reply::Blocked { transaction },
            12 => {
                let outcome = self.choices.pick(&[Outcome::Commit, Outcome::Abort, Outcome::Interrupted]);
                Reply::Decided { transaction, outcome }
            }
            13 => {
                let clock = self.clock();
                let votes = [Vote::Prepared, Vote::Committed, Vote::NeverPrepared, Vote::TooFarAhead { clock }];
                Reply::Vote { transaction, vote: self.choices.pick(&votes) }
            }
            14 => Reply::Forgotten { transaction },
            15 => {
                let ticket = self.ticket();
                let result = if self.choices.chance(30) { Err(self.failure()) } else { Ok(self.managed()) };
                Reply::Managed { ticket, result }
            }
            16 => Reply::Rejected { rejection: self.rejection() },
            _ if self.choices.chance(50) => Reply::Objects { sequence: self.ticket(), answer: self.object_answer() },
            _ => Reply::Changed { ticket: self.ticket(), value: Ok(self.bytes(9)) },
        }
    }

    fn orphans(&mut self) -> Vec<Orphan> {
        (0..self.choices.below(3))
            .map(|_| {
                let known = self.transaction();
                Orphan { transaction: known.id, stamp: known.stamp, participants: self.devices() }
            })
            .collect()
    }

    fn suspects(&mut self) -> Vec<Suspect> {
        (0..self.choices.below(3))
            .map(|_| {
                let (transaction, object) = (self.transaction_id(), self.object());
                let blocks = match self.choices.chance(50) {
                    true => SuspectBlocks::Written(self.linkage()),
                    false => SuspectBlocks::Announced(self.range()),
                };
                Suspect { transaction, object, blocks }
            })
            .collect()
    }

    fn refusal(&mut self) -> Refusal {
        match self.choices.below(6) {
            0 | 1 => Refusal::TooLate { seen: self.stamp() },
            2 => Refusal::TooFarAhead { clock: self.clock() },
            3 => Refusal::NoPrewrite,
            4 => self.choices.pick(&[Refusal::Busy, Refusal::LockTimeout]),
            _ => Refusal::Suspect,
        }
    }

    fn failure(&mut self) -> Failure {
        let block = self.number(60);
        self.choices.pick(&[
            Failure::NoSuchObject,
            Failure::ObjectExists,
            Failure::OutOfRange,
            Failure::NoSpace,
            Failure::Lost { block },
            Failure::Disk,
            Failure::InUse,
            Failure::Busy,
            Failure::Absent,
            Failure::WrongOrdering,
            Failure::Malformed,
        ])
    }

    pub(super) fn rejection(&mut self) -> Rejection {
        let current = self.epoch();
        self.choices.pick(&[
            Rejection::WrongEpoch { current },
            Rejection::TooManyHosts,
            Rejection::WrongEpoch { current },
            Rejection::Fenced,
        ])
    }

    fn managed(&mut self) -> Managed {
        let next = if self.choices.chance(30) { Some(self.number(90)) } else { None };
        match self.choices.below(5) {
            0 => Managed::Done,
            1 => Managed::Objects((0..self.choices.below(4)).map(|_| self.description()).collect()),
            2 => Managed::Inspected(Inspection { counters: vec![("epoch".to_string(), self.number(9))] }),
            3 => Managed::Missed { extents: self.ranges(), next },
            _ => Managed::Extents { extents: self.ranges(), next },
        }
    }

    fn description(&mut self) -> ObjectDescription {
        let object = self.object();
        ObjectDescription {
            object,
            first: self.number(3).saturating_mul(16),
            blocks: self.number(99),
            ordering: self.ordering_of(object),
            redundant: self.choices.chance(80),
            atomicity: self.atomicity(),
        }
    }

    /// An answer that is wrong in one respect: what a device that lies makes of its true answer.
    pub fn lie(&mut self, truth: Answer) -> Answer {
        let Answer { epoch, confirmed, reply } = truth;
        match self.choices.below(10) {
            0 => return self.answer(),
            1 => return Answer { epoch: self.epoch(), confirmed, reply },
            2 => return Answer { epoch, confirmed: self.sequences(), reply },
            _ => {}
        }
        let reply = match reply {
            Reply::Data { transaction, waited, pieces } => {
                let lied = |grammar: &mut Grammar, piece: Piece| match grammar.choices.below(4) {
                    0 => piece,
                    1 => Piece { range: grammar.range(), ..piece },
                    _ => Piece {
                        content: grammar.content(BlockRange { count: piece.range.count.min(64), ..piece.range }),
                        ..piece
                    },
                };
                Reply::Data { transaction, waited, pieces: pieces.into_iter().map(|piece| lied(self, piece)).collect() }
            }
            Reply::Heartbeat { .. } => {
                Reply::Heartbeat { orphans: self.orphans(), suspects: self.suspects(), busy: self.choices.chance(50) }
            }
            // It says that it has written, and has not; or the reverse.
            Reply::Refused { transaction, .. } | Reply::Failed { transaction, .. } => {
                Reply::Written { transaction, waited: false }
            }
            Reply::Written { transaction, .. } if self.choices.chance(30) => {
                Reply::Refused { transaction, step: Step::Write, refusal: self.refusal() }
            }
            Reply::Vote { transaction, .. } => {
                let clock = self.clock();
                let vote = self.choices.pick(&[
                    Vote::Prepared,
                    Vote::Committed,
                    Vote::NeverPrepared,
                    Vote::TooFarAhead { clock },
                ]);
                Reply::Vote { transaction, vote }
            }
            Reply::Managed { ticket, .. } => Reply::Managed { ticket, result: Ok(self.managed()) },
            Reply::Objects { sequence, .. } => Reply::Objects { sequence, answer: self.object_answer() },
            other if self.choices.chance(50) => other,
            _ => self.reply(),
        };
        Answer { epoch, confirmed, reply }
    }
}
