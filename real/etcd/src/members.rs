//! The members of etcd, and which one is asked. A member that has not answered in time, or with an error, is avoided for five seconds: a
//! stopped member accepts connections and answers nothing, and a client that took turns would meet it again and again.

use crate::RegistryError;
use std::sync::Mutex;
use std::time::Duration;
use tokio::time::Instant;
use tonic::transport::{Channel, Endpoint};

/// A connection that says nothing for so long is asked whether it is there, and given up after the same time. Otherwise a connection from
/// before a break of the network would wait for its next repetition, up to as long as the break was.
const HEARD: Duration = Duration::from_secs(1);
/// How long a member is avoided.
const AVOIDED: Duration = Duration::from_secs(5);

#[derive(Debug)]
pub(crate) struct Members {
    members: Vec<Member>,
    state: Mutex<State>,
}

#[derive(Debug)]
struct Member {
    endpoint: String,
    channel: Channel,
}

#[derive(Debug)]
struct State {
    /// The one that is asked.
    present: usize,
    /// Until when each is avoided.
    avoided: Vec<Option<Instant>>,
}

/// A member that is to be asked.
#[derive(Clone, Debug)]
pub(crate) struct Chosen {
    index: usize,
    pub endpoint: String,
    pub channel: Channel,
}

impl Members {
    /// Connects when the first call is made. `patience`: after so long without an answer a call has failed.
    pub fn new(endpoints: &[String], patience: Duration) -> Result<Members, RegistryError> {
        let member = |endpoint: &String| {
            let bad = |why: String| RegistryError::Endpoint { endpoint: endpoint.clone(), why };
            let address = Endpoint::from_shared(endpoint.clone()).map_err(|error| bad(error.to_string()))?;
            if address.uri().scheme_str() != Some("http") || address.uri().port().is_none() {
                return Err(bad("it is of the form http://HOST:PORT".into()));
            }
            let address = address.connect_timeout(patience).timeout(patience);
            let address =
                address.http2_keep_alive_interval(HEARD).keep_alive_timeout(HEARD).keep_alive_while_idle(true);
            let channel = address.connect_lazy();
            Ok(Member { endpoint: endpoint.clone(), channel })
        };
        let members: Vec<_> = endpoints.iter().map(member).collect::<Result<_, _>>()?;
        if members.is_empty() {
            return Err(RegistryError::Endpoint { endpoint: String::new(), why: "at least one is needed".into() });
        }
        let state = State { present: 0, avoided: vec![None; members.len()] };
        Ok(Members { members, state: Mutex::new(state) })
    }

    /// The present member, or the next one if that is avoided. If all are, the one that is avoided for the shortest time from now.
    pub fn choose(&self) -> Chosen {
        let now = Instant::now();
        let mut state = self.state.lock().expect("no panic");
        let count = self.members.len();
        let turns = (0..count).map(|step| (state.present + step) % count);
        let left = |index: &usize| state.avoided[*index].map_or(Duration::ZERO, |until| until.duration_since(now));
        let index = turns.min_by_key(left).expect("there are members");
        state.present = index;
        let Member { endpoint, channel } = &self.members[index];
        Chosen { index, endpoint: endpoint.clone(), channel: channel.clone() }
    }

    /// A call to this member has failed.
    pub fn avoid(&self, chosen: &Chosen) {
        self.state.lock().expect("no panic").avoided[chosen.index] = Some(Instant::now() + AVOIDED);
    }

    /// A call to this member was answered.
    pub fn accept(&self, chosen: &Chosen) {
        self.state.lock().expect("no panic").avoided[chosen.index] = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn members(count: u16) -> Members {
        let endpoints: Vec<_> = (1..=count).map(|port| format!("http://127.0.0.1:{port}")).collect();
        Members::new(&endpoints, Duration::from_millis(500)).expect("endpoints")
    }

    #[tokio::test(start_paused = true)]
    async fn a_member_that_failed_is_avoided_for_five_seconds() {
        let members = members(3);
        let first = members.choose();
        assert_eq!((first.index, members.choose().index), (0, 0));
        members.avoid(&first);
        let second = members.choose();
        assert_eq!(second.index, 1);
        tokio::time::advance(Duration::from_secs(1)).await;
        members.avoid(&second);
        assert_eq!(members.choose().index, 2);
        members.avoid(&members.choose());
        assert_eq!(members.choose().index, 0, "the first of all that failed");
        tokio::time::advance(Duration::from_secs(6)).await;
        assert_eq!(members.choose().index, 0, "it stays with one member");
        members.avoid(&first);
        members.accept(&first);
        assert_eq!(members.choose().index, 0);
    }

    #[tokio::test]
    async fn endpoints_are_urls_with_a_port() {
        for endpoint in ["", "127.0.0.1:2379", "https://127.0.0.1:2379", "http://127.0.0.1", "unix:/a/b"] {
            assert!(Members::new(&[endpoint.into()], AVOIDED).is_err(), "{endpoint}");
        }
        assert!(Members::new(&[], AVOIDED).is_err());
    }
}
