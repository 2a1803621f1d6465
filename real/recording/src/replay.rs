//! A replay runs a machine again, input by input, and compares the effects of each step with the recorded ones.

use crate::format::{
    EffectsDigest, Entry, Header, HeaderError, MAGIC, PAYLOAD_BYTES_MAX, PREFIX_BYTES, RecordedOutcome, VERSION, digest,
};
use braid_base::Now;
use braid_base::checksum::crc32c;
use braid_machine::{EffectsOf, InputOf, Machine};
use serde::Deserialize;
use std::fmt::Debug;
use std::fs::File;
use std::io::{self, BufReader, Read};
use std::path::Path;

/// The most bytes of text about one difference.
const TEXT_BYTES_MAX: usize = 4096;

/// A recording whose header has been read.
pub struct Opened {
    pub header: Header,
    records: BufReader<File>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Replayed {
    /// The steps that were run again, with that of the difference.
    pub steps: u64,
    pub end: End,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum End {
    /// All steps have the recorded effects.
    Complete,
    /// As [`End::Complete`], up to a last record that is incomplete: the process was killed.
    Truncated,
    /// A record is damaged; the steps before it have the recorded effects.
    Damaged,
    /// A step has other effects.
    Differs(Box<Difference>),
}

/// The first step with other effects.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Difference {
    /// Its number, counted from 1.
    pub step: u64,
    pub now: Now,
    /// The input, as text, perhaps cut.
    pub input: String,
    /// The number of recorded effects.
    pub recorded: u32,
    /// The effects of the replay, as text, perhaps cut.
    pub effects: Vec<String>,
}

/// A record that was read.
enum Read1<T> {
    Record(T),
    End,
    Truncated,
    Damaged,
}

impl Opened {
    pub fn open(path: &Path) -> io::Result<Result<Opened, HeaderError>> {
        let mut records = BufReader::with_capacity(1 << 20, File::open(path)?);
        let mut prefix = [0; PREFIX_BYTES];
        if records.read_exact(&mut prefix).is_err() || prefix[..8] != MAGIC {
            return Ok(Err(HeaderError::NotARecording));
        }
        let found = u32::from_le_bytes(prefix[8..].try_into().expect("four bytes"));
        if found != VERSION {
            return Ok(Err(HeaderError::OtherVersion { found }));
        }
        Ok(match next(&mut records)? {
            Read1::Record(header) => Ok(Opened { header, records }),
            Read1::End | Read1::Truncated | Read1::Damaged => Err(HeaderError::Damaged),
        })
    }
}

/// Runs a machine that has not started.
pub fn replay<M>(opened: Opened, mut machine: M) -> io::Result<Replayed>
where
    M: Machine<Request: Clone + Debug + for<'de> Deserialize<'de>, Outcome: RecordedOutcome + Debug>,
{
    let mut records = opened.records;
    let (mut steps, mut scratch) = (0, Vec::new());
    let mut taken: Option<(Now, InputOf<M>, EffectsOf<M>, EffectsDigest)> = None;
    let end = loop {
        let entry = match next::<Entry<M::Request>>(&mut records)? {
            Read1::Record(entry) => entry,
            Read1::End => break End::Complete,
            Read1::Truncated => break End::Truncated,
            Read1::Damaged => break End::Damaged,
        };
        match (entry, taken.take()) {
            (Entry::Input { now, input }, None) => {
                let Some(input) = input.into_input() else { break End::Damaged };
                steps += 1;
                let mut effects = EffectsOf::<M>::new();
                machine.step(now, input.clone(), &mut effects);
                machine.invariants();
                let found = digest(effects.as_slice(), &mut scratch);
                taken = Some((now, input, effects, found));
            }
            (Entry::Effects(recorded), Some((now, input, effects, found))) if recorded != found => {
                let effects = effects.as_slice().iter().map(text).collect();
                let (input, recorded) = (text(&input), recorded.count);
                break End::Differs(Box::new(Difference { step: steps, now, input, recorded, effects }));
            }
            (Entry::Effects(_), Some(_)) => {}
            (Entry::Input { .. }, Some(_)) | (Entry::Effects(_), None) => break End::Damaged,
        }
    };
    Ok(Replayed { steps, end })
}

fn next<T: for<'de> Deserialize<'de>>(records: &mut impl Read) -> io::Result<Read1<T>> {
    let head = read_up_to(records, 8)?;
    match head.len() {
        0 => return Ok(Read1::End),
        8 => {}
        _ => return Ok(Read1::Truncated),
    }
    let number = |at: usize| u32::from_le_bytes(head[at..at + 4].try_into().expect("four bytes"));
    let (length, checksum) = (number(0) as usize, number(4));
    if length > PAYLOAD_BYTES_MAX {
        return Ok(Read1::Damaged);
    }
    let payload = read_up_to(records, length)?;
    if payload.len() < length {
        return Ok(Read1::Truncated);
    }
    if crc32c(&payload) != checksum {
        return Ok(Read1::Damaged);
    }
    Ok(postcard::from_bytes(&payload).map_or(Read1::Damaged, Read1::Record))
}

/// Reads so many bytes, or as many as there are.
fn read_up_to(from: &mut impl Read, bytes: usize) -> io::Result<Vec<u8>> {
    let mut read = Vec::with_capacity(bytes);
    from.take(bytes as u64).read_to_end(&mut read)?;
    Ok(read)
}

fn text(value: &impl Debug) -> String {
    let mut text = braid_base::quoting::without_bytes(&format!("{value:?}"));
    if text.len() > TEXT_BYTES_MAX {
        let end = text.floor_char_boundary(TEXT_BYTES_MAX);
        text.truncate(end);
        text.push('…');
    }
    text
}
