//! Read access to a host while it runs: the metrics of the host, its shell and its process, and its jobs.

use crate::metrics::Metrics;
use braid_base::{BLOCK_BYTES, DeviceId, FenceTable, VolumeId};
use braid_control::{ByteRange, RecoveryReport, WaitingReport, merged, unix_millis_now};
use braid_control_protocol::HoldingHost;
use braid_host::{Host, MigrationProgress, ObservedDevice, Short};
use braid_shell::{Budget, Counters, View};
use rustix::time::{ClockId, clock_gettime};
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::sync::{Arc, Mutex};

/// The most ranges of a volume that a lease lists.
const LOST_SHOWN_MAX: usize = 64;

#[derive(Clone)]
pub struct HostView {
    host: View<HoldingHost<Host>>,
    shell: Arc<Counters>,
    exports: Rc<RefCell<Option<Vec<String>>>>,
    spaces: Spaces,
}

/// Spaces of which programs lock ranges through a host, for its lease.
pub type Spaces = Arc<Mutex<BTreeSet<String>>>;

impl HostView {
    pub(crate) fn new(host: View<HoldingHost<Host>>, shell: Arc<Counters>) -> HostView {
        HostView { host, shell, exports: Rc::default(), spaces: Spaces::default() }
    }

    fn look<T>(&self, at: impl FnOnce(&Host) -> T) -> T {
        self.host.look(|holding| at(holding.host()))
    }

    /// Notes which volumes an NBD server offers through this host, for its lease; empty: all.
    pub fn set_exports(&self, volumes: Vec<String>) {
        self.exports.replace(Some(volumes));
    }

    pub(crate) fn exports(&self) -> Option<Vec<String>> {
        self.exports.borrow().clone()
    }

    pub fn spaces(&self) -> &Spaces {
        &self.spaces
    }

    /// True if a device or the monitor has told this host that it is fenced.
    pub fn is_fenced(&self) -> bool {
        self.look(Host::is_fenced)
    }

    /// The hosts that are fenced, as this host last heard.
    pub fn fence(&self) -> Option<FenceTable> {
        self.look(|host| host.membership().map(|membership| membership.fence.clone()))
    }

    /// The resynchronisation that this host coordinates, if any.
    pub fn coordinates_recovery(&self) -> Option<RecoveryReport> {
        let bytes = BLOCK_BYTES as u64;
        let mut lost: BTreeMap<u64, Vec<ByteRange>> = BTreeMap::new();
        let (device, left) = self.look(|host| {
            for (volume, block) in host.not_restored() {
                lost.entry(volume.0).or_default().push(ByteRange { offset: block * bytes, length: bytes });
            }
            host.coordinates_recovery()
        })?;
        // Every host reads every lease twice a second.
        let named = |(volume, ranges): (u64, Vec<ByteRange>)| {
            (volume, merged(ranges.into_iter()).into_iter().take(LOST_SHOWN_MAX).collect())
        };
        let lost = lost.into_iter().map(named).collect();
        Some(RecoveryReport { device: device.0, left: left.map(|blocks| blocks * bytes), lost })
    }

    /// The progress of this host's scrub of a volume: the first stripe that has not been started.
    pub fn scrubs(&self, volume: VolumeId) -> Option<u64> {
        self.look(|host| host.scrubbing().find(|(scrubbed, ..)| *scrubbed == volume).map(|(_, next, _)| next))
    }

    /// The progress of this host's migration of a volume.
    pub fn migrating(&self, volume: VolumeId) -> Option<MigrationProgress> {
        self.look(|host| host.migrating().find(|progress| progress.volume == volume))
    }

    /// The requests that wait because something is missing, if any.
    pub fn waiting(&self) -> Option<WaitingReport> {
        let (requests, longest, devices) = self.look(|host| host.waiting(braid_shell::now().time));
        let devices = devices.into_iter().map(|device| device.0).collect();
        let (requests, longest_millis) = (requests as u64, longest.as_millis() as u64);
        (requests > 0).then_some(WaitingReport { requests, longest_millis, devices })
    }

    /// True if no operation is under way on a volume.
    pub fn is_idle_for(&self, volume: VolumeId) -> bool {
        self.look(|host| host.is_idle_for(volume))
    }

    /// How many requests have found corrupt blocks of each device.
    pub fn corrupt(&self) -> BTreeMap<DeviceId, u64> {
        self.look(|host| {
            let found = host.observed_devices().map(|(device, observed)| (device, observed.corrupt));
            found.filter(|(_, corrupt)| *corrupt > 0).collect()
        })
    }

    /// What was refused for want of space: volumes and devices, with the number of requests.
    pub fn refused_for_space(&self) -> BTreeMap<Short, u64> {
        self.look(|host| host.refused_for_space().collect())
    }

    /// The metrics of the host, its shell and this process since their start.
    pub fn counters(&self) -> Metrics {
        let beside = of_shell(&self.shell).chain(of_process()).chain([of_clock()]);
        self.look(|host| {
            let named = host.counters().list().into_iter().map(|(name, value)| (name.to_string(), value));
            named.chain(host.observed_devices().filter_map(response_time)).chain(beside).collect()
        })
    }
}

/// The name of a host's counter of how long its heartbeats wait for the answer of a device, in microseconds.
pub fn response_counter(device: DeviceId) -> String {
    format!("response_micros_{device}")
}

fn response_time((device, observed): (DeviceId, ObservedDevice)) -> Option<(String, u64)> {
    Some((response_counter(device), observed.response_time?.as_micros() as u64))
}

/// The name of the counter that tells a process's wall clock. Devices tell theirs under the same name.
pub const CLOCK_COUNTER: &str = "clock_millis";

/// CPU time that this process has used, with all its threads in user and kernel mode, in microseconds.
pub fn cpu_micros() -> u64 {
    let used = clock_gettime(ClockId::ProcessCPUTime);
    used.tv_sec as u64 * 1_000_000 + used.tv_nsec as u64 / 1000
}

pub fn of_shell(shell: &Counters) -> impl Iterator<Item = (String, u64)> {
    shell.list().into_iter().map(|(name, value)| (name.to_string(), value))
}

/// The wall clock of this process, in milliseconds since 1970.
pub fn of_clock() -> (String, u64) {
    (CLOCK_COUNTER.to_string(), unix_millis_now())
}

/// The resource usage of this process, and its memory budget.
pub fn of_process() -> impl Iterator<Item = (String, u64)> {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let resident = resident_bytes(&status).map(|bytes| ("resident_bytes".to_string(), bytes));
    let budget = Budget::process();
    let memory = [("memory_budget_bytes", budget.limit()), ("memory_used_bytes", budget.used())];
    let memory = memory.map(|(name, bytes)| (name.to_string(), bytes));
    std::iter::once(("cpu_micros".to_string(), cpu_micros())).chain(resident).chain(memory)
}

/// The resident memory in bytes, from the content of `/proc/PID/status`.
fn resident_bytes(status: &str) -> Option<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::*;
    #[test]
    fn memory_is_read_from_what_the_kernel_says() {
        assert_eq!(resident_bytes("Name:\tbraid\nVmHWM:\t 9999 kB\nVmRSS:\t   1234 kB\n"), Some(1234 * 1024));
        assert_eq!(resident_bytes("Name:\tbraid\n"), None);
    }

    #[test]
    fn this_process_uses_time_and_memory() {
        let figures: Vec<_> = of_process().collect();
        let names: Vec<_> = figures.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(names, ["cpu_micros", "resident_bytes", "memory_budget_bytes", "memory_used_bytes"]);
        assert!(figures[..3].iter().all(|(_, value)| *value > 0), "{figures:?}");
    }
}
