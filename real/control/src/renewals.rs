//! The renewals of one lease: a file of fixed size that is made with the lease, and written in place. So a renewal needs no new file, and on most
//! file systems no space: one that is full, or has no inodes left, ends no lease. Where each write needs space, the reserve gives it.
//!
//! ```text
//!   0            slot 0: magic, format, length, sequence, the heartbeat as JSON …, checksum of all of these
//!   SLOT_BYTES   slot 1: the same
//! ```
//!
//! The whole slot with the higher sequence counts; the next renewal goes to the other one. A reader that meets a renewal half-written finds the
//! one before. Nothing is synced: a lease does not outlive its boot.

use crate::ControlError;
use crate::private_files::private_file;
use braid_base::checksum::crc32c;
use std::fs::File;
use std::io::{ErrorKind, Read, Write};
use std::os::unix::fs::FileExt;
use std::path::Path;

/// Two slots take what the reserve gives up in one step.
const SLOT_BYTES: usize = 8 << 10;
const MAGIC: [u8; 8] = *b"BraidRnw";
const FORMAT: u32 = 1;
/// Magic, format, length and sequence.
const HEADER_BYTES: usize = 24;
const CHECKSUM_BYTES: usize = 4;
/// The longest heartbeat.
pub(crate) const BYTES_MAX: usize = SLOT_BYTES - HEADER_BYTES - CHECKSUM_BYTES;
/// A reader that is slower than two renewals finds both slots half-written.
const TRIES: usize = 3;

/// Makes the file, with space for all renewals. What an earlier attempt has left is replaced.
pub(crate) fn create(path: &Path) -> Result<(), ControlError> {
    let create = || {
        let mut file = private_file().create(true).truncate(true).write(true).open(path)?;
        // Written, and not only reserved: every file system then has a place for it.
        file.write_all(&[0; 2 * SLOT_BYTES])
    };
    create().map_err(ControlError::file("create", path)).inspect_err(|_| drop(std::fs::remove_file(path)))
}

/// Writes the next renewal. Only one process writes the file, and never twice at once. False if the file does not exist.
pub(crate) fn write(path: &Path, heartbeat: &[u8]) -> Result<bool, ControlError> {
    assert!(heartbeat.len() <= BYTES_MAX, "a heartbeat of {} bytes fits into no slot", heartbeat.len());
    let write = || {
        let file = File::options().read(true).write(true).open(path)?;
        let last = newest(&contents(&file)?).map_or(0, |(sequence, _)| sequence);
        let sequence = last + 1;
        let mut slot = [&MAGIC[..], &FORMAT.to_le_bytes(), &(heartbeat.len() as u32).to_le_bytes()].concat();
        slot.extend_from_slice(&sequence.to_le_bytes());
        slot.extend_from_slice(heartbeat);
        slot.extend_from_slice(&crc32c(&slot).to_le_bytes());
        file.write_all_at(&slot, (sequence % 2) * SLOT_BYTES as u64)
    };
    match write() {
        Ok(()) => Ok(true),
        Err(error) if std::io::Error::kind(&error) == ErrorKind::NotFound => Ok(false),
        Err(error) => Err(ControlError::file("write", path)(error)),
    }
}

/// The last renewal; none if there is no file, or nothing whole in it.
pub(crate) fn read(path: &Path) -> Result<Option<Vec<u8>>, ControlError> {
    for _ in 0..TRIES {
        let contents = match File::open(path).and_then(|file| contents(&file)) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            contents => contents.map_err(ControlError::file("read", path))?,
        };
        if let Some((_, heartbeat)) = newest(&contents) {
            return Ok(Some(heartbeat.to_vec()));
        }
        if contents.iter().all(|byte| *byte == 0) {
            return Ok(None);
        }
    }
    Ok(None)
}

fn contents(file: &File) -> std::io::Result<Vec<u8>> {
    let mut contents = Vec::new();
    file.take(2 * SLOT_BYTES as u64).read_to_end(&mut contents)?;
    Ok(contents)
}

fn newest(contents: &[u8]) -> Option<(u64, &[u8])> {
    contents.chunks(SLOT_BYTES).filter_map(whole).max_by_key(|(sequence, _)| *sequence)
}

/// The sequence and the heartbeat of a slot, if it is whole.
fn whole(slot: &[u8]) -> Option<(u64, &[u8])> {
    let number = |at: usize| Some(u32::from_le_bytes(slot.get(at..at + 4)?.try_into().ok()?));
    let is_ours = slot.starts_with(&MAGIC) && number(8)? == FORMAT;
    let length = usize::try_from(number(12)?).ok().filter(|length| is_ours && *length <= BYTES_MAX)?;
    let sequence = u64::from_le_bytes(slot.get(16..HEADER_BYTES)?.try_into().ok()?);
    let end = HEADER_BYTES + length;
    (number(end)? == crc32c(&slot[..end])).then_some((sequence, &slot[HEADER_BYTES..end]))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::folder::tests::Scratch;

    #[test]
    fn the_last_whole_renewal_counts() {
        let scratch = Scratch::new("renewals");
        let path = scratch.path("1.renewals");
        assert_eq!((read(&path).unwrap(), write(&path, b"x").unwrap()), (None, false), "it is made with the lease");
        create(&path).unwrap();
        assert_eq!(read(&path).unwrap(), None, "not renewed yet");
        let size = path.metadata().unwrap().len();
        let mut before = None;
        for renewal in [vec![1; 10], vec![2; BYTES_MAX], vec![], vec![4; 300]] {
            assert!(write(&path, &renewal).unwrap());
            assert_eq!(read(&path).unwrap().as_ref(), Some(&renewal));
            // The next one is torn at each of these places.
            let (file, whole) =
                (File::options().read(true).write(true).open(&path).unwrap(), std::fs::read(&path).unwrap());
            write(&path, &[7; 200]).unwrap();
            let next = std::fs::read(&path).unwrap();
            for at in [0, 3, 11, 20, HEADER_BYTES, 100, 223, 226] {
                let mut torn = whole.clone();
                for slot in [0, SLOT_BYTES] {
                    torn[slot..slot + at].copy_from_slice(&next[slot..slot + at]);
                }
                file.write_all_at(&torn, 0).unwrap();
                assert_eq!(read(&path).unwrap().as_ref(), Some(&renewal), "torn at {at}");
            }
            file.write_all_at(&whole, 0).unwrap();
            assert_ne!(before.replace(renewal.clone()), Some(renewal));
        }
        assert_eq!(path.metadata().unwrap().len(), size, "a renewal needs no space");
        std::fs::write(&path, b"BraidRnw").unwrap();
        assert_eq!(read(&path).unwrap(), None, "as a power loss may leave it");
    }
}
