//! The device daemon: serves the file or disk of one device.

use crate::daemon::{self, MonitorAt, Platform, Stage};
use crate::published_metrics::InspectedDevice;
use crate::recording;
use braid_admin::device_file::DeviceFile;
use braid_admin::failure::Failure;
use braid_base::NodeId;
use braid_base::limits::Settings;
use braid_device::{Device, DeviceConfig, Service};
use braid_recording::RecordingRequest;
use braid_shell::{Address, Budget, Counters, Node};
use std::sync::Arc;
use tokio::sync::watch;

/// A request that needs more of the object index at once is refused.
const OBJECT_MEMORY_MIN: u64 = 32 << 20;

/// In how much memory each device of a process caches objects' content, unless another size is set. What a process takes beside what it holds
/// for its peers is a part of its budget, so the caches together take no more than half of that, unless it is too little for large requests.
pub fn object_memory(devices: u64) -> u64 {
    let share = Budget::process().limit() / 2 / devices.max(1);
    share.clamp(OBJECT_MEMORY_MIN, Settings::default().object_memory)
}

/// A device that is about to be served.
pub struct DeviceDaemon {
    file: DeviceFile,
    /// Bytes of memory in which objects' content is cached; none for the default.
    object_memory: Option<u64>,
    recording: Option<RecordingRequest>,
}

impl DeviceDaemon {
    /// A device on an open file or disk. `object_memory` is the size of the cache for objects' content in bytes; none for the default.
    pub fn new(file: DeviceFile, object_memory: Option<u64>) -> DeviceDaemon {
        DeviceDaemon { file, object_memory, recording: None }
    }

    pub fn recorded(self, recording: Option<RecordingRequest>) -> DeviceDaemon {
        DeviceDaemon { recording, ..self }
    }

    /// Serves the device at `listen`, whenever it has the monitor's lease, until `stop` completes. Calls `serving` with the address once
    /// the store has recovered. `own_process` says that the process runs nothing else; otherwise hosts in the process bypass the network.
    pub async fn serve(
        self,
        listen: &Address,
        monitor: MonitorAt,
        own_process: bool,
        serving: impl FnOnce(&Address),
        stop: impl Future<Output = ()>,
    ) -> Result<(), Failure> {
        let superblock = *self.file.superblock();
        let (medium, store) = (self.file.medium(), self.file.store_config());
        let platform = Platform::bind(self.file.into_disk(), listen, own_process).await?;
        let (address, path) = (platform.address(), platform.disk_path());
        let us = Node { array: superblock.array, id: NodeId::Device(superblock.device) };
        // A device without access to the control plane is told the length of its lease by the monitor.
        let leases = match &monitor {
            MonitorAt::Control(control) => control.describe().await?.leases().settings(),
            MonitorAt::Addresses(_) => Settings::default(),
        };
        let object_memory = self.object_memory.unwrap_or_else(|| object_memory(1));
        let settings = Settings { object_memory, ..leases };
        let holder = match &monitor {
            MonitorAt::Control(control) => control.cluster().map(|cluster| cluster.holder()),
            MonitorAt::Addresses(_) => None,
        };
        let config = DeviceConfig { store, membership: None, settings, holder };
        let counters = Arc::new(Counters::default());
        let recorder = recording::begin(self.recording.as_ref(), recording::DEVICE, &(medium, &config), &counters)?;
        let device = Device::on(medium, config);
        let (machine, seen) = InspectedDevice::new(device, recorder, counters.clone(), own_process);
        let (follow, nodes) = watch::channel(monitor.known(us.id).await);
        let (_, running) = platform.run(machine, us, nodes, counters, stop);
        let stage = |service: &Service| match service {
            Service::Off | Service::Recovering => Stage::Starting,
            Service::Serving => Stage::Serving,
            Service::Unusable(error) => Stage::Unusable(Failure::from(error.clone()).of(&path)),
        };
        daemon::run(running, monitor.follow(us.id, follow), seen, stage, || serving(&address)).await
    }
}
