//! Scenarios in which records of a device or of the monitor are damaged while their machine is down. A record with a second copy is
//! restored from that. A device whose journal is damaged has lost its content: it reports this, and gets an empty disk. Users notice
//! neither.

use crate::healing::renew;
use crate::story::*;
use braid_device::Service;
use braid_store::StoreError;

const SECTOR: usize = 512;
const MAP_OFFSET_AT: usize = 56;

fn number(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"))
}

/// The offsets of the batches in a device's journal, in order.
fn batches(array: &Cluster, of: u16) -> Vec<u64> {
    let disk = array.world.disk(device(of)).expect("the node has a disk");
    let superblock = disk.peek(0, SECTOR);
    let journal = (8192..number(&superblock, MAP_OFFSET_AT)).step_by(SECTOR);
    let sectors = journal.map(|at| (disk.peek(at, SECTOR), at));
    let mut found: Vec<_> = sectors
        .filter(|(bytes, _)| bytes.starts_with(b"BraidJnl"))
        .map(|(bytes, at)| (number(&bytes, 8), at))
        .collect();
    found.sort_unstable();
    found.into_iter().map(|(_, at)| at).collect()
}

fn service(array: &Cluster, of: u16) -> Service {
    array.device(DeviceId(of)).expect("the device is up").service().clone()
}

#[test]
fn a_device_with_a_damaged_journal_reports_it_and_is_replaced_without_an_error() {
    with_each_pair(KEPT_APART, [false, true], filled_array_by, |array, [a, b], ordering, unreadable| {
        array.crash(device(1));
        let middle = batches(array, 1);
        let at = middle[middle.len() / 2];
        let disk = disk(array, device(1));
        if unreadable {
            disk.lose(at..at + SECTOR as u64).expect("the header has a sector");
        } else {
            // In the header, so that the flipped bit matters.
            disk.flip(at + 20, 0);
        }
        array.restart_device(DeviceId(1));
        let asked = [array.write(a, 0, BLOCK), array.read(b, 4 * BLOCK, BLOCK)];
        all_succeed(array, asked, ordering);
        let says_so = |array: &Cluster| {
            matches!(service(array, 1), Service::Unusable(StoreError::Damaged { part: "journal", .. }))
        };
        wait_until(array, "the device reports its loss", says_so);
        wait_out(array, 1);
        write(array, b, 2 * BLOCK, 3 * BLOCK);
        renew(array, a, 1);
        wait_in(array, 1);
    });
}
