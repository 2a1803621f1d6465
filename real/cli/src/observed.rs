//! Machines that can be looked at while they run: what they, their shell and their process have counted.

use crate::counts::Counts;
use braid_base::{Now, Time};
use braid_device::{Device, Service};
use braid_host::Host;
use braid_machine::{Effect, Effects, Input, Machine};
use braid_shell::Counters;
use braid_wire::{Command, Managed, Message, Reply, Task};
use rustix::time::{ClockId, clock_gettime};
use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;
use tokio::sync::watch;

/// A device that shows whether it serves, and whose answers to [`Task::Inspect`] also tell what is counted around it.
pub struct ObservedDevice {
    device: Device,
    seen: watch::Sender<Service>,
    shell: Arc<Counters>,
    own_process: bool,
}

impl ObservedDevice {
    /// `own_process` says that the process is there for this device alone, so that its figures are the device's.
    pub fn new(device: Device, shell: Arc<Counters>, own_process: bool) -> (Self, watch::Receiver<Service>) {
        let (seen, service) = watch::channel(Service::Off);
        (ObservedDevice { device, seen, shell, own_process }, service)
    }

    /// Steps through a request to inspect, and adds to the answer.
    fn inspect(&mut self, now: Now, input: Input, out: &mut Effects) {
        let mut effects = Effects::new();
        self.device.step(now, input, &mut effects);
        for effect in effects.drain() {
            match effect {
                Effect::Send { to, mut message } => {
                    if let Message::Answer(answer) = &mut message
                        && let Reply::Managed { result: Ok(Managed::Inspected(inspection)), .. } = &mut answer.reply
                    {
                        inspection.counters.extend(of_shell(&self.shell));
                        if self.own_process {
                            inspection.counters.extend(of_process());
                        }
                    }
                    out.send(to, message);
                }
                Effect::Disk { tag, command } => out.disk(tag, command),
                Effect::Reply { op, outcome } => out.reply(op, outcome),
            }
        }
        effects.drain_ignored().for_each(|why| out.ignore(why));
    }
}

impl Machine for ObservedDevice {
    fn step(&mut self, now: Now, input: Input, out: &mut Effects) {
        if asks_to_inspect(&input) {
            self.inspect(now, input, out);
        } else {
            self.device.step(now, input, out);
        }
        self.seen.send_if_modified(|seen| {
            let changed = seen != self.device.service();
            if changed {
                *seen = self.device.service().clone();
            }
            changed
        });
    }

    fn deadline(&self) -> Option<Time> {
        self.device.deadline()
    }

    fn invariants(&self) {
        self.device.invariants();
    }
}

/// A host that runs in a task of this thread.
pub struct ObservedHost(Rc<RefCell<Host>>);

/// The way to look at an [`ObservedHost`]. It needs no message, and wakes nobody.
#[derive(Clone)]
pub struct HostView {
    host: Rc<RefCell<Host>>,
    shell: Arc<Counters>,
}

impl ObservedHost {
    /// A host, and the way to look at it.
    pub fn new(host: Host, shell: Arc<Counters>) -> (ObservedHost, HostView) {
        let host = Rc::new(RefCell::new(host));
        (ObservedHost(host.clone()), HostView { host, shell })
    }
}

impl Machine for ObservedHost {
    fn step(&mut self, now: Now, input: Input, out: &mut Effects) {
        self.0.borrow_mut().step(now, input, out);
    }

    fn deadline(&self) -> Option<Time> {
        self.0.borrow().deadline()
    }

    fn invariants(&self) {
        self.0.borrow().invariants();
    }
}

impl HostView {
    /// What the host, its shell and this whole process have counted since their start.
    pub fn counters(&self) -> Counts {
        let host = self.host.borrow().counters().list();
        let host = host.into_iter().map(|(name, value)| (name.to_string(), value));
        host.chain(of_shell(&self.shell)).chain(of_process()).collect()
    }
}

/// CPU time that this process has used, all its threads and both modes together, in microseconds.
pub fn cpu_micros() -> u64 {
    let used = clock_gettime(ClockId::ProcessCPUTime);
    used.tv_sec as u64 * 1_000_000 + used.tv_nsec as u64 / 1000
}

fn asks_to_inspect(input: &Input) -> bool {
    matches!(input, Input::Message { message: Message::Request(request), .. }
        if matches!(request.command, Command::Manage { task: Task::Inspect, .. }))
}

fn of_shell(shell: &Counters) -> impl Iterator<Item = (String, u64)> {
    shell.values().into_iter().map(|(name, value)| (name.to_string(), value))
}

fn of_process() -> impl Iterator<Item = (String, u64)> {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let resident = resident_bytes(&status).map(|bytes| ("resident_bytes".to_string(), bytes));
    std::iter::once(("cpu_micros".to_string(), cpu_micros())).chain(resident)
}

/// Memory that a process holds, in bytes, from what the kernel says of it.
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
        assert_eq!(names, ["cpu_micros", "resident_bytes"]);
        assert!(figures.iter().all(|(_, value)| *value > 0), "{figures:?}");
    }
}
