//! Fencing of a host at an operator's or a cluster manager's word: its lease ends, and devices refuse its requests for good. A host that
//! is only silent is fenced by itself ([`crate::silent_host_fencing`]).

use crate::array::Array;
use crate::failure::Failure;
use braid_base::Generation;
use braid_control::{HostEntry, Moment};
use braid_host_leases::{Fence, LeaseEnd};
use braid_machine::ArrayRequest;
use braid_session::Session;
use std::time::{Duration, Instant};

/// How long a fence may take: a device that can't be reached serves a host no longer than its own lease.
const FENCE_WAIT: Duration = Duration::from_secs(60);
/// The pause before it is tried again.
const FENCE_PAUSE: Duration = Duration::from_millis(100);

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HostName {
    /// One start of a host.
    Generation(Generation),
    /// All hosts with this role, such as `nbd 127.0.0.1:10810`: the name of a server that stays the same when it starts again.
    Role(String),
}

/// A fence that is final: no device serves these hosts any more.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FencedHosts {
    pub hosts: Vec<Generation>,
    /// True if none of them had a lease any more: they had ended, or had been fenced before.
    pub already: bool,
}

impl HostName {
    /// Reads a name: `h17` or `17`, or a role.
    pub fn read(text: &str) -> HostName {
        let digits = text.strip_prefix('h').unwrap_or(text);
        digits
            .parse()
            .map_or_else(|_| HostName::Role(text.to_string()), |number| HostName::Generation(Generation(number)))
    }

    pub fn means(&self, host: &HostEntry) -> bool {
        match self {
            HostName::Generation(generation) => host.generation == *generation,
            HostName::Role(role) => host.role == *role,
        }
    }
}

impl Array {
    /// The hosts with leases, ascending by generation. `live` of an entry says whether it has renewed its lease in time.
    pub async fn hosts(&self) -> Result<Vec<HostEntry>, Failure> {
        let lease = self.control().describe().await?.leases().lease();
        Ok(self.control().leases().hosts(Moment::now(), lease).await?)
    }

    /// Fences hosts; returns when that is final: no device serves them any more, and each of their writes has taken effect or never will.
    /// A host that has no lease any more is fenced once more, which does no harm. Errors: `not-up`, `no-such-host` (its generation was never
    /// given out, or no host has had this role), `fence-not-final`.
    pub async fn fence_hosts(&self, name: &HostName) -> Result<FencedHosts, Failure> {
        let with_leases: Vec<Generation> =
            self.hosts().await?.iter().filter(|host| name.means(host)).map(|host| host.generation).collect();
        let hosts = match name {
            HostName::Generation(generation) => vec![*generation],
            HostName::Role(_) => with_leases.clone(),
        };
        let already = with_leases.is_empty();
        if let HostName::Role(role) = name
            && already
            && !self.control().leases().had_role(role.clone()).await?
        {
            let message = format!("no host has had the role '{role}'");
            return Err(Failure::unreachable("no-such-host", message)
                .hint("`braid host list` lists the hosts with their roles"));
        }
        if hosts.is_empty() {
            return Ok(FencedHosts { hosts, already });
        }
        self.with_host("host fence", async |session| {
            if let Some(host) = hosts.iter().find(|host| host.0 == 0 || **host >= session.generation()) {
                let message = format!("there is no host {host}");
                return Err(Failure::unreachable("no-such-host", message).hint("`braid host list` lists the hosts"));
            }
            for host in &hosts {
                fence_one(session, *host).await?;
            }
            Ok(FencedHosts { hosts: hosts.clone(), already })
        })
        .await
    }
}

async fn fence_one(session: &Session, host: Generation) -> Result<(), Failure> {
    let begun = Instant::now();
    loop {
        // The lease ends first: then the host can't renew it, and its fence follows even if this process dies now.
        let ended = session.control().leases().expire_one(host, Moment::now(), Duration::ZERO).await?;
        let why = match ended {
            LeaseEnd::Lives => format!("host {host} renews its lease"),
            LeaseEnd::Ended(Fence { below, except }) => {
                match session.client().call(ArrayRequest::Fence { below, except }).await {
                    Ok(_) => break,
                    Err(error) => error.to_string(),
                }
            }
        };
        if begun.elapsed() > FENCE_WAIT {
            let message = format!("host {host} has no lease any more, but devices may still serve it: {why}");
            return Err(Failure::unreachable("fence-not-final", message).hint("repeat the command until it succeeds"));
        }
        tokio::time::sleep(FENCE_PAUSE).await;
    }
    Ok(session.control().leases().forget(vec![host]).await?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_is_named_by_its_number_or_by_its_role() {
        assert_eq!(HostName::read("h17"), HostName::Generation(Generation(17)));
        assert_eq!(HostName::read("17"), HostName::Generation(Generation(17)));
        assert_eq!(HostName::read("nbd 127.0.0.1:10809"), HostName::Role("nbd 127.0.0.1:10809".into()));
    }
}
