//! An NBD front end: an NBD server and the host behind it.

use crate::exports::Exports;
use braid_admin::failure::Failure;
use braid_nbd::{BindError, Server, Settings};
use braid_session::Session;
use braid_shell::Address;
use std::sync::Arc;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

/// A running NBD server with a host of its own; any number of front ends may serve the same volumes.
pub struct NbdFrontEnd {
    session: Session,
    address: Address,
    stop: oneshot::Sender<()>,
    server: JoinHandle<()>,
}

impl NbdFrontEnd {
    /// Serves the volumes named in `only` (all, if it is empty) through `server`, with the host of `session`.
    pub fn start(session: Session, server: Server, only: Vec<String>) -> NbdFrontEnd {
        let address = server.address().clone();
        let exports = Arc::new(Exports::new(&session, only));
        let (stop, stopped) = oneshot::channel::<()>();
        let server = tokio::spawn(server.run(exports, async {
            let _ = stopped.await;
        }));
        NbdFrontEnd { session, address, stop, server }
    }

    pub fn session(&self) -> &Session {
        &self.session
    }

    /// The address of the server.
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
    Server::bind(address, Settings::default()).await.map_err(|error| match error {
        BindError::InUse { address: Address::Unix(_) } => Failure::failed("port-taken", error.to_string())
            .hint("another server listens on that socket: stop it, or choose another path"),
        BindError::InUse { .. } => Failure::failed("port-taken", error.to_string())
            .hint("use --port 0 (or an address with port 0) to take any free port"),
        BindError::Io { source, .. } => Failure::from(source).of(format!("can't listen on {address}")),
    })
}
