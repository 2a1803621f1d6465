//! The machines of an array, and the tokens by which further ones join: one key of the registry, `machines`. A machine that joins becomes a
//! candidate with the same swap. A token is good for one machine and for an hour; what is kept of it is a hash.
//!
//! Machines are never taken off the list: the next one gets the highest number of a candidate plus one, so no two ever have the same. A
//! promise of one that is thought to be gone is never taken for that of another. One that comes never again is only no candidate any more.

use braid_base::limits::DEVICES_MAX;
use braid_base::{ArrayId, Clock, DeviceId};
use braid_leadership::CandidateId;
use serde::{Deserialize, Serialize};
use siphasher::sip128::{Hasher128, SipHasher24};
use std::collections::{BTreeMap, BTreeSet};
use std::hash::Hasher;
use std::time::Duration;

/// Where devices listen, above a machine's first port.
const DEVICE_PORTS: u16 = 10;
/// How long a token is good.
pub const TOKEN_LIFE: Duration = Duration::from_secs(3600);
/// So many tokens are known, those included that were used or have ended: they are refused with the reason.
const TOKENS_MAX: usize = 64;

/// A machine of the array.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MachineEntry {
    /// The number of its monitor among the candidates.
    pub candidate: u16,
    /// Its name or address in the network.
    pub host: String,
    /// It runs a monitor, and neither devices nor servers.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub witness: bool,
    /// It comes never again, unless it joins anew: its monitor is no candidate.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub gone: bool,
    /// The first of its ports: that of the monitor's HTTP interface. The next one is the monitor's own, and those of devices follow.
    pub port: u16,
}

/// A token, without its secret.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Token {
    hash: String,
    /// By the clocks of leaders.
    ends: Clock,
    /// The machine that has used it, and the number of that request, which can be repeated.
    used_by: Option<(String, u64)>,
}

/// The value of the key `machines`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Machines {
    pub machines: BTreeMap<String, MachineEntry>,
    tokens: Vec<Token>,
}

/// A machine that is to join by a token.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Joining {
    pub array: ArrayId,
    pub secret: u128,
    /// Names the request, so that it can be repeated.
    pub nonce: u64,
    pub name: String,
    /// Its host and first port; none if the array knows it.
    pub at: Option<(String, u16)>,
    pub witness: bool,
}

impl MachineEntry {
    /// `HOST:PORT` of its monitor's HTTP interface.
    pub fn http(&self) -> String {
        self.at(self.port)
    }

    /// Where its monitor listens for devices and hosts.
    pub fn wire(&self) -> String {
        self.at(self.port + 1)
    }

    /// Where a device of it listens.
    pub fn device(&self, id: DeviceId) -> String {
        self.at(self.port + DEVICE_PORTS + id.0)
    }

    fn at(&self, port: u16) -> String {
        format!("{}:{port}", self.host)
    }
}

/// What is kept of the secret of a token, in hexadecimal digits: the secret can't be found from this.
pub fn hash_of(array: ArrayId, secret: u128) -> String {
    let mut hasher = SipHasher24::new_with_key(&secret.to_le_bytes());
    hasher.write(&array.0);
    format!("{:032x}", hasher.finish128().as_u128())
}

/// Why machines can't be together in an array.
pub fn check(machines: &BTreeMap<String, MachineEntry>) -> Result<(), String> {
    let numbers: BTreeSet<_> = machines.values().map(|entry| entry.candidate).collect();
    let ports = DEVICE_PORTS + DEVICES_MAX as u16;
    let most = u16::MAX - ports;
    let is_host = |host: &str| !host.is_empty() && (!host.contains(':') || host.starts_with('['));
    let overlap = |one: &MachineEntry, other: &MachineEntry| {
        let are_there = !one.gone && !other.gone;
        are_there && one.candidate < other.candidate && one.host == other.host && one.port.abs_diff(other.port) < ports
    };
    let mut pairs = machines.values().flat_map(|one| machines.values().map(move |other| (one, other)));
    match () {
        () if let Some(wrong) = machines.values().find(|entry| !is_host(&entry.host) || entry.port == 0) => {
            Err(format!("{} is no HOST:PORT; an address of IPv6 is in brackets", wrong.http()))
        }
        () if let Some((one, other)) = pairs.find(|(one, other)| overlap(one, other)) => {
            let (one, other) = (one.http(), other.http());
            Err(format!("{one} and {other} have common ports: on one host they must be {ports} apart"))
        }
        () if numbers.len() < machines.len() => Err("two machines have one number".to_string()),
        () if machines.values().any(|entry| entry.port > most) => Err(format!("a port is above {most}")),
        () => Ok(()),
    }
}

impl Machines {
    pub fn new(machines: BTreeMap<String, MachineEntry>) -> Machines {
        Machines { machines, tokens: Vec::new() }
    }

    /// Takes a token with this hash. It can be repeated.
    pub(crate) fn add_token(&mut self, now: Clock, hash: String) -> Result<(), String> {
        if self.machines.is_empty() {
            return Err("the registry has no list of the array's machines".into());
        }
        if self.tokens.iter().all(|token| token.hash != hash) {
            self.tokens.drain(..self.tokens.len().saturating_sub(TOKENS_MAX - 1));
            self.tokens.push(Token { hash, ends: now.ahead(TOKEN_LIFE), used_by: None });
        }
        Ok(())
    }

    /// The machine joins, and uses up its token. Returns the number of its candidate.
    pub(crate) fn join(&mut self, now: Clock, array: ArrayId, joining: Joining) -> Result<CandidateId, String> {
        let Joining { secret, nonce, name, at, witness, .. } = joining;
        if joining.array != array {
            return Err(format!("it is one of array {}, and this is array {array}", joining.array));
        }
        let hash = hash_of(array, secret);
        let token = self.tokens.iter().position(|token| token.hash == hash);
        let token = token.ok_or("it is not known: it is wrong, or there were many since")?;
        let (there, user) = (self.machines.get(&name), (name.clone(), nonce));
        match (&self.tokens[token], there) {
            (Token { used_by: Some(by), .. }, Some(entry)) if *by == user && !entry.gone => {
                return Ok(CandidateId(entry.candidate));
            }
            (Token { used_by: Some((by, _)), .. }, _) => return Err(format!("machine {by} has used it")),
            (Token { ends, .. }, _) if *ends <= now => return Err("it has ended: make another one".into()),
            _ => {}
        }
        let entry = match (there, at) {
            (None, None) => return Err(format!("the array has no machine {name}: say where it is (NAME=HOST)")),
            (Some(entry), Some((host, port))) if !entry.gone && (&entry.host, entry.port) != (&host, port) => {
                return Err(format!("the array has a machine {name} already, at {}", entry.http()));
            }
            (Some(entry), _) if !entry.gone => entry.clone(),
            (there, at) => {
                let before = || there.map(|entry| (entry.host.clone(), entry.port));
                let (host, port) = at.or_else(before).expect("one of them is there");
                let numbers = self.machines.values().map(|entry| entry.candidate);
                let candidate = numbers.max().unwrap_or(0).checked_add(1).ok_or("there are too many machines")?;
                MachineEntry { candidate, host, port, witness, gone: false }
            }
        };
        let candidate = CandidateId(entry.candidate);
        let machines: BTreeMap<_, _> = self.machines.clone().into_iter().chain([(name, entry)]).collect();
        check(&machines)?;
        self.machines = machines;
        self.tokens[token].used_by = Some(user);
        Ok(candidate)
    }

    /// A machine comes never again. Returns the number that its candidate had.
    pub(crate) fn leave(&mut self, name: &str, leader: Option<CandidateId>) -> Result<CandidateId, String> {
        let entry = self.machines.get_mut(name).ok_or_else(|| format!("the array has no machine {name}"))?;
        let candidate = CandidateId(entry.candidate);
        if leader == Some(candidate) {
            return Err(format!("the monitor of machine {name} leads"));
        }
        entry.gone = true;
        Ok(candidate)
    }
}
