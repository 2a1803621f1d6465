//! Tests of journals of earlier releases, whose batches end at any sector of 512 bytes, on disks with physical sectors of 4 KiB.

use crate::disk::TestDisk;
use crate::protocol::*;

const LARGE: Medium = Medium { physical_sector: 4096, cached: false };

/// Makes the disk look like one of an earlier release: both copies of the superblock name that format.
fn make_older(disk: &mut TestDisk, format: u32) {
    for copy in [0, 4096] {
        let mut bytes = disk.get(copy, 512);
        bytes[8..12].copy_from_slice(&format.to_le_bytes());
        let checksum = braid_base::checksum::crc32c(&bytes[..508]).to_le_bytes();
        bytes[508..].copy_from_slice(&checksum);
        disk.put(copy, &bytes.into());
    }
}

/// The offsets of batches in the journal, by their sequences.
fn batches(bench: &Bench) -> BTreeMap<u64, u64> {
    let geometry = bench.disk.geometry();
    let mut found = BTreeMap::new();
    for at in (0..geometry.journal_length).step_by(512) {
        let header = bench.disk.get(geometry.journal_offset + at, 512);
        let number = |from: usize| u64::from_le_bytes(header[from..from + 8].try_into().expect("eight bytes"));
        if header.starts_with(b"BraidJnl") && number(24) == at {
            found.insert(number(8), at);
        }
    }
    found
}

#[test]
fn a_journal_that_ends_within_a_physical_sector_is_read_and_goes_on_at_the_next() {
    let mut unaligned = 0;
    for format in FORMAT - 1..=FORMAT {
        // Each number of writes makes the last batch end elsewhere.
        for writes in 1..=9 {
            let mut bench = Bench::with_object(100);
            for sequence in 1..=writes {
                bench.write(sequence, vec![data(sequence, 1, 100 * sequence)]);
            }
            assert_eq!(bench.prepare(intent(50, vec![data(40, 2, 7_000)])), Ok(()));
            let before = batches(&bench);
            let newest = *before.last_key_value().expect("there are batches").0;
            unaligned += before.values().filter(|at| !at.is_multiple_of(4096)).count();
            bench.disk.crash_hard();
            make_older(&mut bench.disk, format);

            let (mut bench, recovered) = Bench::start_on(LARGE, bench.disk, 3).expect("it can be read");
            assert_eq!(recovered.intents.len(), 1, "{recovered:?}");
            for copy in [0, 4096] {
                assert_eq!(bench.disk.get(copy, 512)[8..12], FORMAT.to_le_bytes(), "it is of this format from now on");
            }
            for sequence in 1..=writes {
                assert_eq!(bench.read(sequence, 1), Ok(patterns([100 * sequence])), "format {format}, {writes} writes");
            }
            bench.commit(50);
            bench.write(51, vec![data(60, 3, 8_000)]);
            let new: BTreeMap<u64, u64> =
                batches(&bench).into_iter().filter(|(sequence, _)| *sequence > newest).collect();
            assert!(new.len() >= 2, "{new:?}");
            assert!(new.values().all(|at| at.is_multiple_of(4096)), "no batch shares a physical sector: {new:?}");

            // Recovery finds the new batches behind the old ones, whatever the physical sector is.
            bench.disk.crash_hard();
            for medium in [LARGE, Medium::default()] {
                let (mut bench, recovered) = Bench::start_on(medium, bench.disk.clone(), 4).expect("it can be read");
                assert!(recovered.intents.is_empty(), "{recovered:?}");
                assert_eq!(bench.read(40, 2), Ok(patterns(7_000..7_002)), "{}", transaction(50));
                assert_eq!(bench.read(60, 3), Ok(patterns(8_000..8_003)));
                bench.store.audit();
            }
        }
    }
    assert!(unaligned > 0, "some batches must be unaligned");
}
