//! Space reservation on the folder's file system. Device files in the folder may fill the file system. Even then hosts must be able to renew
//! leases and take generations: otherwise a full disk would lead to fences of hosts that only overwrite existing data.

use crate::ControlError;
use crate::private_files::private_file;
use rustix::fs::{FallocateFlags, fallocate};
use rustix::io::Errno;
use std::fs::OpenOptions;
use std::path::Path;

/// Enough for many hosts at a time: each needs one or two blocks for a moment.
const RESERVE_BYTES: u64 = 1 << 20;
/// The space released at once: enough for a small file, and less than a device allocates at once, so that no device takes it first.
const STEP_BYTES: u64 = 16 << 10;

/// Reserves the space in the file `path`, or the missing part of it.
pub(crate) fn fill(path: &Path) -> Result<(), ControlError> {
    let open = private_file().create(true).truncate(false).write(true).open(path);
    let file = open.map_err(ControlError::file("create", path))?;
    match fallocate(&file, FallocateFlags::empty(), 0, RESERVE_BYTES) {
        // A file system that can't reserve space is not an error.
        Ok(()) | Err(Errno::OPNOTSUPP | Errno::NOSYS) => Ok(()),
        Err(error) => Err(ControlError::file("reserve space in", path)(error)),
    }
}

/// Releases a part of the reserved space. Returns false if none is left.
pub(crate) fn give_up(path: &Path) -> bool {
    let give_up = || {
        let file = OpenOptions::new().write(true).open(path)?;
        let left = file.metadata()?.len();
        file.set_len(left.saturating_sub(STEP_BYTES))?;
        file.sync_all()?;
        Ok::<_, std::io::Error>(left > 0)
    };
    give_up().unwrap_or(false)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::folder::tests::Scratch;
    use std::os::unix::fs::MetadataExt;

    #[test]
    fn room_is_given_up_step_by_step_until_none_is_left_and_filled_again() {
        let scratch = Scratch::new("reserve");
        let path = scratch.path("reserve");
        let held = || path.metadata().unwrap().blocks() * 512;
        assert!(!give_up(&path), "there is none yet");
        fill(&path).unwrap();
        assert!(held() >= RESERVE_BYTES);
        for step in 1..=RESERVE_BYTES / STEP_BYTES {
            assert!(give_up(&path));
            assert_eq!(held(), RESERVE_BYTES - step * STEP_BYTES);
        }
        assert!(!give_up(&path));
        fill(&path).unwrap();
        assert!(held() >= RESERVE_BYTES);
    }
}
