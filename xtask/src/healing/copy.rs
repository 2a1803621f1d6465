//! Transfers the bytes of a rebuild as fast as the disk and this machine allow, without an array: the reference for rebuilds.

use crate::prelude::*;
use rustix::fs::{Mode, OFlags};
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicU64, Ordering};

/// Transfers in flight, as many as a rebuild's transactions.
pub const LANES: usize = 8;
/// Bytes of each transfer, as of a rebuild's transactions.
const PIECE: usize = 1 << 20;
/// The alignment that direct I/O requires.
const ALIGNMENT: usize = 4096;

/// Reads `parts` parts of a file, of `bytes` each, and writes as much as one of them, with direct I/O; then makes the result durable.
/// This is what a rebuild does: it reads what the other devices of a stripe hold, and writes what one device holds. With one part it is a
/// copy. Returns the time taken.
pub fn copy(from: &Path, parts: u64, to: &Path, bytes: u64) -> Result<Duration> {
    let open = |path: &Path, flags| {
        let file = rustix::fs::open(path, flags | OFlags::DIRECT, Mode::from_raw_mode(0o600));
        file.map(File::from).with_context(|| format!("can't open {}", path.display()))
    };
    let source = open(from, OFlags::RDONLY)?;
    let target = open(to, OFlags::RDWR | OFlags::CREATE)?;
    let begun = Instant::now();
    let next = AtomicU64::new(0);
    let lane = || -> Result<()> {
        let mut memory = vec![0; PIECE + ALIGNMENT];
        let aligned = memory.as_ptr().align_offset(ALIGNMENT);
        let piece = &mut memory[aligned..aligned + PIECE];
        loop {
            let at = next.fetch_add(PIECE as u64, Ordering::Relaxed);
            if at >= bytes {
                return Ok(());
            }
            let part = &mut piece[..PIECE.min((bytes - at) as usize)];
            for number in 0..parts {
                source.read_exact_at(part, number * bytes + at).context("can't read the source")?;
            }
            target.write_all_at(part, at).context("can't write the copy")?;
        }
    };
    std::thread::scope(|scope| {
        let lanes: Vec<_> = (0..LANES).map(|_| scope.spawn(lane)).collect();
        lanes.into_iter().try_for_each(|lane| lane.join().expect("a lane does not panic"))
    })?;
    target.sync_data().context("can't make the copy durable")?;
    Ok(begun.elapsed())
}
