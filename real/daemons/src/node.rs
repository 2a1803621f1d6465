//! A node: the daemons of some devices of this machine, a host, and its NBD server, in one process and one thread.
//!
//! A message between them passes through memory, and wakes no other process; all other messages use the network. A device whose disk
//! fails ends alone, and so does a host that is fenced: each starts again. A crash of the process ends all of it. Devices of other
//! processes, and their hosts, continue.

use crate::device;
use crate::front_end::NbdFrontEnd;
use crate::supervisor::{Kept, Running, Share, Supervised, Tuning};
use braid_admin::failure::Failure;
use braid_base::{DeviceId, NodeId};
use braid_control::{ControlPlane, WhenUnavailable};
use braid_session::{HEARTBEAT, require_up};
use braid_shell::Address;
use std::pin::pin;

/// A node that is about to be started.
#[derive(Clone, Debug)]
pub struct NodeOptions {
    pub share: Share,
    pub listen: Address,
    /// What requests of NBD clients do while devices are missing; none for the volumes' own settings.
    pub unavailable: Option<WhenUnavailable>,
    pub tuning: Tuning,
}

/// What a node tells whoever started it.
pub enum Told<'a> {
    /// A device serves, or is down.
    Device(DeviceId, &'a Result<Running, Failure>),
    Serving(&'a Address),
    /// The NBD server can't serve yet, and is tried again; devices serve.
    NotServing(&'a Failure),
    /// The host has ended; the devices serve until they are asked to end.
    HostEnded,
}

/// Runs a node. When `stop` completes, the host ends, and then, after `release`, the devices. Must be awaited in a `LocalSet`.
pub async fn run(
    control: &ControlPlane,
    options: NodeOptions,
    tell: impl Fn(Told),
    stop: impl Future<Output = ()>,
    release: impl Future<Output = ()>,
) -> Result<(), Failure> {
    let NodeOptions { share, listen, unavailable, tuning } = options;
    let description = control.describe().await?;
    share.check(&description)?;
    require_up(control).await?;
    let role = format!("node {}", share.number());
    // With `braid up`, the first node serves at the socket in the folder, too.
    let in_folder = share.number() == 0 && matches!(share, Share::Part { .. });
    // Whoever starts a node by hand is told at once if its port is taken. Under a supervisor the devices don't wait for that.
    let bound = match share {
        Share::Part { .. } => None,
        Share::These(_) => Some(NbdFrontEnd::bind(control, &listen, in_folder).await?),
    };
    let listen = bound.as_ref().map_or(listen, |server| server.address().clone());
    let devices = description.devices.iter().filter(|entry| share.has(control, entry)).count() as u64;
    let object_memory = Some(tuning.object_memory.unwrap_or_else(|| device::object_memory(devices)));
    let mut supervised = Supervised::of_node(control, &description, share, Tuning { object_memory, ..tuning });
    let mut front = match bound {
        Some(server) => Some(NbdFrontEnd::begin(control, &role, server, unavailable).await?),
        None => None,
    };
    if front.is_some() {
        tell(Told::Serving(&listen));
    }
    let open = || {
        let failed = |failure: &Failure| tell(Told::NotServing(failure));
        NbdFrontEnd::open_until_it_serves(control, &role, (&listen, in_folder), unavailable, failed)
    };
    let (mut stop, mut changed, mut opening) = (pin!(stop), pin!(control.replaced(HEARTBEAT)), pin!(open()));
    loop {
        tokio::select! {
            () = &mut stop => break,
            opened = &mut opening, if front.is_none() => {
                tell(Told::Serving(opened.address()));
                front = Some(opened);
            }
            report = supervised.report() => {
                if let Kept::Daemon(NodeId::Device(device)) = report.of {
                    tell(Told::Device(device, &report.state));
                }
            }
            () = &mut changed => {
                match control.describe().await {
                    Ok(description) => supervised.follow(&description),
                    Err(error) => tracing::warn!("can't read which devices to run: {error}"),
                }
                changed.set(control.replaced(HEARTBEAT));
            }
            loss = async { front.as_ref().expect("there is one").session().lost().await }, if front.is_some() => {
                tracing::warn!("the host was fenced, and starts again: {loss}");
                if let Some(fenced) = front.take() {
                    fenced.stop().await;
                }
                opening.set(open());
            }
        }
    }
    if let Some(front) = front {
        front.stop().await;
    }
    tell(Told::HostEnded);
    release.await;
    supervised.stop().await;
    Ok(())
}
