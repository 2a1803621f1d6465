//! An NBD server and the host behind it.

use crate::exports::Exports;
use braid_admin::failure::Failure;
use braid_nbd::{BindError, Server, Settings};
use braid_session::Session;
use braid_shell::Address;
use std::sync::Arc;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

/// A running server. Its host is its own; so any number of them may serve the same volumes.
pub struct NbdFrontEnd {
    session: Session,
    address: Address,
    stop: oneshot::Sender<()>,
    server: JoinHandle<()>,
}

impl NbdFrontEnd {
    /// Serves the volumes called `only` (all, if none are named) through `server`, by way of a host.
    pub fn start(session: Session, server: Server, only: Vec<String>) -> NbdFrontEnd {
        let address = server.address().clone();
        let exports = Arc::new(Exports::new(&session, only));
        let (stop, stopped) = oneshot::channel::<()>();
        let server = tokio::spawn(server.run(exports, async {
            let _ = stopped.await;
        }));
        NbdFrontEnd { session, address, stop, server }
    }

    /// The host.
    pub fn session(&self) -> &Session {
        &self.session
    }

    /// Where it listens.
    pub fn address(&self) -> &Address {
        &self.address
    }

    /// Lets clients' requests end, then the host.
    pub async fn stop(self) {
        let _ = self.stop.send(());
        let _ = self.server.await;
        self.session.end().await;
    }
}

/// Listens already, so that a port which is taken is known of before anything is made.
pub async fn bind(address: &Address) -> Result<Server, Failure> {
    Server::bind(address, Settings::default()).await.map_err(|error| match error {
        BindError::InUse { address: Address::Unix(_) } => Failure::failed("port-taken", error.to_string())
            .hint("a server listens on that socket: end it, or name another path"),
        BindError::InUse { .. } => Failure::failed("port-taken", error.to_string())
            .hint("--port 0 (or an address with port 0) takes any free one"),
        BindError::Io { source, .. } => Failure::from(source).of(format!("can't listen on {address}")),
    })
}
