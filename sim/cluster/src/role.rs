//! The machines of an array as one type, so that one world can run them all.

use crate::surveyor::Surveyor;
use braid_base::{Now, Time};
use braid_device::Device;
use braid_files::FileClient;
use braid_host::Host;
use braid_locks::LockServer;
use braid_machine::{Effects, Input, Machine};
use braid_membership::Monitor;
use braid_metadata::MetadataNode;

/// The machine of a node.
pub enum Role {
    Device(Box<Device>),
    Host(Box<Host>),
    /// A host that has a file system mounted.
    FileHost(Box<FileClient<Host>>),
    /// The process of a metadata server.
    Metadata(Box<MetadataNode<Host>>),
    LockServer(Box<LockServer>),
    Monitor(Box<Monitor>),
    /// Reads the components of a volume on the devices, for checks.
    Surveyor(Box<Surveyor>),
    /// A machine of a scenario that contains a host.
    Composite(Box<dyn Machine>),
}

impl Role {
    /// The host that the machine is, or contains.
    pub fn host(&self) -> Option<&Host> {
        match self {
            Role::Host(host) => Some(host),
            Role::FileHost(client) => Some(client.host()),
            Role::Metadata(node) => Some(node.host()),
            _ => None,
        }
    }

    fn machine(&self) -> &dyn Machine {
        match self {
            Role::Device(device) => &**device,
            Role::Host(host) => &**host,
            Role::FileHost(client) => &**client,
            Role::Metadata(node) => &**node,
            Role::LockServer(server) => &**server,
            Role::Monitor(monitor) => &**monitor,
            Role::Surveyor(surveyor) => &**surveyor,
            Role::Composite(machine) => &**machine,
        }
    }
}

impl Machine for Role {
    fn step(&mut self, now: Now, input: Input, out: &mut Effects) {
        match self {
            Role::Device(device) => device.step(now, input, out),
            Role::Host(host) => host.step(now, input, out),
            Role::FileHost(client) => client.step(now, input, out),
            Role::Metadata(node) => node.step(now, input, out),
            Role::LockServer(server) => server.step(now, input, out),
            Role::Monitor(monitor) => monitor.step(now, input, out),
            Role::Surveyor(surveyor) => surveyor.step(now, input, out),
            Role::Composite(machine) => machine.step(now, input, out),
        }
    }

    fn deadline(&self) -> Option<Time> {
        self.machine().deadline()
    }

    fn invariants(&self) {
        self.machine().invariants();
    }
}
