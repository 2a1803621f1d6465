//! An array on several machines: planning a new one, joining it with a machine, and making the files of a machine's devices.
//! `docs/three-machines.md` shows the course of it.

use crate::array_creation::{CreateOptions, check_name, device_entries};
use crate::copies;
use crate::device_file;
use crate::failure::Failure;
use crate::state_from_devices::{self, NUMBERS_LEFT_OUT};
use braid_base::{ArrayId, DeviceId, Generation};
use braid_control::{
    ArrayDescription, CLUSTER_SCHEMA, Cluster, ClusterFile, ControlError, ControlPlane, DeviceEntry, HostEntry,
    LocalFolder, MachineEntry, Moment, MonitorRole, Supervision, new_array_id, shell_word,
};
use braid_layout::RaidLevel;
use braid_leader_client::http::{self, CLUSTER};
use braid_leader_client::{AskError, LeaderClient};
use braid_registrar::{Content, Joining, LeaseEntry, Machines, Reply, Request, TOKEN_LIFE, hash_of};
use braid_store::StoreConfig;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The first port of a machine, unless another one is named.
pub const PORT: u16 = 7400;
/// The devices of a machine, unless another number is asked for.
pub const DEVICES: u16 = 2;
/// How long a machine that is to be joined may take to answer.
const JOIN_WAIT: Duration = Duration::from_secs(10);
/// What `array.json` is called when its array has become one of several machines.
pub(crate) const MOVED: &str = "array.adopted.json";
/// The wait before it is looked again whether other machines have made their devices' files, or a monitor leads.
const PAUSE: Duration = Duration::from_millis(200);

/// A new array on several machines.
#[derive(Clone, Debug)]
pub struct NewCluster {
    /// The machine on which this is asked for.
    pub machine: String,
    /// The name, host and first port of each.
    pub machines: Vec<(String, String, u16)>,
    /// Further ones, without devices.
    pub witnesses: Vec<(String, String, u16)>,
    pub etcd: Vec<String>,
    pub insecure_network: bool,
    /// The devices of each machine.
    pub devices: u16,
    /// The rest. The number of devices follows.
    pub asked: CreateOptions,
}

impl NewCluster {
    /// The file of this machine, and the description of the array. Nothing is made.
    pub fn plan(self) -> Result<(ClusterFile, ArrayDescription), Failure> {
        let (count, devices, asked) = (self.machines.len() as u16, self.devices, self.asked.clone());
        let layout = asked.layout.or(match count {
            0 | 1 => None,
            2 => Some(RaidLevel::Raid1 { copies: 2 }),
            _ => Some(RaidLevel::Raid5 { data: usize::from(count) - 1 }),
        });
        if let Some(wide) = layout.filter(|layout| layout.width() > usize::from(count)) {
            let message = format!("a stripe of {wide} has {} units, each on another of {count} machines", wide.width());
            return Err(Failure::usage("bad-layout", message).hint("choose another --layout, or name more machines"));
        }
        let devices = devices.checked_mul(count).ok_or_else(|| Failure::usage("bad-devices", "too many devices"))?;
        let creation = CreateOptions { devices: Some(devices), layout, ..asked }.creation()?;
        let file = self.file(new_array_id(), creation.lease_millis)?;
        let mut entries = device_entries(&creation);
        for (entry, (name, machine)) in entries.iter_mut().zip(file.storing().cycle()) {
            entry.domain.clone_from(name);
            entry.address = Some(machine.device(DeviceId(entry.id)));
        }
        let description = ArrayDescription::new(file.array, entries, creation);
        description.check().map_err(|reason| Failure::usage("bad-machines", reason))?;
        Ok((file, description))
    }

    /// The file of this machine.
    fn file(self, array: ArrayId, lease_millis: u64) -> Result<ClusterFile, Failure> {
        let NewCluster { machine, machines, witnesses, etcd, insecure_network, .. } = self;
        let of = |witness| move |machine| (witness, machine);
        let all: Vec<_> = machines.into_iter().map(of(false)).chain(witnesses.into_iter().map(of(true))).collect();
        for (_, (name, ..)) in &all {
            check_name(name)?;
        }
        let named = all.len();
        let machines: BTreeMap<_, _> = all
            .into_iter()
            .zip(1..)
            .map(|((witness, (name, host, port)), candidate)| {
                (name, MachineEntry { candidate, host, port, witness, gone: false })
            })
            .collect();
        let file =
            ClusterFile { schema: CLUSTER_SCHEMA, array, machine, machines, etcd, lease_millis, insecure_network };
        file.check().map_err(|reason| Failure::usage("bad-machines", reason))?;
        if file.machines.len() < named {
            return Err(Failure::usage("bad-machines", "a machine is named twice"));
        }
        Ok(file)
    }
}

/// An array of one machine that is to be one of several. It is not started meanwhile.
pub struct Adoption {
    supervision: Supervision,
    folder: LocalFolder,
    pub file: ClusterFile,
    /// What etcd is to have.
    pub content: Content,
    /// The disk of its monitor.
    pub disk: Vec<u8>,
}

impl Adoption {
    /// That of the array in this folder. Nothing is changed.
    pub async fn plan(dir: &Path, new: &NewCluster) -> Result<Adoption, Failure> {
        let control = ControlPlane::at(dir);
        let (folder, moved) = (control.local().clone(), control.local().dir().join(MOVED));
        if control.cluster().is_some() {
            let message = format!("{} is a folder of a machine of an array on several already", dir.display());
            return Err(Failure::failed("array-exists", message));
        }
        let array = folder.dir().join("array.json");
        // Without an array, no folder is made.
        if !moved.exists() {
            control.describe().await?;
        }
        let supervision = folder.supervise()?;
        if moved.exists() && !array.exists() {
            // An adoption was interrupted just before its end.
            std::fs::rename(&moved, &array)?;
        }
        let mut description = control.describe().await?;
        state_from_devices::obstacles(&folder, &description).into_iter().next().map_or(Ok(()), Err)?;
        let refused = |code: &str, message: &str, hint: &str| Err(Failure::failed(code, message).hint(hint));
        if !description.spares.is_empty() {
            return refused(
                "has-spares",
                "an array on several machines has no spares yet",
                "remove them first: `braid device list`",
            );
        }
        if !description.populated || description.devices.iter().any(|entry| entry.address.is_some()) {
            return refused(
                "not-adoptable",
                "the array was never up, or others run its devices",
                "start it once with `braid up`",
            );
        }
        let hosts = control.leases().hosts(Moment::now(), description.leases().lease()).await?;
        if let Some(host) = hosts.iter().find(|host| host.live) {
            let message = format!("host {} ({}) still uses the array", host.generation.0, host.role);
            return refused("host-in-use", &message, "end it, and try again");
        }
        let file = new.clone().file(description.array, description.creation.lease_millis)?;
        for entry in &mut description.devices {
            entry.domain.clone_from(&file.machine);
            entry.address = Some(file.own().device(DeviceId(entry.id)));
        }
        description.revision += 1;
        // A process that is just starting may take one more in the folder.
        let last = folder.known_generation()?.unwrap_or_default().saturating_add(NUMBERS_LEFT_OUT as u32);
        let lease = |host: &HostEntry| {
            let nonce = uuid::Uuid::new_v4().as_u64_pair().0;
            LeaseEntry { role: host.role.clone(), nonce, is_over: host.is_over, is_asked_to_end: false }
        };
        let leases = hosts.iter().map(|host| (host.generation, lease(host))).collect();
        let machines = Machines::new(file.machines.clone());
        let content = Content { leases, machines, ..Content::new(description, Generation(last)) };
        let disk = folder.monitor_state()?.unwrap_or_default();
        Ok(Adoption { supervision, folder, file, content, disk })
    }

    /// Makes the folder that of a machine, when etcd has the array. Returns the file that was `array.json`.
    pub fn finish(self) -> Result<(ClusterFile, PathBuf), Failure> {
        let moved = self.folder.dir().join(MOVED);
        std::fs::rename(self.folder.dir().join("array.json"), &moved)?;
        Cluster::create(&self.folder, &self.file)?;
        // Its content is in etcd, and would soon be an old one.
        let _ = std::fs::remove_file(self.folder.dir().join("monitor.state"));
        drop(self.supervision);
        Ok((self.file, moved))
    }
}

/// A machine that is to join: its name, its host and first port if the array does not know it, and whether it is a witness.
pub type Joiner = (String, Option<(String, u16)>, bool);

/// Makes this folder one of a machine of an array. `by`: the monitor of a machine there, if the array has this machine, or a token.
pub async fn join(control: &ControlPlane, by: &str, joiner: Joiner) -> Result<ClusterFile, Failure> {
    Cluster::require_none(control.local())?;
    let read = |token: &str| {
        let (array, secret) = token.split_once('.')?;
        Some((ArrayId(array.parse::<uuid::Uuid>().ok()?.into_bytes()), u128::from_str_radix(secret, 16).ok()?))
    };
    let bad_token = || Failure::usage("bad-token", "a token has the form ARRAY.SECRET@HOST:PORT,…");
    let token = by.split_once('@').map(|(token, _)| read(token).ok_or_else(bad_token)).transpose()?;
    let addresses = by.rsplit('@').next().unwrap_or_default().split(',');
    let with_port = |at: &str| if at.contains(':') { at.to_string() } else { format!("{at}:{PORT}") };
    let addresses: Vec<_> = addresses.map(with_port).collect();
    let mut found = known_by(&addresses[0]).await;
    for address in &addresses[1..] {
        found = if found.is_ok() { found } else { known_by(address).await };
    }
    let (name, at, witness) = joiner;
    let mut file = ClusterFile { machine: name.clone(), ..found? };
    let unusable = |reason| Failure::usage("bad-machines", reason);
    if let Some((array, secret)) = token {
        check_name(&name)?;
        if let Some((host, port)) = at.clone() {
            // What can't be is found before the token is used.
            let new = MachineEntry { candidate: u16::MAX, host, witness, gone: false, port };
            file.machines.insert(name.clone(), new);
            file.check().map_err(unusable)?;
        }
        let nonce = uuid::Uuid::new_v4().as_u64_pair().0;
        let joining = Joining { array, secret, nonce, name: name.clone(), at, witness };
        match LeaderClient::new(addresses).ask(&Request::Join(joining), JOIN_WAIT).await {
            Ok(Reply::Machines(machines)) => file.machines = machines.machines,
            Err(AskError::Refused { code, message }) => {
                return Err(Failure::failed(&code, message).hint(format!(
                    "`braid cluster token` makes another one; a machine that the array has joins with `braid cluster join HOST:PORT --machine {name}`"
                )));
            }
            other => {
                let message = format!("no monitor that leads has answered, and the machine may join yet: {other:?}");
                return Err(Failure::unreachable("no-leader", message).hint(format!(
                    "once `braid status` shows the machine: `braid cluster join HOST:PORT --machine {name}`"
                )));
            }
        }
    } else if let Some(entry) = file.machines.get(&name) {
        if entry.gone {
            return Err(Failure::usage("no-such-machine", format!("machine {name} was removed"))
                .hint("it joins with a token: `braid cluster token`"));
        }
        if witness || at.is_some_and(|at| at != (entry.host.clone(), entry.port)) {
            let message = format!("the array has machine {name} at {}, and does not change that", entry.http());
            return Err(Failure::usage("bad-machines", message).hint("name it alone: `--machine NAME`"));
        }
    } else {
        let names = file.machines.keys().cloned().collect::<Vec<_>>().join(", ");
        return Err(Failure::usage("no-such-machine", format!("the array has no machine {name}"))
            .hint(format!("there are: {names}; another one joins with a token: `braid cluster token`")));
    }
    file.check().map_err(unusable)?;
    Cluster::create(control.local(), &file)?;
    Ok(file)
}

/// How the machine whose monitor is at this address knows the array.
async fn known_by(address: &str) -> Result<ClusterFile, Failure> {
    let unreachable = |why: String| {
        Failure::unreachable("no-monitor", format!("{address}: {why}"))
            .hint("name HOST:PORT of a machine whose `braid agent` runs")
    };
    let called = http::call(address, (http::Method::GET, CLUSTER), Vec::new(), JOIN_WAIT).await;
    let (status, body) = called.map_err(|error| unreachable(error.to_string()))?;
    let found = serde_json::from_slice::<ClusterFile>(&body);
    found.map_err(|error| unreachable(format!("no monitor of an array answers there ({status}: {error})")))
}

/// Makes a token, by which one more machine can join for this time.
pub async fn token(cluster: &Cluster) -> Result<(String, Duration), Failure> {
    let (array, secret) = (cluster.file()?.array, uuid::Uuid::new_v4().as_u128());
    let machines = cluster.machines(Request::Token { hash: hash_of(array, secret) }).await?.machines;
    let there = machines.values().filter(|entry| !entry.gone).map(MachineEntry::http);
    Ok((format!("{array}.{secret:032x}@{}", there.collect::<Vec<_>>().join(",")), TOKEN_LIFE))
}

/// A machine comes never again: its monitor is no candidate any more.
pub async fn remove(cluster: &Cluster, name: &str) -> Result<(), Failure> {
    // The leader knows its address, also if it has joined since this process began.
    let there = cluster.machines(Request::Machines).await?.machines.remove(name);
    let there = there.ok_or_else(|| Failure::usage("no-such-machine", format!("the array has no machine {name}")))?;
    let role = cluster.monitors_of([(name.to_string(), there)].into()).await;
    if role.values().any(|role| *role != MonitorRole::Silent) {
        let message = format!("the monitor of machine {name} runs");
        return Err(Failure::failed("monitor-running", message).hint("end `braid agent` there, and try again"));
    }
    cluster.machines(Request::Leave { name: name.to_string() }).await.map(drop).map_err(Failure::from)
}

/// The description, once a monitor leads, with the disks of this machine's devices, whose files are made if they are missing at the first
/// start of the array.
pub async fn open(control: &ControlPlane) -> Result<ArrayDescription, Failure> {
    let description = described(control).await?;
    copies::require_newest(control.local(), &description).map_err(|failure| {
        failure.hint(
            "etcd has gone back to an earlier state: bring back its newer data; or end all agents, and see `braid cluster recover --help`",
        )
    })?;
    if control
        .cluster()
        .is_some_and(|cluster| cluster.file().is_ok_and(|file| file.lease_millis != description.creation.lease_millis))
    {
        let message = "the lease in cluster.json is not that of the array";
        return Err(
            Failure::usage("bad-lease", message).hint("correct `lease_millis` there, as other machines have it")
        );
    }
    let lacking = description.devices.iter().filter(|entry| control.runs(entry) && entry.disk.is_none());
    let mut disks = BTreeMap::new();
    for entry in lacking {
        let config = StoreConfig { array: description.array, device: DeviceId(entry.id), size: entry.size };
        disks.insert(entry.id, device_file::create(&entry.path(control.local().dir()), &config, true)?);
    }
    if disks.is_empty() {
        return Ok(description);
    }
    control
        .update(|description| {
            for entry in description.devices.iter_mut().filter(|entry| entry.disk.is_none()) {
                entry.disk = disks.get(&entry.id).copied();
            }
            description.created = description.devices.iter().all(|entry| entry.disk.is_some());
            Ok::<_, Failure>(description.clone())
        })
        .await
}

/// Waits until a monitor leads.
async fn described(control: &ControlPlane) -> Result<ArrayDescription, Failure> {
    loop {
        match control.describe().await {
            Err(error @ ControlError::NoLeader { .. }) => {
                tracing::warn!("waiting for a monitor: {error}")
            }
            described => return Ok(described?),
        }
        tokio::time::sleep(PAUSE).await;
    }
}

/// Waits until the files of all devices have been made. True if it is this machine that then makes the first volumes.
pub async fn all_made(control: &ControlPlane) -> Result<bool, Failure> {
    let Some(cluster) = control.cluster() else { return Ok(true) };
    let file = cluster.file()?;
    let mut named = None;
    while file.storing().next().is_some_and(|(first, _)| *first == file.machine) {
        let description = described(control).await?;
        let lacking = description.devices.iter().filter(|entry| entry.disk.is_none());
        let lacking: Vec<_> = lacking.map(|entry| entry.domain.clone()).collect();
        if lacking.is_empty() {
            return Ok(true);
        }
        if named.as_ref() != Some(&lacking) {
            tracing::warn!("waiting for `braid agent` on these machines: {}", lacking.join(", "));
            named = Some(lacking);
        }
        tokio::time::sleep(PAUSE).await;
    }
    Ok(false)
}

/// Refuses what an array on several machines does not have.
pub(crate) fn refuse(control: &ControlPlane, what: &str) -> Result<(), Failure> {
    match control.cluster() {
        None => Ok(()),
        Some(_) => Err(Failure::usage("not-on-machines", format!("an array on several machines has no {what} yet"))),
    }
}

/// Refuses work on the disk of a device that another machine has.
pub(crate) fn require_here(control: &ControlPlane, device: &DeviceEntry) -> Result<(), Failure> {
    if control.cluster().is_none_or(|cluster| cluster.has(device)) {
        return Ok(());
    }
    let message = format!("device {} is one of machine {}", device.id, device.domain);
    Err(Failure::usage("other-machine", message).hint("run this command there"))
}

/// Puts a new device on this machine, if the array is on several.
pub(crate) fn place(control: &ControlPlane, device: &mut DeviceEntry) -> Result<(), Failure> {
    let Some(cluster) = control.cluster() else { return Ok(()) };
    let file = cluster.file()?;
    if file.own().witness {
        return Err(Failure::usage("witness", format!("machine {} has no devices: it is a witness", file.machine)));
    }
    device.domain.clone_from(&file.machine);
    device.address = Some(file.own().device(DeviceId(device.id)));
    Ok(())
}

/// What to do on the other machines.
pub fn joining(file: &ClusterFile) -> Vec<String> {
    let others = file.machines.keys().filter(|name| **name != file.machine);
    others.map(|name| format!("braid cluster join {} --machine {}", file.own().http(), shell_word(name))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use braid_control::Live;
    use std::collections::BTreeSet;

    fn new(machines: &[&str], witnesses: &[&str]) -> NewCluster {
        let all = |names: &[&str]| names.iter().map(|name| (name.to_string(), format!("{name}.lan"), PORT)).collect();
        NewCluster {
            machine: machines[0].into(),
            machines: all(machines),
            witnesses: all(witnesses),
            etcd: vec!["http://m1:2379".into()],
            insecure_network: true,
            devices: 2,
            asked: CreateOptions::default(),
        }
    }

    #[test]
    fn devices_are_dealt_among_machines_and_servers_among_live_ones() {
        let (file, description) = new(&["m1", "m2", "m3"], &[]).plan().unwrap();
        let devices = description.devices.iter();
        let devices: Vec<_> = devices.map(|entry| (entry.domain.as_str(), entry.address.as_deref().unwrap())).collect();
        assert_eq!((devices.len(), description.creation.layout.as_str()), (6, "raid5:2+1"));
        assert_eq!((devices[1], devices[5]), (("m2", "m2.lan:7411"), ("m3", "m3.lan:7415")));
        let of = |live: &[&str], number| {
            let machines = live.iter().map(|name| name.to_string()).collect();
            let live = Live {
                machines,
                served_elsewhere: BTreeSet::new(),
                locks_elsewhere: BTreeSet::new(),
                all: file.machines.clone(),
            };
            let on = |name: &&String| {
                ClusterFile { machine: name.to_string(), ..file.clone() }.deals_here(number, Some(&live))
            };
            file.machines.keys().filter(on).cloned().collect::<Vec<_>>()
        };
        assert_eq!(
            [of(&["m1", "m2", "m3"], 1), of(&["m1", "m3"], 1), of(&["m1"], 2), of(&[], 2)],
            [vec!["m2".to_string()], vec!["m3".into()], vec!["m1".into()], vec![]]
        );
    }

    #[test]
    fn a_witness_has_no_devices() {
        let (file, description) = new(&["m1", "m2"], &["a"]).plan().unwrap();
        assert!(
            description.devices.iter().all(|entry| entry.domain != "a")
                && file.deals_here(7, None) != file.deals_here(8, None)
        );
        assert_eq!((file.machines.len(), description.creation.layout.as_str()), (3, "raid1:2"));
    }

    #[test]
    fn arrays_that_can_t_be_made_are_refused() {
        for (machines, witnesses, code) in [
            (vec!["m1", "m1"], vec![], "bad-machines"),
            (vec!["m1", "m2"], vec!["m2"], "bad-machines"),
            (vec!["-"], vec![], "bad-name"),
        ] {
            assert_eq!(new(&machines, &witnesses).plan().unwrap_err().code, code, "{machines:?}");
        }
        for (host, port, insecure_network) in
            [("m1.lan", PORT, false), ("", PORT, true), ("m1.lan", 0, true), ("::1", PORT, true)]
        {
            let machines = vec![("m1".to_string(), host.to_string(), port)];
            let refused = NewCluster { machines, insecure_network, ..new(&["m1"], &[]) }.plan();
            assert_eq!(refused.unwrap_err().code, "bad-machines", "{host}:{port}");
        }
        let layout = Some(RaidLevel::Raid5 { data: 3 });
        let wide =
            NewCluster { asked: CreateOptions { layout, ..CreateOptions::default() }, ..new(&["m1", "m2", "m3"], &[]) };
        assert_eq!(wide.plan().unwrap_err().code, "bad-layout");
    }
}
