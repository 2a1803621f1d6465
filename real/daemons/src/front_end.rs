//! An NBD front end: an NBD server and the host behind it.

use crate::exports::Exports;
use braid_admin::failure::Failure;
use braid_control::{ArrayDescription, ControlPlane, VolumeEntry, WhenUnavailable};
use braid_nbd::{BindError, Server, Settings, uri};
use braid_recording::RecordingRequest;
use braid_session::{Session, addressing, is_usable, require_up};
use braid_shell::Address;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

/// The wait before retrying to start a host after the previous one was fenced.
pub const REOPEN_PAUSE: Duration = Duration::from_secs(1);

/// A running NBD server with a host of its own; any number of front ends may serve the same volumes.
pub struct NbdFrontEnd {
    session: Session,
    address: Address,
    stop: oneshot::Sender<()>,
    server: JoinHandle<()>,
}

/// A volume that NBD clients can use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExportedVolume {
    pub name: String,
    pub bytes: u64,
    pub uri: String,
    /// Its URI on the socket in the array's folder, if it is served there.
    pub unix_uri: Option<String>,
}

/// True if NBD can serve a volume: attribute volumes have no blocks, and the volumes of file systems are not for programs.
pub fn is_for_nbd(description: &ArrayDescription, volume: &VolumeEntry) -> bool {
    !volume.attribute_volume && description.file_system_of(volume).is_none()
}

/// The volumes that a server at `address`, and perhaps at `socket`, exports: those named in `only`, or all if it is empty.
pub fn exported(
    description: &ArrayDescription,
    only: &[String],
    address: &Address,
    socket: Option<&Address>,
) -> Vec<ExportedVolume> {
    // Requests for volumes that are on hold wait.
    let volumes = description.volumes.iter().filter(|volume| is_usable(volume));
    let volumes = volumes.filter(|volume| is_for_nbd(description, volume));
    let volumes = volumes.filter(|volume| only.is_empty() || only.contains(&volume.name));
    let exported = volumes.map(|volume| {
        let (name, uri) = (volume.name.clone(), uri(address, &volume.name));
        let unix_uri = socket.map(|socket| braid_nbd::uri(socket, &volume.name));
        ExportedVolume { name, bytes: volume.bytes, uri, unix_uri }
    });
    exported.collect()
}

impl NbdFrontEnd {
    /// Starts a server at `listen` for a running array, with a host of its own. It serves the volumes named in `only`, or all if it is
    /// empty. Errors: `no-such-volume`, `is-an-attribute-volume`,
    /// `belongs-to-file-system`, `not-up`, `port-taken`.
    pub async fn open(
        control: &ControlPlane,
        listen: &Address,
        only: Vec<String>,
        unavailable: Option<WhenUnavailable>,
        recording: Option<RecordingRequest>,
    ) -> Result<NbdFrontEnd, Failure> {
        let description = control.describe().await?;
        for name in &only {
            if braid_description::find_for_programs(&description, name)?.attribute_volume {
                let message = format!("{name} is an attribute volume: it has no blocks that NBD could serve");
                return Err(Failure::usage("is-an-attribute-volume", message));
            }
        }
        require_up(control).await?;
        let server = bind(listen).await?;
        let role = format!("nbd {}", server.address());
        Ok(NbdFrontEnd::start(Session::start_recorded(control, &role, recording).await?, server, only, unavailable))
    }

    /// Serves until `stop` completes, and then ends after the requests in flight. Fails if its host is fenced.
    pub async fn serve(self, stop: impl Future<Output = ()>) -> Result<(), Failure> {
        tokio::select! {
            () = stop => {
                self.stop().await;
                Ok(())
            }
            loss = self.session.lost() => Err(loss.into()),
        }
    }

    /// Binds a server at `listen`, and at the socket in the array's folder if it is `in_folder`.
    pub async fn bind(control: &ControlPlane, listen: &Address, in_folder: bool) -> Result<Server, Failure> {
        let mut server = bind(listen).await?;
        if in_folder {
            also_bind_in_folder(&mut server, control).await?;
        }
        Ok(server)
    }

    /// Serves all volumes through `server` with a new host.
    pub async fn begin(
        control: &ControlPlane,
        role: &str,
        server: Server,
        unavailable: Option<WhenUnavailable>,
    ) -> Result<NbdFrontEnd, Failure> {
        Ok(NbdFrontEnd::start(Session::start(control, role).await?, server, Vec::new(), unavailable))
    }

    /// Serves all volumes with a new host at this address, and perhaps in the folder. It is tried until it succeeds; `failed` is told of each
    /// failure.
    pub async fn open_until_it_serves(
        control: &ControlPlane,
        role: &str,
        (address, in_folder): (&Address, bool),
        unavailable: Option<WhenUnavailable>,
        failed: impl Fn(&Failure),
    ) -> NbdFrontEnd {
        loop {
            let front = async {
                let server = NbdFrontEnd::bind(control, address, in_folder).await?;
                NbdFrontEnd::begin(control, role, server, unavailable).await
            };
            match front.await {
                Ok(front) => return front,
                Err(failure) => {
                    tracing::error!("can't serve volumes; trying again: {failure}");
                    failed(&failure);
                    tokio::time::sleep(REOPEN_PAUSE).await;
                }
            }
        }
    }

    /// Serves the volumes named in `only` (all, if it is empty) through `server`, with the host of `session`.
    pub fn start(
        session: Session,
        server: Server,
        only: Vec<String>,
        unavailable: Option<WhenUnavailable>,
    ) -> NbdFrontEnd {
        let address = server.address().clone();
        session.view().set_exports(only.clone());
        let exports = Arc::new(Exports::new(&session, only, unavailable));
        let (stop, stopped) = oneshot::channel::<()>();
        let server = tokio::spawn(server.run(exports, async {
            let _ = stopped.await;
        }));
        NbdFrontEnd { session, address, stop, server }
    }

    pub fn session(&self) -> &Session {
        &self.session
    }

    pub fn address(&self) -> &Address {
        &self.address
    }

    /// Waits for clients' requests, then ends the host.
    pub async fn stop(self) {
        let _ = self.stop.send(());
        let _ = self.server.await;
        self.session.end().await;
    }
}

/// Binds the server early, so that a port in use is reported before anything is created.
pub async fn bind(address: &Address) -> Result<Server, Failure> {
    Server::bind(address, Settings::default()).await.map_err(|error| bind_failure(address, error))
}

/// Has the server of this array listen on the socket in its folder, too.
pub async fn also_bind_in_folder(server: &mut Server, control: &ControlPlane) -> Result<(), Failure> {
    let address = addressing::nbd_socket(control)?;
    server.also_bind(&address).await.map_err(|error| bind_failure(&address, error))
}

/// Why a server can't listen at an address.
pub fn bind_failure(address: &Address, error: BindError) -> Failure {
    match error {
        BindError::InUse { address: Address::Unix(_) } => Failure::failed("port-taken", error.to_string())
            .hint("another server listens on that socket: stop it, or choose another path"),
        BindError::InUse { .. } => {
            Failure::failed("port-taken", error.to_string()).hint("choose another port; port 0 takes any that is free")
        }
        BindError::Io { source, .. } => Failure::from(source).of(format!("can't listen on {address}")),
    }
}
