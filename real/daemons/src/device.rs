//! The daemon of one device: serving its file or disk.

use crate::daemon::{self, MonitorAt, Stage};
use crate::observed::ObservedDevice;
use braid_admin::device_file::DeviceFile;
use braid_admin::failure::Failure;
use braid_base::NodeId;
use braid_base::limits::Settings;
use braid_device::{Device, DeviceConfig, Service};
use braid_shell::{Address, Counters, EngineChoice, Node, run_server};
use std::sync::Arc;
use tokio::sync::watch;

/// A device that is to be served.
pub struct DeviceDaemon {
    file: DeviceFile,
    /// Bytes of what its objects hold that it keeps in memory; none: as many as usual.
    object_memory: Option<u64>,
}

impl DeviceDaemon {
    /// Of a file or disk that was opened. It keeps `object_memory` bytes of what its objects hold in memory, if that is said.
    pub fn new(file: DeviceFile, object_memory: Option<u64>) -> DeviceDaemon {
        DeviceDaemon { file, object_memory }
    }

    /// Serves the device at `listen`, whenever the monitor lets it, until `stop` ends. Calls `serving` with the address once its
    /// store has recovered. `own_process` says that this process does nothing else; otherwise hosts in it need no network to get here.
    pub async fn serve(
        self,
        listen: &Address,
        monitor: MonitorAt,
        own_process: bool,
        serving: impl FnOnce(&Address),
        stop: impl Future<Output = ()>,
    ) -> Result<(), Failure> {
        let listener = daemon::bind(listen, own_process).await?;
        let address = listener.address().clone();
        let superblock = *self.file.superblock();
        let (medium, store) = (self.file.medium(), self.file.store_config());
        let disk = self.file.into_disk();
        let path = disk.path().display().to_string();
        let us = Node { array: superblock.array, id: NodeId::Device(superblock.device) };
        // One that sees no folder learns from the monitor how long its own lease is.
        let leases = match &monitor {
            MonitorAt::Folder(folder) => folder.describe()?.leases().settings(),
            MonitorAt::Address(_) => Settings::default(),
        };
        let object_memory = self.object_memory.unwrap_or(Settings::default().object_memory);
        let settings = Settings { object_memory, ..leases };
        let device = Device::on(medium, DeviceConfig { store, membership: None, settings });
        let counters = Arc::new(Counters::default());
        let (machine, seen) = ObservedDevice::new(device, counters.clone(), own_process);
        let (follow, nodes) = watch::channel(monitor.known());
        let (_, running) = run_server(machine, us, (disk, EngineChoice::Automatic), listener, nodes, counters, stop);
        let stage = |service: &Service| match service {
            Service::Off | Service::Recovering => Stage::Starting,
            Service::Serving => Stage::Serving,
            Service::Unusable(error) => Stage::Unusable(Failure::from(error.clone()).of(&path)),
        };
        daemon::run(running, monitor.follow(follow), seen, stage, || serving(&address)).await
    }
}
