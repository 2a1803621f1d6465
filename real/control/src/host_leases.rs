//! Host leases: each start of a host takes a fresh generation, with a lease that the host renews while it is alive.
//!
//! A lease ends when it is released, when it was not renewed for its length, or at the next boot of the machine. A generation
//! without a live lease may be fenced: [`ArrayFolder::expire`] first ends the lease for good, so that its host can no longer renew
//! it, and then returns the generations that the devices must refuse.
//!
//! A lease consists of two files. `17.json` says that host 17 has a lease, and whether the lease has expired; it is changed only under
//! the folder's lock. `17.heartbeat` contains the time of the last renewal and the host's report; only the host writes it, without the
//! lock. Therefore a process that is suspended while it holds the lock does not prevent renewals. A renewal that was itself
//! suspended, and completes late, does not revive an expired lease, because `17.json` decides.

use crate::file::{self, Durability};
use crate::folder::HOSTS;
use crate::trust::create_private_folder;
use crate::{ArrayFolder, ByteRange, ControlError, Moment};
use braid_base::Generation;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

/// A host that has a lease, live or expired.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostEntry {
    pub generation: Generation,
    pub pid: u32,
    /// Its role, for display.
    pub role: String,
    /// True if it has renewed its lease within the length given by the caller.
    pub live: bool,
    /// The time since it last renewed its lease; none if that was in another boot.
    pub silent: Option<Duration>,
    /// The report that it published with its last renewal.
    pub report: LeaseReport,
}

/// What a host reports with each renewal of its lease.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LeaseReport {
    /// Its metrics, by name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub counters: BTreeMap<String, u64>,
    /// The newest revision of the description that it has applied: it has no operation under way on volumes that are on hold there.
    #[serde(default)]
    pub revision: u64,
    /// The resynchronisation that it coordinates, if any.
    #[serde(default, alias = "helps", skip_serializing_if = "Option::is_none")]
    pub coordinates_recovery: Option<RecoveryReport>,
    /// The number and address, if it is a lock server.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lock_server: Option<LockService>,
    /// The file system and the address, if it is a metadata server that owns one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metadata_server: Option<MetadataService>,
    /// Where a file system is mounted, if it is the host of a mount.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mount: Option<MountReport>,
}

/// Progress of a host that resynchronises a returning device.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RecoveryReport {
    /// The returning device.
    pub device: u16,
    /// Bytes of volumes that are still to be examined; none while that is being determined.
    pub left: Option<u64>,
    /// Ranges that can't be restored, by volume, as far as known; the first ranges of each volume.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub lost: BTreeMap<u64, Vec<ByteRange>>,
}

/// A lock server that is running.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LockService {
    pub id: u16,
    /// Its address: `HOST:PORT` or `unix:PATH`.
    pub address: String,
}

/// A metadata server that owns its file system.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MetadataService {
    /// The number of the file system.
    pub file_system: u16,
    /// Its address: `HOST:PORT` or `unix:PATH`.
    pub address: String,
    /// True if it answers hosts; otherwise it still reads its journal, or waits for the lease of the owner before.
    #[serde(default)]
    pub serves: bool,
    /// True if it begins no further operations because a check is to begin, and none among several shards is under way here.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub settled: bool,
    /// The generations of the hosts that it has heard of lately, or that may hold locks.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub hosts: Vec<u32>,
    /// The locks of these hosts, in the same order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub locks: Vec<LockCounts>,
}

/// The locks of a host.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LockCounts {
    pub held: u64,
    /// Those that it waits for.
    pub waiting: u64,
}

/// A file system that is mounted in a directory.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MountReport {
    /// The number of the file system.
    pub file_system: u16,
    /// The directory, without symbolic links.
    pub directory: String,
}

/// Leases that have expired.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Expired {
    /// The generations that held them, and that can no longer renew them.
    pub gone: Vec<Generation>,
    /// The generations that the devices must refuse. The devices need to be told only if `gone` is not empty: a host that
    /// disconnected gracefully has left no request that could arrive late.
    pub fence: Fence,
}

/// The outcome of [`ArrayFolder::expire_one`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ending {
    /// The host renews its lease.
    Lives,
    /// The host has no lease: it has disconnected, or has been fenced already.
    Ended,
    /// The lease expired, and can no longer be renewed.
    Expired(Expired),
}

/// The generations that devices must refuse: every generation below a number, except live ones.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fence {
    pub below: Generation,
    /// The live generations, ascending.
    pub except: Vec<Generation>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Generations {
    pub(crate) schema: u64,
    pub(crate) last: u32,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Lease {
    schema: u64,
    pid: u32,
    /// The key was `what` in schema 1.
    #[serde(alias = "what")]
    role: String,
    boot: String,
    renewed_nanos: u64,
    #[serde(default)]
    report: LeaseReport,
    /// The lease has expired, and can no longer be renewed.
    #[serde(default)]
    expired: bool,
}

/// The last renewal of a lease. Until the first renewal, and for a host of an earlier release, which renews in the lease file, the lease
/// file holds the time.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Heartbeat {
    schema: u64,
    boot: String,
    renewed_nanos: u64,
    report: LeaseReport,
}

impl ArrayFolder {
    /// Takes a generation that was never used before, with a lease that starts at `now`.
    pub fn take_generation(&self, role: &str, now: &Moment) -> Result<Generation, ControlError> {
        let lock = self.lock()?;
        let hosts = self.path(HOSTS);
        create_private_folder(&hosts).map_err(ControlError::file("create", &hosts))?;
        let last = self.last_generation()?;
        let generation = last.checked_add(1).ok_or(ControlError::GenerationsExhausted)?;
        self.require_lock(&lock)?;
        self.replace(
            &self.path(GENERATIONS),
            &Generations { schema: file::SCHEMA, last: generation },
            Durability::Durable,
        )?;
        let lease = Lease {
            schema: file::SCHEMA,
            pid: std::process::id(),
            role: role.to_string(),
            boot: now.boot.clone(),
            renewed_nanos: nanos(now.elapsed),
            report: LeaseReport::default(),
            expired: false,
        };
        // Under the same lock: otherwise another process could see the generation without its lease, and fence it.
        self.replace(&self.lease_path(Generation(generation)), &lease, Durability::ThisBoot)?;
        Ok(Generation(generation))
    }

    /// Renews a lease, unless it has expired, and publishes the host's report. This needs no lock, because only the host itself calls it,
    /// and never twice concurrently.
    pub fn renew(&self, generation: Generation, now: &Moment, report: LeaseReport) -> Result<(), ControlError> {
        self.require_lease(generation)?;
        self.write_heartbeat(generation, now, report)?;
        // If the lease has expired meanwhile, the heartbeat is ignored.
        self.require_lease(generation).inspect_err(|_| drop(file::remove(&self.heartbeat_path(generation))))
    }

    fn write_heartbeat(&self, generation: Generation, now: &Moment, report: LeaseReport) -> Result<(), ControlError> {
        let (schema, boot, renewed_nanos) = (file::SCHEMA, now.boot.clone(), nanos(now.elapsed));
        let heartbeat = Heartbeat { schema, boot, renewed_nanos, report };
        self.replace(&self.heartbeat_path(generation), &heartbeat, Durability::ThisBoot)
    }

    /// Fails if a host has no lease, or an expired one.
    fn require_lease(&self, generation: Generation) -> Result<(), ControlError> {
        let lease = file::read::<Lease>(&self.lease_path(generation))?.filter(|lease| !lease.expired);
        lease.map(drop).ok_or(ControlError::LeaseLost { generation })
    }

    /// Releases a lease: the host has ended, and all its transactions are decided.
    pub fn release(&self, generation: Generation) -> Result<(), ControlError> {
        let _lock = self.lock()?;
        self.remove_lease(generation)
    }

    /// The hosts that have leases, ascending by generation.
    pub fn hosts(&self, now: &Moment, length: Duration) -> Result<Vec<HostEntry>, ControlError> {
        let dir = self.path(HOSTS);
        let mut hosts = Vec::new();
        for entry in std::fs::read_dir(&dir).map_err(ControlError::file("list", &dir))? {
            let entry = entry.map_err(ControlError::file("list", &dir))?;
            let name = entry.file_name();
            let number = name.to_str().and_then(|name| name.strip_suffix(".json"));
            let Some(generation) = number.and_then(|number| number.parse().ok()).map(Generation) else { continue };
            // A file whose name has the number in another form is a copy, and ignored.
            if number != Some(generation.0.to_string().as_str()) {
                continue;
            }
            // The file is not synced, so a power loss may leave it empty. Then its boot is over, and the lease has expired.
            match file::read::<Lease>(&entry.path()) {
                Ok(None) => {}
                Ok(Some(mut lease)) => {
                    self.take_in_heartbeat(generation, &mut lease)?;
                    let renewed = Moment { boot: lease.boot, elapsed: Duration::from_nanos(lease.renewed_nanos) };
                    let silent = now.since(&renewed);
                    let live = !lease.expired && silent.is_some_and(|age| age <= length);
                    let Lease { pid, role, report, .. } = lease;
                    hosts.push(HostEntry { generation, pid, role, live, silent, report });
                }
                Err(ControlError::Damaged { .. }) => {
                    let role = "unreadable lease".to_string();
                    let report = LeaseReport::default();
                    hosts.push(HostEntry { generation, pid: 0, role, live: false, silent: None, report });
                }
                Err(error) => return Err(error),
            }
        }
        hosts.sort_by_key(|host| host.generation);
        Ok(hosts)
    }

    /// Takes the time of the last renewal, and the report, from the heartbeat file.
    fn take_in_heartbeat(&self, generation: Generation, lease: &mut Lease) -> Result<(), ControlError> {
        if lease.expired {
            return Ok(());
        }
        match file::read::<Heartbeat>(&self.heartbeat_path(generation)) {
            Ok(Some(Heartbeat { boot, renewed_nanos, report, .. })) => {
                (lease.boot, lease.renewed_nanos, lease.report) = (boot, renewed_nanos, report);
                Ok(())
            }
            // A power loss may leave the file empty. Then the lease is of an earlier boot, too.
            Ok(None) | Err(ControlError::Damaged { .. }) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Ends the leases that have expired, for good, and returns the generations that the devices must refuse. Expired hosts are returned
    /// again by every call until the caller has fenced them and [forgets](ArrayFolder::forget) them. The calling host `by` counts as
    /// live, even if it was suspended and could not renew its lease. If its own lease has been ended, the call fails.
    pub fn expire(&self, by: Generation, now: &Moment, length: Duration) -> Result<Expired, ControlError> {
        let _lock = self.lock()?;
        self.require_lease(by)?;
        let below = Generation(self.last_generation()?.saturating_add(1));
        let lives = |host: &HostEntry| host.live || host.generation == by;
        let (live, gone): (Vec<_>, Vec<_>) = self.hosts(now, length)?.into_iter().partition(lives);
        gone.iter().try_for_each(|host| self.end_lease(host, now))?;
        self.sweep()?;
        let generations = |hosts: Vec<HostEntry>| hosts.into_iter().map(|host| host.generation).collect();
        Ok(Expired { gone: generations(gone), fence: Fence { below, except: generations(live) } })
    }

    /// Removes heartbeat files without a lease, left by hosts that were suspended or killed during a renewal. The folder is locked.
    fn sweep(&self) -> Result<(), ControlError> {
        let dir = self.path(HOSTS);
        for entry in std::fs::read_dir(&dir).map_err(ControlError::file("list", &dir))? {
            let path = entry.map_err(ControlError::file("list", &dir))?.path();
            let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
            let of = name.trim_start_matches('.').trim_end_matches(".new").strip_suffix(".heartbeat");
            let Some(of) = of.and_then(|of| of.parse().ok()).map(Generation) else { continue };
            if !self.lease_path(of).exists() {
                // For tidiness only.
                let _ = file::remove(&path);
            }
        }
        Ok(())
    }

    /// Ends the lease of one host for good if it was not renewed for `length`, and returns the generations that the devices must refuse.
    pub fn expire_one(&self, host: Generation, now: &Moment, length: Duration) -> Result<Ending, ControlError> {
        let _lock = self.lock()?;
        let hosts = self.hosts(now, length)?;
        let Some(entry) = hosts.iter().find(|entry| entry.generation == host) else { return Ok(Ending::Ended) };
        if entry.live {
            return Ok(Ending::Lives);
        }
        self.end_lease(entry, now)?;
        let others = hosts.iter().map(|entry| entry.generation).filter(|other| *other < host);
        let fence = Fence { below: Generation(host.0.saturating_add(1)), except: others.collect() };
        Ok(Ending::Expired(Expired { gone: vec![host], fence }))
    }

    /// Marks a lease as expired. The folder is locked.
    fn end_lease(&self, host: &HostEntry, now: &Moment) -> Result<(), ControlError> {
        let path = self.lease_path(host.generation);
        if file::read::<Lease>(&path).is_ok_and(|lease| lease.is_some_and(|lease| lease.expired)) {
            return Ok(());
        }
        let HostEntry { pid, role, report, .. } = host.clone();
        let (schema, boot, renewed_nanos) = (file::SCHEMA, now.boot.clone(), 0);
        let ended = Lease { schema, pid, role, boot, renewed_nanos, report, expired: true };
        self.replace(&path, &ended, Durability::ThisBoot)?;
        file::remove(&self.heartbeat_path(host.generation))
    }

    /// Removes the leases of hosts that have been fenced.
    pub fn forget(&self, gone: &[Generation]) -> Result<(), ControlError> {
        let _lock = self.lock()?;
        gone.iter().try_for_each(|host| self.remove_lease(*host))
    }

    /// Removes the lease file first, because a heartbeat without a lease is ignored. The folder is locked.
    fn remove_lease(&self, generation: Generation) -> Result<(), ControlError> {
        file::remove(&self.lease_path(generation))?;
        file::remove(&self.heartbeat_path(generation))
    }

    pub(crate) fn begin_generations(&self) -> Result<(), ControlError> {
        let path = self.path(GENERATIONS);
        // An interrupted creation, or an array whose description was removed, may have left a counter: it is continued.
        if file::read::<Generations>(&path)?.is_none() {
            self.replace(&path, &Generations { schema: file::SCHEMA, last: 0 }, Durability::Durable)?;
        }
        Ok(())
    }

    fn last_generation(&self) -> Result<u32, ControlError> {
        let path = self.path(GENERATIONS);
        if let Some(generations) = file::read::<Generations>(&path)? {
            return Ok(generations.last);
        }
        self.describe()?;
        Err(ControlError::GenerationsMissing { file: path })
    }

    fn lease_path(&self, generation: Generation) -> PathBuf {
        self.path(HOSTS).join(format!("{}.json", generation.0))
    }

    fn heartbeat_path(&self, generation: Generation) -> PathBuf {
        self.path(HOSTS).join(format!("{}.heartbeat", generation.0))
    }
}

pub(crate) const GENERATIONS: &str = "generations";

fn nanos(span: Duration) -> u64 {
    u64::try_from(span.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::folder::tests::Scratch;
    use std::collections::BTreeSet;

    const LEASE: Duration = Duration::from_secs(4);

    fn at(seconds: u64) -> Moment {
        Moment { boot: "this".into(), elapsed: Duration::from_secs(seconds) }
    }

    fn told() -> LeaseReport {
        LeaseReport { revision: 3, ..LeaseReport::default() }
    }

    #[test]
    fn generations_never_repeat_under_concurrent_takers() {
        let scratch = Scratch::new("takers");
        let folder = scratch.array();
        let mut taken = Vec::new();
        std::thread::scope(|scope| {
            let takers: Vec<_> = (0..4)
                .map(|_| {
                    let folder = folder.clone();
                    scope.spawn(move || {
                        (0..10).map(|_| folder.take_generation("test", &at(1)).unwrap()).collect::<Vec<_>>()
                    })
                })
                .collect();
            for taker in takers {
                taken.extend(taker.join().unwrap());
            }
        });
        assert_eq!(taken.iter().collect::<BTreeSet<_>>().len(), 40);
        for generation in &taken {
            folder.release(*generation).unwrap();
        }
        let next = folder.take_generation("test", &at(1)).unwrap();
        assert!(taken.iter().all(|earlier| *earlier < next), "released generations are not reused");
    }

    #[test]
    fn a_lost_counter_is_not_begun_again() {
        let scratch = Scratch::new("counter");
        let folder = scratch.array();
        folder.take_generation("test", &at(1)).unwrap();
        std::fs::remove_file(folder.path(GENERATIONS)).unwrap();
        let error = folder.take_generation("test", &at(1)).unwrap_err();
        assert!(matches!(error, ControlError::GenerationsMissing { .. }), "{error}");
    }

    #[test]
    fn a_lease_lives_while_it_is_renewed_and_no_longer() {
        let scratch = Scratch::new("lease");
        let folder = scratch.array();
        let generation = folder.take_generation("test", &at(10)).unwrap();
        let live = |now: &Moment| folder.hosts(now, LEASE).unwrap()[0].live;
        assert!(live(&at(14)));
        assert!(!live(&at(15)));
        let counters = BTreeMap::from([("operations".to_string(), 3)]);
        let report = LeaseReport { counters, revision: 7, ..LeaseReport::default() };
        folder.renew(generation, &at(13), report.clone()).unwrap();
        folder.renew(generation, &at(14), report.clone()).unwrap();
        assert!(live(&at(18)));
        assert_eq!(folder.hosts(&at(18), LEASE).unwrap()[0].report, report);
        assert!(!live(&at(19)));
        assert!(!live(&Moment { boot: "next".into(), elapsed: Duration::from_secs(15) }), "another boot");
        folder.release(generation).unwrap();
        assert_eq!(folder.hosts(&at(15), LEASE).unwrap(), []);
    }

    #[test]
    fn a_host_whose_lease_ran_out_is_fenced_and_can_not_come_back() {
        let scratch = Scratch::new("fence");
        let folder = scratch.array();
        let dead = folder.take_generation("dead", &at(10)).unwrap();
        let alive = folder.take_generation("alive", &at(10)).unwrap();
        let ended = folder.take_generation("ended", &at(10)).unwrap();
        folder.release(ended).unwrap();
        let expired = folder.expire(alive, &at(11), LEASE).unwrap();
        assert_eq!(expired, Expired { gone: vec![], fence: Fence { below: Generation(4), except: vec![dead, alive] } });
        folder.renew(alive, &at(14), told()).unwrap();
        let Expired { gone, fence } = folder.expire(alive, &at(15), LEASE).unwrap();
        assert_eq!((gone, &fence), (vec![dead], &Fence { below: Generation(4), except: vec![alive] }));
        let again = folder.expire(alive, &at(15), LEASE).unwrap();
        assert_eq!((again.gone, &again.fence), (vec![dead], &fence), "returned until it is forgotten");
        assert!(
            matches!(folder.renew(dead, &at(15), told()), Err(ControlError::LeaseLost { generation }) if generation == dead)
        );
        folder.forget(&[dead]).unwrap();
        assert_eq!(folder.expire(alive, &at(15), LEASE).unwrap().gone, []);
        assert!(folder.renew(dead, &at(15), told()).is_err(), "it can't be renewed after that either");
        assert!(folder.take_generation("new", &at(15)).unwrap() >= fence.below, "a new host is never fenced");
    }

    #[test]
    fn one_host_is_fenced_and_no_other() {
        let scratch = Scratch::new("one");
        let folder = scratch.array();
        let take = |what| folder.take_generation(what, &at(10)).unwrap();
        let (silent, changer, later) = (take("silent"), take("changer"), take("later"));
        assert_eq!(folder.expire_one(changer, &at(14), LEASE).unwrap(), Ending::Lives);
        let fence = Fence { below: later, except: vec![silent] };
        let expired = Ending::Expired(Expired { gone: vec![changer], fence });
        assert_eq!(folder.expire_one(changer, &at(15), LEASE).unwrap(), expired);
        assert!(matches!(folder.renew(changer, &at(15), told()), Err(ControlError::LeaseLost { .. })));
        folder.renew(silent, &at(15), told()).unwrap();
        // It is returned until it is forgotten.
        assert_eq!(folder.expire_one(changer, &at(15), LEASE).unwrap(), expired);
        folder.forget(&[changer]).unwrap();
        assert_eq!(folder.expire_one(changer, &at(15), LEASE).unwrap(), Ending::Ended);
    }

    #[test]
    fn an_empty_lease_of_a_power_loss_has_run_out() {
        let scratch = Scratch::new("empty");
        let folder = scratch.array();
        let generation = folder.take_generation("test", &at(10)).unwrap();
        let judge = folder.take_generation("judge", &at(10)).unwrap();
        std::fs::write(folder.lease_path(generation), "").unwrap();
        assert!(!folder.hosts(&at(10), LEASE).unwrap()[0].live);
        assert_eq!(
            folder.expire(judge, &at(10), LEASE).unwrap(),
            Expired { gone: vec![generation], fence: Fence { below: Generation(3), except: vec![judge] } }
        );
        assert!(matches!(folder.renew(generation, &at(10), told()), Err(ControlError::LeaseLost { .. })));
        folder.forget(&[generation]).unwrap();
        assert_eq!(folder.hosts(&at(10), LEASE).unwrap().len(), 1);
    }

    #[test]
    fn leases_are_renewed_while_another_process_holds_the_folder_s_lock() {
        let scratch = Scratch::new("suspended");
        let folder = scratch.array();
        let generation = folder.take_generation("test", &at(10)).unwrap();
        // A process may be suspended while it holds the lock.
        let _lock = folder.lock().unwrap();
        folder.renew(generation, &at(14), told()).unwrap();
        let host = &folder.hosts(&at(18), LEASE).unwrap()[0];
        assert_eq!((host.live, &host.report), (true, &told()));
    }

    #[test]
    fn a_renewal_that_was_suspended_brings_no_lease_back() {
        let scratch = Scratch::new("late");
        let folder = scratch.array();
        let take = |what| folder.take_generation(what, &at(10)).unwrap();
        let (late, judge, ended) = (take("late"), take("judge"), take("ended"));
        folder.renew(judge, &at(15), told()).unwrap();
        folder.renew(ended, &at(15), told()).unwrap();
        folder.release(ended).unwrap();
        // Both had checked their leases before they were suspended.
        let live =
            || folder.hosts(&at(15), LEASE).unwrap().into_iter().filter(|host| host.live).map(|host| host.generation);
        assert_eq!(folder.expire(judge, &at(15), LEASE).unwrap().gone, [late]);
        folder.write_heartbeat(late, &at(15), told()).unwrap();
        folder.write_heartbeat(ended, &at(15), told()).unwrap();
        assert_eq!(live().collect::<Vec<_>>(), [judge]);
        assert_eq!(folder.expire(judge, &at(15), LEASE).unwrap().gone, [late]);
        assert!(folder.renew(late, &at(15), told()).is_err());
        folder.forget(&[late]).unwrap();
        folder.write_heartbeat(late, &at(15), told()).unwrap();
        assert_eq!(live().collect::<Vec<_>>(), [judge]);
        std::fs::write(file::temporary(&folder.heartbeat_path(ended)), "{").unwrap();
        assert_eq!(folder.expire(judge, &at(15), LEASE).unwrap().gone, []);
        let left = std::fs::read_dir(folder.path(HOSTS)).unwrap().count();
        assert_eq!(left, 2, "late heartbeats are removed: the judge's lease and heartbeat stay");
    }

    #[test]
    fn a_host_that_expires_others_keeps_its_lease_unless_it_was_expired_itself() {
        let scratch = Scratch::new("judge");
        let folder = scratch.array();
        let (judge, other) =
            (folder.take_generation("judge", &at(10)).unwrap(), folder.take_generation("other", &at(10)).unwrap());
        assert_eq!(folder.expire(judge, &at(20), LEASE).unwrap().gone, [other]);
        assert!(matches!(folder.expire_one(judge, &at(20), LEASE).unwrap(), Ending::Expired(_)));
        let refused = folder.expire(judge, &at(20), LEASE);
        assert!(matches!(refused, Err(ControlError::LeaseLost { generation }) if generation == judge));
    }

    #[test]
    fn a_lease_that_an_earlier_release_renews_counts() {
        let scratch = Scratch::new("earlier");
        let folder = scratch.array();
        let generation = folder.take_generation("test", &at(10)).unwrap();
        let lease = r#"{"schema": 1, "pid": 7, "what": "up", "boot": "this", "renewed_nanos": 20000000000,
            "report": {"counters": {}, "revision": 3}, "expired": false}"#;
        std::fs::write(folder.lease_path(generation), lease).unwrap();
        let host = &folder.hosts(&at(24), LEASE).unwrap()[0];
        assert_eq!((host.live, host.role.as_str(), &host.report), (true, "up", &told()));
    }
}
