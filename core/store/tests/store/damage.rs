//! Tests of damage: corruption, foreign devices and broken disks are detected, reported, and never answered with old data or zeros.

use crate::disk::TestDisk;
use crate::protocol::*;
use braid_base::checksum::crc32c;

/// How many forged journals a test tries.
const FORGERIES: u32 = 400;

/// An object whose blocks 16 to 31 are a whole chunk in a slot, and whose block 40 was written to its slot by a checkpoint.
fn at_home() -> Bench {
    let mut bench = Bench::with_object(100);
    bench.write(1, vec![data(16, 16, 500)]);
    bench.write(2, vec![data(40, 1, 900)]);
    checkpoint(&mut bench, 10);
    bench
}

fn checkpoint(bench: &mut Bench, sequence: u64) {
    let before = bench.counter("checkpoints");
    for sequence in sequence.. {
        if bench.counter("checkpoints") > before {
            return;
        }
        bench.write(sequence, vec![data(60, 3, sequence)]);
    }
}

/// The byte on the disk, in the data area, of the block with this value.
pub fn home_of(bench: &Bench, value: u64) -> u64 {
    let (start, first) = (&pattern(value)[..512], bench.disk.geometry().data_offset);
    bench.disk.find(start).into_iter().find(|at| *at >= first).expect("the block is in its slot")
}

#[test]
fn a_damaged_block_is_lost_alone_until_it_is_overwritten() {
    let mut bench = at_home();
    let mut found = 0;
    // A bit differs, or a sector is unreadable: in the block's data, or in its header.
    for (value, block, unreadable) in
        [(505, 21, None), (900, 40, None), (7900, 40, None), (7505, 21, Some(512)), (14_900, 40, Some(4096))]
    {
        checkpoint(&mut bench, 30_000 + value);
        let home = home_of(&bench, value);
        match unreadable {
            None => bench.disk.corrupt(home + 100),
            Some(sector) => bench.disk.break_at(home + sector),
        }
        assert_eq!(bench.read(block, 1), Err(Failure::Lost { block }));
        assert_eq!(bench.read(16, 30), Err(Failure::Lost { block }), "only this block of the read is lost");
        found += 1;
        assert_eq!(bench.counter("blocks_corrupt"), found, "a block is counted once until it is written");
        bench.write(value, vec![data(block, 1, value + 7000)]);
        assert_eq!(bench.read(block, 1), Ok(pattern(value + 7000)));
    }
    checkpoint(&mut bench, 60_000);
    assert_eq!(bench.read(16, 16), Ok([patterns(500..505), pattern(14_505), patterns(506..516)].concat()));
    // If several blocks are unreadable, the first one is reported.
    for value in [514, 503, 502] {
        let home = home_of(&bench, value);
        bench.disk.break_at(home);
    }
    assert_eq!(bench.read(16, 16), Err(Failure::Lost { block: 18 }));
    assert_eq!(bench.read(20, 10), Ok([pattern(504), pattern(14_505), patterns(506..514)].concat()));
}

#[test]
fn a_block_in_anothers_place_is_lost() {
    let mut bench = at_home();
    let (one, other) = (home_of(&bench, 505), home_of(&bench, 506));
    let stride = bench.disk.get(one, 4608);
    bench.disk.put(other, &stride.into());
    assert_eq!(bench.read(22, 1), Err(Failure::Lost { block: 22 }));
    assert_eq!(bench.read(21, 1), Ok(pattern(505)));
}

#[test]
fn a_read_that_fails_but_once_brings_all_and_keeps_its_slot_meanwhile() {
    let mut bench = at_home();
    let home = home_of(&bench, 505);
    bench.disk.failing_reads.push(home);
    bench.disk.hold_reads = true;
    bench.store.read(9, OBJECT, &[BlockRange::new(16, 16)], &mut bench.out);
    bench.write(3, vec![data(16, 16, 900)]);
    // The command for all blocks has failed. The blocks are read one by one, while other writes need slots.
    bench.disk.hold_reads = false;
    bench.end_one();
    for sequence in 4..12 {
        bench.disk.hold_reads = true;
        bench.write(sequence, vec![data(16, 16, 1000 * sequence)]);
        bench.disk.hold_reads = false;
        bench.end_one();
    }
    bench.run();
    let read = bench.events.iter().find_map(|event| match event {
        StoreEvent::Read { ticket: 9, result } => Some(result.clone().map(|pieces| crate::protocol::join(&pieces))),
        _ => None,
    });
    assert_eq!(read, Some(Ok(patterns(500..516))));
}

#[test]
fn an_unreadable_sector_costs_a_start_no_more_than_corruption_does() {
    let mut bench = Bench::with_object(100);
    bench.write(1, vec![data(16, 16, 500)]);
    checkpoint(&mut bench, 10);
    bench.write(4000, vec![data(3, 3, 700)]);
    bench.settle();
    let pages = bench.disk.find(b"BrMp");
    let payload = in_journal(&bench, 701) + 1024;
    let geometry = bench.disk.geometry();
    let batches = bench.disk.find(b"BraidJnl");
    let unused = (geometry.journal_offset..geometry.map_offset)
        .step_by(512)
        .find(|at| bench.disk.get(*at, 512) == [0; 512] && !batches.contains(at))
        .expect("the journal was not yet full");
    for (broken, lost) in
        [(0, false), (4096, false), (pages[0], false), (pages[1] + 3584, false), (unused, false), (payload, true)]
    {
        let mut disk = bench.disk.clone();
        disk.break_at(broken);
        let (mut again, _) = Bench::start(disk, 1).unwrap_or_else(|error| panic!("{broken}: {error}"));
        assert_eq!(again.read(16, 16), Ok(patterns(500..516)));
        assert_eq!(again.read(3, 3), if lost { Err(Failure::Lost { block: 4 }) } else { Ok(patterns(700..703)) });
        // The damaged copies were repaired.
        let (mut again, _) = again.restart().expect("nothing else is wrong");
        assert_eq!(again.read(16, 16), Ok(patterns(500..516)));
    }
    // Of each page of a run, one copy must be readable; which one may differ from page to page.
    let mut disk = bench.disk.clone();
    pages.iter().for_each(|page| disk.break_at(*page));
    assert!(matches!(Bench::start(disk, 1), Err(StoreError::Damaged { part: "chunk map", .. })));
    let mut disk = bench.disk.clone();
    let its_batch = *batches.iter().rfind(|at| **at < payload).expect("a payload follows its records");
    disk.break_at(its_batch);
    assert!(matches!(Bench::start(disk, 1), Err(StoreError::Damaged { part: "journal", .. })));
}

#[test]
fn a_disk_with_too_many_unreadable_sectors_is_said_to_be_broken() {
    let mut disk = at_home().disk;
    for at in 0..65 {
        disk.break_at(8192 + at * 1024);
    }
    assert!(matches!(Bench::start(disk, 1), Err(StoreError::Disk(DiskError::Failed))));
}

/// The sector of the journal that begins with the content of `value`.
fn in_journal(bench: &Bench, value: u64) -> u64 {
    let geometry = bench.disk.geometry();
    let journal = geometry.journal_offset..geometry.journal_offset + geometry.journal_length;
    let found = bench.disk.find(&pattern(value)[..512]);
    found.into_iter().find(|at| journal.contains(at)).expect("it is in the journal")
}

#[test]
fn corruption_in_the_journals_payload_loses_that_block_through_a_checkpoint_and_a_commit() {
    let mut bench = Bench::with_object(100);
    bench.write(1, vec![data(3, 3, 500)]);
    assert_eq!(bench.prepare(intent(2, vec![data(33, 3, 600)])), Ok(()));
    bench.settle();
    for value in [501, 601] {
        let at = in_journal(&bench, value);
        bench.disk.corrupt(at + 1000);
    }
    let (mut bench, recovered) = bench.restart().expect("the rest is whole");
    assert_eq!(recovered.intents[0].ranges, [BlockRange::new(33, 3)]);
    assert_eq!(bench.read(33, 3), Ok(vec![0; 3 * BLOCK_BYTES]), "an undecided intent leaves the old content");
    for round in 0..3 {
        assert_eq!(bench.read(3, 3), Err(Failure::Lost { block: 4 }), "round {round}");
        assert_eq!(bench.read(3, 1), Ok(pattern(500)));
        assert_eq!(bench.read(5, 1), Ok(pattern(502)));
        match round {
            0 => {
                checkpoint(&mut bench, 100);
                bench.commit(2);
            }
            1 => {
                checkpoint(&mut bench, 200);
                bench = bench.restart().expect("nothing else is wrong").0;
            }
            _ => {}
        }
        assert_eq!(bench.read(33, 3), Err(Failure::Lost { block: 34 }));
    }
    bench.write(3, vec![data(4, 1, 9)]);
    assert_eq!(bench.read(3, 3), Ok([pattern(500), pattern(9), pattern(502)].concat()));
}

#[test]
fn corruption_of_a_durable_record_makes_the_store_unusable() {
    let mut bench = Bench::with_object(100);
    for sequence in 1..4 {
        bench.write(sequence, vec![data(sequence, 1, sequence * 100)]);
    }
    bench.settle();
    let batches = bench.disk.find(b"BraidJnl");
    assert!(batches.len() > 6);
    // The last batch is a mark: without it, only the proof is lost that the batch before it was durable.
    for batch in &batches[..batches.len() - 1] {
        let mut disk = bench.disk.clone();
        disk.corrupt(batch + 20);
        let error = Bench::start(disk, 1).map(|_| ()).expect_err("a record is gone");
        assert!(matches!(error, StoreError::Damaged { part: "journal", .. }), "{error}");
    }
}

/// Changes a byte of the records of a batch, or a header's length, and makes the checksum match, as no fault of a disk does.
fn forge(disk: &mut TestDisk, batch: u64, rng: &mut Rng) {
    let header = disk.get(batch, 512);
    let records = u32::from_le_bytes(header[32..36].try_into().unwrap()) as usize;
    let mut description = disk.get(batch, (64 + records).next_multiple_of(512));
    for _ in 0..rng.between(1, 3) {
        let at = 64 + rng.below(records.max(1) as u64) as usize;
        let wrong = [rng.below(256) as u8, description[at] ^ (1 << rng.below(8)), 0, 0xff];
        description[at] = wrong[rng.below(4) as usize];
    }
    description[60..64].fill(0);
    let checksum = crc32c(&description[..64 + records]);
    description[60..64].copy_from_slice(&checksum.to_le_bytes());
    disk.put(batch, &description.into());
}

#[test]
fn no_content_of_the_journal_crashes_a_start() {
    let mut bench = Bench::with_object(100);
    bench.write(1, vec![data(3, 3, 500), data(16, 16, 700)]);
    checkpoint(&mut bench, 10);
    bench.write(100, vec![data(50, 3, 600), hole(4, 1)]);
    assert_eq!(bench.prepare(intent(101, vec![data(33, 3, 800), data(64, 16, 900)])), Ok(()));
    bench.settle();
    let batches = bench.disk.find(b"BraidJnl");
    let rng = &mut Rng::new(7);
    let mut refused = 0;
    for _ in 0..FORGERIES {
        let mut disk = bench.disk.clone();
        forge(&mut disk, batches[rng.below(batches.len() as u64) as usize], rng);
        match Bench::start(disk, 1) {
            Ok((mut started, _)) => {
                // What has been read is kept by a checkpoint, too.
                checkpoint(&mut started, 1_000);
                refused += u32::from(started.restart().is_err());
            }
            Err(_) => refused += 1,
        }
    }
    assert!(refused > 0 && refused < FORGERIES, "{refused} are refused");
}

#[test]
fn a_damaged_copy_of_map_or_superblock_is_made_good_from_the_other() {
    let bench = at_home();
    let pages = bench.disk.find(b"BrMp");
    assert_eq!(pages.len(), 2);
    for (damaged, other) in [(0, 4096), (4096, 0), (pages[0], pages[1]), (pages[1], pages[0])] {
        let mut disk = bench.disk.clone();
        disk.corrupt(damaged + 60);
        let (mut again, _) = Bench::start(disk, 1).expect("the other copy will do");
        assert_eq!(again.disk.get(damaged, 4096), again.disk.get(other, 4096), "the damaged copy is repaired");
        assert_eq!(again.read(16, 16), Ok(patterns(500..516)));
        assert_eq!(again.read(40, 1), Ok(pattern(900)));
        again.disk.corrupt(other + 60);
        assert!(again.restart().is_ok(), "the repaired copy is needed now");
    }
    let mut disk = bench.disk.clone();
    disk.corrupt(pages[0] + 60);
    disk.corrupt(pages[1] + 61);
    assert!(matches!(Bench::start(disk, 1), Err(StoreError::Damaged { part: "chunk map", .. })));
    let mut disk = bench.disk.clone();
    disk.corrupt(60);
    disk.corrupt(4096 + 60);
    assert!(matches!(Bench::start(disk, 1), Err(StoreError::SuperblockDamaged)));
}

#[test]
fn an_older_copy_of_a_map_page_does_not_outlast_the_next_checkpoint() {
    let mut bench = at_home();
    let [first, second] = bench.disk.find(b"BrMp")[..] else { panic!("one page, two copies") };
    let older = bench.disk.get(second, 4096);
    bench.write(5, vec![data(80, 16, 2000)]);
    checkpoint(&mut bench, 3000);
    // As if the power had failed between the copies.
    bench.disk.put(second, &older.into());
    let (mut bench, _) = bench.restart().expect("the first copy is newer");
    checkpoint(&mut bench, 6000);
    bench.disk.corrupt(first + 60);
    let (mut bench, _) = bench.restart().expect("the second copy is as good");
    assert_eq!(bench.read(80, 16), Ok(patterns(2000..2016)));
}

#[test]
fn a_disk_of_another_device_is_refused_by_name() {
    let disk = Bench::with_object(100).disk;
    let start = |config: StoreConfig| {
        let mut bench = Bench::power_on(disk.clone(), 1);
        bench.disk.crash(&mut braid_base::Rng::new(1));
        bench.store = Store::new(config);
        bench.store.start(&mut bench.out);
        bench.run();
        match bench.events.pop_front() {
            Some(StoreEvent::Unusable(error)) => error,
            event => panic!("the device is not ours, but got {event:?}"),
        }
    };
    let ours = config();
    let array = ArrayId([1; 16]);
    assert_eq!(start(StoreConfig { array, ..ours }), StoreError::OtherArray { found: ours.array, expected: array });
    let device = DeviceId(7);
    assert_eq!(start(StoreConfig { device, ..ours }), StoreError::OtherDevice { found: ours.device, expected: device });
    let size = ours.size - 512;
    assert_eq!(start(StoreConfig { size, ..ours }), StoreError::Truncated { found: size, expected: ours.size });
}

#[test]
fn a_disk_that_is_not_ours_or_does_not_read_is_said_to_be_so() {
    let mut disk = Bench::with_object(100).disk;
    let mut broken = disk.clone();
    [0, 4096].into_iter().for_each(|copy| broken.break_at(copy));
    assert!(
        matches!(Bench::start(broken, 1), Err(StoreError::Disk(DiskError::Failed))),
        "an unreadable superblock may be one of Braid"
    );
    disk.put(0, &vec![0; 8192].into());
    assert!(matches!(Bench::start(disk, 1), Err(StoreError::NotBraid)));
}

#[test]
fn a_device_can_be_made_anew_over_an_old_one() {
    let mut bench = at_home();
    for (offset, bytes) in Store::format_with(&config(), DiskId(1), 77, Some(JOURNAL)).expect("it is large enough") {
        bench.disk.put(offset, &bytes);
    }
    let (bench, recovered) = Bench::start(bench.disk, 1).expect("it is new");
    assert_eq!(recovered, Recovered { disk: DiskId(1), ..Recovered::default() });
    assert_eq!(bench.store.object(OBJECT), None);
}
