//! The history of a volume: the operations that clients requested, their times, and the values that reads returned.
//!
//! Storage is modelled as an array of *cells* of 16 bytes. A written cell contains the [`Tag`] of its write and its own number, so
//! that every cell that is read identifies its write and proves that it is in the right place. Zeros are cells that were never
//! written, or were zeroed. Any other content is a [`CorruptCell`] and a failure by itself.

use crate::prelude::*;

/// How many attempts of a hostwrite that never completed may be seen in part. More are possible, but each needs a fault of its own.
const ATTEMPTS_SEEN: usize = 5;
/// The same for interrupted attempts of one that completed.
const ATTEMPTS_SEEN_BEFORE_THE_LAST: usize = 3;

/// Bytes of a cell. The bounds of reads and writes are multiples of it.
pub const CELL_BYTES: usize = 16;
/// Cells of a block; devices order operations by blocks.
pub const CELLS_PER_BLOCK: u64 = (BLOCK_BYTES / CELL_BYTES) as u64;

/// Identifies the write that a value comes from.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Tag(pub u64);

impl Tag {
    /// Zeros, whichever operation wrote them.
    pub const ZEROS: Tag = Tag(0);

    /// The content that a write with this tag puts into `cells`.
    pub fn fill(self, cells: Cells) -> Bytes {
        let mut bytes = Vec::with_capacity(cells.count() as usize * CELL_BYTES);
        for cell in cells.start..cells.end {
            let words = if self == Tag::ZEROS { [0, 0] } else { [self.0, cell] };
            words.iter().for_each(|word| bytes.extend_from_slice(&word.to_le_bytes()));
        }
        bytes.into()
    }

    /// Parses the content read from cell `start` on into runs of cells of one write each.
    pub fn parse(start: u64, bytes: &[u8]) -> Result<Vec<Run>, CorruptCell> {
        assert!(bytes.len().is_multiple_of(CELL_BYTES), "reads cover whole cells");
        let mut runs: Vec<Run> = Vec::new();
        for (cell, content) in (start..).zip(bytes.chunks_exact(CELL_BYTES)) {
            let word = |at: usize| u64::from_le_bytes(content[at..at + 8].try_into().expect("eight bytes"));
            let tag = match (word(0), word(8)) {
                (0, 0) => Tag::ZEROS,
                (tag, number) if tag != 0 && number == cell => Tag(tag),
                (tag, number) => return Err(CorruptCell { cell, tag, number }),
            };
            match runs.last_mut() {
                Some(run) if run.tag == tag => run.cells.end += 1,
                _ => runs.push(Run { cells: Cells { start: cell, end: cell + 1 }, tag }),
            }
        }
        Ok(runs)
    }
}

impl fmt::Display for Tag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if *self == Tag::ZEROS { f.write_str("zeros") } else { write!(f, "#{}", self.0) }
    }
}

/// A cell with content that no write can have produced.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("cell {cell} holds content that was never written there: words {tag:#x}, {number:#x}")]
pub struct CorruptCell {
    pub cell: u64,
    /// The first word of the cell.
    pub tag: u64,
    /// The second word, which should be the number of the cell.
    pub number: u64,
}

/// The cells from `start` up to `end`, exclusive.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Cells {
    pub start: u64,
    pub end: u64,
}

impl Cells {
    /// The cells that cover a byte range.
    pub fn of_bytes(offset: u64, length: u64) -> Cells {
        let cell = CELL_BYTES as u64;
        assert!(offset.is_multiple_of(cell) && length.is_multiple_of(cell), "operations cover whole cells");
        Cells { start: offset / cell, end: (offset + length) / cell }
    }

    pub fn count(self) -> u64 {
        self.end - self.start
    }

    pub fn overlap(self, other: Cells) -> bool {
        self.start < other.end && other.start < self.end
    }
}

/// Consecutive cells with values of one write.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Run {
    pub cells: Cells,
    pub tag: Tag,
}

impl Run {
    /// The run, cut at block boundaries.
    fn blocks(self) -> impl Iterator<Item = Run> {
        let Run { cells, tag } = self;
        let blocks = cells.start / CELLS_PER_BLOCK..cells.end.div_ceil(CELLS_PER_BLOCK);
        blocks.map(move |block| {
            let start = cells.start.max(block * CELLS_PER_BLOCK);
            let end = cells.end.min((block + 1) * CELLS_PER_BLOCK);
            Run { cells: Cells { start, end }, tag }
        })
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Action {
    /// The operation returned its runs.
    Read,
    /// The operation wrote its runs.
    Write,
}

/// A point of the history: its place in the order of events, and its time.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Moment {
    /// Counts all invocations and completions.
    pub number: u64,
    /// For reports only.
    pub time: Time,
}

impl Moment {
    pub(crate) fn seconds(self) -> f64 {
        self.time.0 as f64 / 1e9
    }
}

/// The moments of a history.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Moments(u64);

impl Moments {
    /// The next moment.
    pub fn next(&mut self, time: Time) -> Moment {
        self.0 += 1;
        Moment { number: self.0, time }
    }
}

/// How a request ended, as far as its client knows. `A` is an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome<A> {
    /// The outcome is unknown: the request has happened, will happen at some time, or never will.
    Unknown,
    /// The outcome is unknown, but the request does not happen after this moment: its host was fenced, or has disconnected
    /// gracefully.
    UnknownUntil(Moment),
    /// The request has not happened and never will.
    Never,
    /// The request happened between its invocation and this moment, or was refused because of the state it found.
    Answered(Moment, A),
}

impl<A> Outcome<A> {
    pub fn answer(&self) -> Option<&A> {
        if let Outcome::Answered(_, answer) = self { Some(answer) } else { None }
    }

    /// When it was answered.
    pub fn answered(&self) -> Option<Moment> {
        if let Outcome::Answered(at, _) = self { Some(*at) } else { None }
    }

    /// If the outcome is unknown, the request does not happen from now on.
    pub(crate) fn is_over(&mut self, now: Moment) {
        if matches!(self, Outcome::Unknown) {
            *self = Outcome::UnknownUntil(now);
        }
    }
}

/// A client issues one operation at a time.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Client {
    /// The host that it uses.
    pub host: u32,
    /// Its number among the clients of the host.
    pub number: usize,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Operation {
    pub client: Client,
    pub action: Action,
    /// The values written or read; for a read, empty until it completes.
    pub runs: Vec<Run>,
    pub invoked: Moment,
    /// When the operation succeeded. Until then it may or may not have happened.
    pub completed: Option<Moment>,
    /// When the host learned that its client had disconnected. From then on the operation happens before any later operation of this
    /// host on the same blocks, or never.
    pub abandoned: Option<Moment>,
}

/// Identifies an operation in its history.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct OperationId(usize);

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct History {
    operations: Vec<Operation>,
    moments: Moments,
    /// When hosts were known to be fenced.
    fences: BTreeMap<u32, Moment>,
}

impl History {
    /// Records that a client requests a write of `tag` to `cells`.
    pub fn write(&mut self, client: Client, now: Time, cells: Cells, tag: Tag) -> OperationId {
        self.invoke(client, now, Action::Write, vec![Run { cells, tag }])
    }

    /// Records that a client requests a read.
    pub fn read(&mut self, client: Client, now: Time) -> OperationId {
        self.invoke(client, now, Action::Read, Vec::new())
    }

    /// Records that a write succeeded.
    pub fn wrote(&mut self, id: OperationId, now: Time) {
        let completed = self.moments.next(now);
        self.operations[id.0].completed = Some(completed);
    }

    /// Records that the client of an operation has disconnected and that its host knows it.
    pub fn abandon(&mut self, id: OperationId, now: Time) {
        let abandoned = self.moments.next(now);
        self.operations[id.0].abandoned = Some(abandoned);
    }

    pub fn operation(&self, id: OperationId) -> &Operation {
        &self.operations[id.0]
    }

    /// Records that a read succeeded with these values. An operation that fails is not completed: its outcome is unknown.
    pub fn saw(&mut self, id: OperationId, now: Time, runs: Vec<Run>) {
        self.operations[id.0].runs = runs;
        self.wrote(id, now);
    }

    /// Records that a host is known to be fenced: each of its writes has happened by now, or never will.
    pub fn fenced(&mut self, host: u32, now: Time) {
        let moment = self.moments.next(now);
        self.fences.entry(host).or_insert(moment);
    }

    /// The history for an array whose fences are final: a write of a fenced host with an unknown outcome, whose value was read, had
    /// happened when the fence became known. Zeros do not identify a write, so writes of zeros are left as they are.
    pub fn with_fences(&self) -> History {
        let seen = self.operations.iter().filter(|op| op.action == Action::Read && op.completed.is_some());
        let seen: BTreeSet<Tag> = seen.flat_map(|op| op.runs.iter().map(|run| run.tag)).collect();
        let mut history = self.clone();
        for operation in &mut history.operations {
            let fenced = self.fences.get(&operation.client.host).filter(|moment| **moment > operation.invoked);
            let tag = operation.runs.first().map_or(Tag::ZEROS, |run| run.tag);
            if operation.action == Action::Write && tag != Tag::ZEROS && seen.contains(&tag) {
                operation.completed = operation.completed.or(fenced.copied());
            }
        }
        history
    }

    /// The history of the operations on these cells alone: the cells of one volume among several.
    pub fn within(&self, cells: Cells) -> History {
        let is_there = |op: &&Operation| op.runs.iter().any(|run| run.cells.overlap(cells));
        History { operations: self.operations.iter().filter(is_there).cloned().collect(), ..self.clone() }
    }

    /// All operations, in the order of their invocations.
    pub fn operations(&self) -> &[Operation] {
        &self.operations
    }

    /// The history for volumes on which an interrupted hostwrite may be visible in part. For each hostwrite that did not complete,
    /// the part on one device may have been written independently of the rest, once, at any later time, or never. The same holds for
    /// a hostwrite of which earlier attempts may have been interrupted (`interrupted` tells how many, for its invocation and its
    /// completion), in addition to what its last attempt has done. One that was tried again and never completed may have had many
    /// interrupted attempts. `device` is the device of a block.
    pub fn in_parts(
        &self,
        interrupted: impl Fn(Time, Option<Time>) -> usize,
        device: impl Fn(u64) -> usize,
    ) -> History {
        let seen = self.operations.iter().filter(|operation| operation.action == Action::Read);
        let mut seen: Vec<Run> = seen.flat_map(|operation| operation.runs.iter().copied()).collect();
        seen.sort_unstable_by_key(|run| run.tag);
        // A part that no read returned can be left out.
        let is_seen = |part: &Run| {
            let first = seen.partition_point(|run| run.tag < part.tag);
            seen[first..].iter().take_while(|run| run.tag == part.tag).any(|run| run.cells.overlap(part.cells))
        };
        let mut history = History { operations: Vec::new(), ..self.clone() };
        for operation in &self.operations {
            if operation.action == Action::Read || operation.completed.is_some() {
                history.operations.push(operation.clone());
            }
            let completed = operation.completed.map(|completed| completed.time);
            let attempts = match (operation.completed, interrupted(operation.invoked.time, completed)) {
                (Some(_), attempts) => attempts.min(ATTEMPTS_SEEN_BEFORE_THE_LAST),
                (None, 0) => 1,
                (None, _) => ATTEMPTS_SEEN,
            };
            if operation.action == Action::Read || attempts == 0 {
                continue;
            }
            let mut parts: BTreeMap<usize, Vec<Run>> = BTreeMap::new();
            for run in operation.runs.iter().flat_map(|run| run.blocks()) {
                let part = parts.entry(device(run.cells.start / CELLS_PER_BLOCK)).or_default();
                match part.last_mut() {
                    Some(last) if last.cells.end == run.cells.start => last.cells.end = run.cells.end,
                    _ => part.push(run),
                }
            }
            for runs in parts.into_values().filter(|runs| runs.iter().any(is_seen)) {
                let part = Operation { runs, completed: None, ..operation.clone() };
                history.operations.extend(std::iter::repeat_n(part, attempts));
            }
        }
        history
    }

    fn invoke(&mut self, client: Client, now: Time, action: Action, runs: Vec<Run>) -> OperationId {
        let invoked = self.moments.next(now);
        self.operations.push(Operation { client, action, runs, invoked, completed: None, abandoned: None });
        OperationId(self.operations.len() - 1)
    }
}

/// The beginning of a line about an operation: its client, and when it was invoked.
pub(crate) fn write_invocation(f: &mut fmt::Formatter<'_>, client: Client, invoked: Moment) -> fmt::Result {
    let client = format!("h{}.{}", client.host, client.number);
    write!(f, "{client:<8} {:>13.6} to ", invoked.seconds())
}

impl fmt::Display for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_invocation(f, self.client, self.invoked)?;
        match self.completed {
            Some(completed) => write!(f, "{:>13.6}", completed.seconds())?,
            None => write!(f, "{:>13}", "unknown")?,
        }
        if let Some(abandoned) = self.abandoned {
            write!(f, ", abandoned at {:.6}", abandoned.seconds())?;
        }
        f.write_str(match self.action {
            Action::Read => "  saw  ",
            Action::Write => "  wrote",
        })?;
        for Run { cells, tag } in &self.runs {
            write!(f, " {tag} in {}..{}", cells.start, cells.end)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interrupted_write_that_was_read_is_split_by_block() {
        let mut history = History::default();
        let client = |number| Client { host: 1, number };
        let block = CELLS_PER_BLOCK;
        let cells = |start: u64, end: u64| Cells { start: start * block, end: end * block };
        let quick = history.write(client(0), Time(0), cells(0, 4), Tag(1));
        history.wrote(quick, Time(5));
        let slow = history.write(client(0), Time(10), cells(0, 4), Tag(2));
        history.wrote(slow, Time(190));
        history.write(client(1), Time(10), cells(0, 5), Tag(3));
        history.write(client(2), Time(10), cells(0, 4), Tag(4));
        history.write(client(2), Time(11), cells(3, 4), Tag(5));
        let read = history.read(client(3), Time(20));
        let run = |start, end, tag| Run { cells: cells(start, end), tag: Tag(tag) };
        history.saw(read, Time(30), vec![run(0, 1, 1), run(1, 2, 2), run(2, 3, 3), run(3, 4, 5)]);
        // Blocks lie on two devices alternately.
        let interrupted = |begun: Time, done: Option<Time>| match done {
            Some(done) => (done.since(begun).as_nanos() / 90) as usize,
            None => usize::from(begun == Time(11)),
        };
        let parts = history.in_parts(interrupted, |block| block as usize % 2);
        let found: Vec<_> = parts.operations().iter().map(|op| (op.completed.is_some(), op.runs.clone())).collect();
        let mut expected = vec![
            (true, vec![run(0, 4, 1)]),
            (true, vec![run(0, 4, 2)]),
            (false, vec![run(1, 2, 2), run(3, 4, 2)]),
            (false, vec![run(1, 2, 2), run(3, 4, 2)]),
            (false, vec![run(0, 1, 3), run(2, 3, 3), run(4, 5, 3)]),
        ];
        expected.extend(vec![(false, vec![run(3, 4, 5)]); ATTEMPTS_SEEN]);
        expected.push((true, vec![run(0, 1, 1), run(1, 2, 2), run(2, 3, 3), run(3, 4, 5)]));
        assert_eq!(found, expected);
    }

    #[test]
    fn a_fenced_host_s_write_is_visible_when_the_fence_is_known_or_never() {
        let mut history = History::default();
        let (client, cells) = (|host| Client { host, number: 0 }, Cells { start: 0, end: CELLS_PER_BLOCK });
        for tag in [1, 2, 3] {
            history.write(client(if tag == 3 { 2 } else { 1 }), Time(tag), cells, Tag(tag));
        }
        history.fenced(1, Time(10));
        history.write(client(1), Time(11), cells, Tag(4));
        history.write(client(1), Time(11), cells, Tag::ZEROS);
        for tag in [1, 3, 4] {
            let read = history.read(client(2), Time(12));
            history.saw(read, Time(13), vec![Run { cells, tag: Tag(tag) }]);
        }
        let ends: Vec<_> =
            history.with_fences().operations().iter().map(|op| op.completed.map(|at| at.time.0)).collect();
        // Nothing follows for later requests of that host, for writes whose values no read returned, or for another host.
        assert_eq!(ends, [Some(10), None, None, None, None, Some(13), Some(13), Some(13)]);
    }

    #[test]
    fn filled_blocks_are_parsed_and_all_others_are_garbage() {
        let cells = Cells { start: 3, end: 7 };
        let mut bytes = Tag(9).fill(cells).to_vec();
        bytes[16..32].fill(0);
        let run = |start, end, tag| Run { cells: Cells { start, end }, tag };
        assert_eq!(Tag::parse(3, &bytes), Ok(vec![run(3, 4, Tag(9)), run(4, 5, Tag::ZEROS), run(5, 7, Tag(9))]));
        assert!(Tag::parse(4, &bytes).is_err(), "a cell in a wrong place");
        bytes[0] = 0;
        assert!(Tag::parse(3, &bytes).is_err(), "a cell of no write");
    }
}
