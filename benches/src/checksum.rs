//! CRC32C, which is computed over every byte several times: in frames, in the journal, in block headers.

use crate::{Workload, pattern};
use braid_base::checksum::crc32c;

pub(crate) fn workloads() -> Vec<Workload> {
    let of = |name, length| Workload::same(name, move || pattern(length), |bytes| crc32c(bytes)).of_bytes(length);
    vec![of("checksum/4KiB", 4 << 10), of("checksum/64KiB", 64 << 10)]
}
