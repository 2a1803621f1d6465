//! Random operations on a file through two mounts, compared with the same in memory: a short form of what `cargo xtask posix` does with fsx.
//! Each operation goes to one of the mounts by chance, through files that stay open or are opened anew.

use crate::mounts::{Mounts, open};
use crate::prelude::*;
use std::fs::OpenOptions;

/// The longest file: some blocks and stripes, and bytes of a last block.
const LENGTH_MAX: u64 = 400_000;
const OPERATION_MAX: u64 = 150_000;

/// A file on two mounts, and what it must contain.
struct Compared<'a> {
    mounts: &'a Mounts,
    name: String,
    files: [File; 2],
    expected: Vec<u8>,
}

impl Compared<'_> {
    fn new(mounts: &Mounts, name: String) -> Compared<'_> {
        let files = [0, 1].map(|mount| open(&mounts.path(mount, &name)));
        Compared { mounts, name, files, expected: Vec::new() }
    }

    fn size(&self) -> u64 {
        self.expected.len() as u64
    }

    /// One operation; returns what it was.
    fn operate(&mut self, rng: &mut Rng, number: u64) -> String {
        let mount = rng.below(2) as usize;
        let path = self.mounts.path(mount, &self.name);
        if rng.below(4) == 0 {
            self.files[mount] = open(&path);
        }
        let file = &self.files[mount];
        let offset = rng.below(LENGTH_MAX);
        let longest = if rng.below(2) == 0 { 5000 } else { OPERATION_MAX };
        let length = 1 + rng.below(longest);
        let end = (offset + length).min(LENGTH_MAX) as usize;
        let (start, data) = (offset as usize, vec![1 + (number % 255) as u8; end - offset as usize]);
        match rng.below(10) {
            0..4 => {
                file.write_all_at(&data, offset).expect("there is space");
                self.expected.resize(self.expected.len().max(end), 0);
                self.expected[start..end].copy_from_slice(&data);
                format!("write {start}..{end} through {mount}")
            }
            4 => {
                let data = &data[..data.len().min((LENGTH_MAX - self.size()) as usize)];
                let mut log = OpenOptions::new().append(true).open(&path).expect("it exists");
                log.write_all(data).expect("there is space");
                self.expected.extend_from_slice(data);
                format!("append {} bytes through {mount}", data.len())
            }
            5 | 6 => {
                let size = if rng.below(2) == 0 { offset } else { rng.below(self.size() + 1) };
                file.set_len(size).expect("it is set");
                self.expected.resize(size as usize, 0);
                format!("truncate to {size} through {mount}")
            }
            _ => {
                let mut found = vec![0; data.len()];
                let count = file.read_at(&mut found, offset).expect("it can be read");
                let expected = &self.expected[start.min(self.expected.len())..end.min(self.expected.len())];
                assert!(found[..count] == *expected, "read {start}..{end} through {mount}");
                format!("read {start}..{end} through {mount}")
            }
        }
    }

    /// All bytes, and the size, through both mounts.
    fn compare(&self) -> Result<(), String> {
        for mount in [0, 1] {
            let path = self.mounts.path(mount, &self.name);
            let size = fs::metadata(&path).expect("it exists").len();
            let content = fs::read(&path).expect("it can be read");
            if size != self.size() || content != self.expected {
                let at = content.iter().zip(&self.expected).position(|(found, expected)| found != expected);
                return Err(format!(
                    "through {mount}: size {size}, expected {}; the first difference: {at:?}",
                    self.size()
                ));
            }
        }
        Ok(())
    }
}

#[test]
fn a_file_on_two_mounts_is_like_one_in_memory() {
    let Some(mounts) = Mounts::new() else { return };
    let seed = seed();
    for round in 0..if soak() { 200 } else { 1 } {
        let mut rng = Rng::new(seed + round);
        let mut file = Compared::new(&mounts, format!("file-{round}"));
        let mut done = Vec::new();
        for number in 0..120 {
            done.push(file.operate(&mut rng, number));
            if number % 10 == 9
                && let Err(difference) = file.compare()
            {
                panic!("seed {seed}, round {round}: {difference}; after {done:#?}");
            }
        }
    }
    mounts.end();
}
