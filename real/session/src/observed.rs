//! A host whose state other tasks can read while it runs: the metrics of the host, its shell and its process, and its jobs.

use crate::metrics::Metrics;
use braid_base::{BLOCK_BYTES, FenceTable, Now, Time, VolumeId};
use braid_control::{ByteRange, RecoveryReport, merged};
use braid_host::{Host, MigrationProgress};
use braid_machine::{Effects, HostError, HostRequest, Input, Machine};
use braid_shell::Counters;
use rustix::time::{ClockId, clock_gettime};
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// A host that runs in a task of this thread, and starts no operation on volumes that are on hold.
pub struct ObservedHost {
    host: Rc<RefCell<Host>>,
    holds: Holds,
    /// Requests for volumes on hold, in the order of their arrival.
    held: Vec<(VolumeId, Input)>,
}

/// The volumes on hold: a host must start no operation on them for now. A hold ends when the host adopts the volume's new description,
/// or is told that the volume has been deleted.
#[derive(Clone, Debug, Default)]
pub struct Holds(Arc<Mutex<BTreeSet<VolumeId>>>);

/// The most ranges of a volume that a lease lists.
const LOST_SHOWN_MAX: usize = 64;

/// Read access to an [`ObservedHost`]. It needs no message, and wakes no task.
#[derive(Clone)]
pub struct HostView {
    host: Rc<RefCell<Host>>,
    holds: Holds,
    shell: Arc<Counters>,
}

impl ObservedHost {
    /// Wraps a host, and returns it with its view.
    pub fn new(host: Host, shell: Arc<Counters>) -> (ObservedHost, HostView) {
        let (host, holds) = (Rc::new(RefCell::new(host)), Holds::default());
        let view = HostView { host: host.clone(), holds: holds.clone(), shell };
        (ObservedHost { host, holds, held: Vec::new() }, view)
    }

    /// Starts the requests that have waited for a volume.
    fn release(&mut self, now: Now, volume: VolumeId, out: &mut Effects) {
        self.holds.end(volume);
        for (_, input) in self.held.extract_if(.., |(held, _)| *held == volume) {
            self.host.borrow_mut().step(now, input, out);
        }
    }
}

impl Machine for ObservedHost {
    fn step(&mut self, now: Now, input: Input, out: &mut Effects) {
        let mut told = None;
        if let Input::Request { request, .. } = &input {
            match request {
                HostRequest::AdoptVolume { volume } => told = Some(volume.id),
                HostRequest::DropVolume { volume } => told = Some(*volume),
                HostRequest::Abandon { ops } => {
                    let held = |(_, input): &mut (VolumeId, Input)| matches!(input, Input::Request { op, .. } if ops.contains(op));
                    for (_, input) in self.held.extract_if(.., held) {
                        let Input::Request { op, .. } = input else { unreachable!("only requests are held") };
                        out.reply(op, Err(HostError::Abandoned));
                    }
                }
                _ => {
                    if let Some(volume) = volume_of(request).filter(|volume| self.holds.contains(*volume)) {
                        return self.held.push((volume, input));
                    }
                }
            }
        }
        self.host.borrow_mut().step(now, input, out);
        if let Some(volume) = told {
            self.release(now, volume, out);
        }
    }

    fn deadline(&self) -> Option<Time> {
        self.host.borrow().deadline()
    }

    fn invariants(&self) {
        self.host.borrow().invariants();
    }
}

impl Holds {
    /// Puts a volume on hold.
    pub fn begin(&self, volume: VolumeId) {
        self.lock().insert(volume);
    }

    pub fn contains(&self, volume: VolumeId) -> bool {
        self.lock().contains(&volume)
    }

    /// All volumes on hold.
    pub fn all(&self) -> Vec<VolumeId> {
        self.lock().iter().copied().collect()
    }

    /// Ends a volume's hold.
    pub fn end(&self, volume: VolumeId) {
        self.lock().remove(&volume);
    }

    fn lock(&self) -> MutexGuard<'_, BTreeSet<VolumeId>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl HostView {
    /// The volumes on hold.
    pub fn holds(&self) -> &Holds {
        &self.holds
    }

    /// True if a device or the monitor has told this host that it is fenced.
    pub fn is_fenced(&self) -> bool {
        self.host.borrow().is_fenced()
    }

    /// The hosts that are fenced, as this host last heard.
    pub fn fence(&self) -> Option<FenceTable> {
        self.host.borrow().membership().map(|membership| membership.fence.clone())
    }

    /// The resynchronisation that this host coordinates, if any.
    pub fn coordinates_recovery(&self) -> Option<RecoveryReport> {
        let host = self.host.borrow();
        let (device, left) = host.coordinates_recovery()?;
        let bytes = BLOCK_BYTES as u64;
        let mut lost: BTreeMap<u64, Vec<ByteRange>> = BTreeMap::new();
        for (volume, block) in host.not_restored() {
            lost.entry(volume.0).or_default().push(ByteRange { offset: block * bytes, length: bytes });
        }
        // Every host reads every lease twice a second.
        let named = |(volume, ranges): (u64, Vec<ByteRange>)| {
            (volume, merged(ranges.into_iter()).into_iter().take(LOST_SHOWN_MAX).collect())
        };
        let lost = lost.into_iter().map(named).collect();
        Some(RecoveryReport { device: device.0, left: left.map(|blocks| blocks * bytes), lost })
    }

    /// The progress of this host's scrub of a volume: the first stripe that has not been started.
    pub fn scrubs(&self, volume: VolumeId) -> Option<u64> {
        let host = self.host.borrow();
        host.scrubbing().find(|(scrubbed, ..)| *scrubbed == volume).map(|(_, next, _)| next)
    }

    /// The progress of this host's migration of a volume.
    pub fn migrating(&self, volume: VolumeId) -> Option<MigrationProgress> {
        self.host.borrow().migrating().find(|progress| progress.volume == volume)
    }

    /// True if no operation is under way on any volume that is on hold.
    pub fn has_drained(&self) -> bool {
        let host = self.host.borrow();
        self.holds.all().into_iter().all(|volume| host.is_idle_for(volume))
    }

    /// The metrics of the host, its shell and this process since their start.
    pub fn counters(&self) -> Metrics {
        let host = self.host.borrow().counters().list();
        let host = host.into_iter().map(|(name, value)| (name.to_string(), value));
        host.chain(of_shell(&self.shell)).chain(of_process()).collect()
    }
}

/// CPU time that this process has used, with all its threads in user and kernel mode, in microseconds.
pub fn cpu_micros() -> u64 {
    let used = clock_gettime(ClockId::ProcessCPUTime);
    used.tv_sec as u64 * 1_000_000 + used.tv_nsec as u64 / 1000
}

/// The volume on which a request starts an operation; none if the request does not have to wait for a hold.
fn volume_of(request: &HostRequest) -> Option<VolumeId> {
    match request {
        HostRequest::Read { volume, .. }
        | HostRequest::Write { volume, .. }
        | HostRequest::Zero { volume, .. }
        | HostRequest::Allocation { volume, .. }
        | HostRequest::Check { volume, .. }
        | HostRequest::CheckRows { volume, .. }
        | HostRequest::Reconstruct { volume, .. }
        // A scrub is requested for a few stripes at a time, so that the volume can be put on hold in between.
        | HostRequest::Scrub { volume, .. }
        | HostRequest::Restore { volume, .. }
        | HostRequest::Copy { volume, .. }
        | HostRequest::CrossCheck { volume, .. }
        | HostRequest::AttributeVolume { volume, .. }
        | HostRequest::Recompute { volume, .. } => Some(*volume),
        HostRequest::AdoptVolume { .. }
        | HostRequest::DropVolume { .. }
        | HostRequest::Flush { .. }
        | HostRequest::Objects { .. }
        | HostRequest::Await { .. }
        | HostRequest::Disconnect
        | HostRequest::Abandon { .. }
        | HostRequest::Fence { .. }
        // A migration takes long, and consists of the host's own requests.
        | HostRequest::Migrate { .. }
        | HostRequest::StopMigrating { .. }
        | HostRequest::Administer { .. }
        | HostRequest::Manage { .. } => None,
    }
}

/// The counters of a shell.
pub fn of_shell(shell: &Counters) -> impl Iterator<Item = (String, u64)> {
    shell.list().into_iter().map(|(name, value)| (name.to_string(), value))
}

/// The resource usage of this process.
pub fn of_process() -> impl Iterator<Item = (String, u64)> {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let resident = resident_bytes(&status).map(|bytes| ("resident_bytes".to_string(), bytes));
    std::iter::once(("cpu_micros".to_string(), cpu_micros())).chain(resident)
}

/// The resident memory in bytes, from the content of `/proc/PID/status`.
fn resident_bytes(status: &str) -> Option<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::*;
    use braid_base::limits::Settings;
    use braid_base::{DeviceId, Generation, Membership};
    use braid_host::HostConfig;
    use braid_layout::{Atomicity, Layout, Scheme, VolumeDescription};
    use braid_machine::Effect;
    use braid_machine::OpId;
    use braid_wire::Ordering;

    #[test]
    fn requests_of_a_volume_on_hold_begin_when_its_description_is_renewed() {
        let volume = |id: u64, ordering: Ordering| VolumeDescription {
            id: VolumeId(id),
            bytes: 1 << 20,
            layout: Layout::new(Scheme::Raid0 { data: 1 }, 1, 16).unwrap(),
            devices: vec![DeviceId(0)],
            ordering,
            atomicity: Atomicity::Implied,
            moving: None,
        };
        let host = Host::new(HostConfig {
            generation: Generation(1),
            membership: Some(Membership::first([DeviceId(0)])),
            devices: vec![DeviceId(0)],
            lock_servers: Vec::new(),
            acquisition: Default::default(),
            volumes: vec![volume(1, Ordering::Timestamp), volume(2, Ordering::Timestamp)],
            settings: Settings::default(),
            seed: 1,
        });
        let (mut observed, view) = ObservedHost::new(host, Arc::default());
        let mut ask = |op: u64, request: HostRequest| {
            let mut out = Effects::new();
            let input = Input::Request { op: OpId(op), request };
            observed.step(Now { time: Time(1), clock: braid_base::Clock(1) }, input, &mut out);
            let effects = out.drain();
            effects.filter(|effect| matches!(effect, Effect::Send { .. })).count()
        };
        let read = |volume: u64| HostRequest::Read { volume: VolumeId(volume), offset: 0, length: 4096 };
        assert_eq!(ask(1, read(1)), 1);
        view.holds().begin(VolumeId(1));
        assert!(!view.has_drained(), "an operation is still under way");
        assert_eq!(ask(2, read(1)), 0, "it waits");
        assert_eq!(ask(3, read(2)), 1, "a request for another volume does not wait");
        assert_eq!(
            ask(4, HostRequest::AdoptVolume { volume: volume(2, Ordering::None) }),
            0,
            "its volume is not on hold"
        );
        assert_eq!(ask(5, HostRequest::AdoptVolume { volume: volume(1, Ordering::None) }), 1, "now it begins");
        assert!(!view.holds().contains(VolumeId(1)));
        view.holds().begin(VolumeId(7));
        assert!(view.has_drained(), "no operation is under way on the volume on hold");
    }

    #[test]
    fn memory_is_read_from_what_the_kernel_says() {
        assert_eq!(resident_bytes("Name:\tbraid\nVmHWM:\t 9999 kB\nVmRSS:\t   1234 kB\n"), Some(1234 * 1024));
        assert_eq!(resident_bytes("Name:\tbraid\n"), None);
    }

    #[test]
    fn this_process_uses_time_and_memory() {
        let figures: Vec<_> = of_process().collect();
        let names: Vec<_> = figures.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(names, ["cpu_micros", "resident_bytes"]);
        assert!(figures.iter().all(|(_, value)| *value > 0), "{figures:?}");
    }
}
