//! Programs that lock ranges of bytes at lock servers, on all hosts of a run (`docs/range-locks.md`). Beside the faults of the world, lock
//! servers lose their disks, and programs that wait go away.

use crate::activity::{Activity, Draw, Feature, Options, Report, Run, pick};
use crate::availability::Cause;
use crate::cluster::{Cluster, Failed, HostSlot, PendingOperation, Record, failed};
use crate::prelude::*;
use crate::range_checks::{RangeChecks, servers};
use crate::range_programs::{RangePrograms, Spaces};
use braid_base::RangeDivision;
use braid_host::Acquisition;
use braid_locks::DISK_BYTES;
use braid_machine::RangesRequest;
use braid_wire::LockExtent;

/// The sizes of spaces in bytes, and into how many pieces several lock servers divide one.
const BYTES: [u64; 3] = [64, 4_096, 1 << 30];
const PIECES: [u64; 3] = [2, 8, 64];
/// The extents that a lock server has room for, where that is little.
const FEW_EXTENTS: usize = 64;
/// How long a lock server is down whose disk is lost, in milliseconds.
const DOWN: [u64; 3] = [1, 200, 3_000];
const DISK_LOST: &str = "lock server's disk lost";

/// Programs lock ranges.
#[derive(Clone, Debug)]
pub(crate) struct RangeUse {
    /// The share of their operations, in per cent.
    share: u64,
    spaces: Spaces,
    programs: RangePrograms,
    checks: RangeChecks,
    failed: Option<Failed>,
}

impl Feature for RangeUse {
    const NAME: &'static str = "ranges";
    const ONE_IN: u64 = 10;
    const EVERY: Option<[u64; 3]> = Some([500, 2_000, 8_000]);
    // Those operations are few, because a search must explain all of them.
    const NOT_WITH: &'static [&'static str] = &["files"];
    const EXCUSES: fn(&HostError) -> bool = |error| matches!(error, HostError::Fenced);

    fn draw(options: &mut Options, draw: &mut Draw) -> Option<RangeUse> {
        let rng = &mut draw.rng;
        let bytes = BYTES[rng.below(3) as usize];
        let piece = bytes / PIECES[rng.below(3) as usize];
        let servers = [1, 1, 2, 3, 4][rng.below(5) as usize];
        let has_room = rng.chance(3, 4);
        options.settings.range_division =
            [RangeDivision::Space, RangeDivision::RoundRobin(piece), RangeDivision::Hash(piece)][rng.below(3) as usize];
        // Locks of volumes have drawn how many servers they have.
        if options.lock_servers == 0 {
            (options.lock_servers, options.acquisition) = (servers, Acquisition::Ordered);
            if !has_room {
                options.settings.lock_extents_max = FEW_EXTENTS;
            }
        }
        if options.hosts < 2 {
            options.hosts = 2;
            // Where tables have room for a few hosts, they have room for this one.
            options.settings.hosts_max += usize::from(options.activities.has("disconnect"));
        }
        let spaces = Spaces::draw(rng, bytes);
        let programs = RangePrograms::new(options.source(Self::NAME).named("programs"));
        let share = [30, 70, 95][rng.below(3) as usize];
        Some(RangeUse { share, spaces, programs, checks: RangeChecks::default(), failed: None })
    }
}

impl Activity for RangeUse {
    /// A program that waits goes away, or a lock server loses its disk.
    fn act(&mut self, run: &mut Run, rng: &mut Rng) {
        let servers = run.cluster.lock_servers();
        if rng.chance(1, 2) {
            if let Some((op, node)) = self.programs.abandon_one(rng) {
                let slot = run.cluster.slot(node).expect("a program that waits is on a host that is up");
                run.begin_chore(slot, ArrayRequest::Abandon { ops: vec![op] });
            }
        } else if !run.cluster.options.activities.has("calm") && rng.chance(1, 3) {
            let server = servers[rng.below(servers.len() as u64) as usize];
            let node = NodeId::LockServer(server);
            let unavailable = Duration::from_millis(DOWN[rng.below(3) as usize]);
            run.crash(node);
            run.cluster.device_notes.lost_lists.insert(server);
            let disk = run.cluster.world.disk_mut(node).expect("lock servers have disks");
            disk.preload(0, &vec![0; DISK_BYTES as usize]);
            run.count_fault(DISK_LOST);
            run.availability.begin(run.cluster.world.now(), DISK_LOST, Cause::Other, unavailable);
            run.plan(unavailable, move |run| run.bring_back(node, false));
        }
    }

    fn operate(&mut self, run: &mut Run, rng: &mut Rng, slot: HostSlot, client: usize) -> bool {
        let is_its = rng.chance(self.share, 100);
        if is_its {
            self.programs.operate(&mut run.cluster, &self.spaces, slot, client);
        }
        is_its
    }

    fn on_reply(&mut self, run: &mut Run, op: OpId, outcome: &HostOutcome) -> bool {
        let now = run.cluster.world.now();
        // Where volumes and leases change, hosts are suspended for that.
        let quiet_since = if run.cluster.control.is_some() { now } else { run.availability.nothing_since(now) };
        let (is_by_itself, judged) = self.programs.on_reply(&mut run.cluster, op, outcome, quiet_since);
        self.failed = self.failed.take().or(judged.err());
        is_by_itself
    }

    fn judge(&self, _run: &Run, asked: &PendingOperation, _outcome: &HostOutcome) -> Option<Result<(), Failed>> {
        matches!(asked.record, Record::Ranges).then_some(Ok(()))
    }

    fn look_after(&mut self, run: &mut Run) -> Result<(), Failed> {
        self.programs.forget_the_dead(&run.cluster);
        self.failed.take().map_or(Ok(()), Err)?;
        self.checks.check(&run.cluster)?;
        if run.cluster.control.is_some() { Ok(()) } else { self.programs.check_progress(run) }
    }

    /// All programs end their locks.
    fn drain(&mut self, run: &mut Run) {
        self.programs.unlock_all(&mut run.cluster);
    }

    /// Each host can lock each space as a whole.
    fn at_rest(&mut self, run: &mut Run, rng: &mut Rng, _is_last: bool) -> Result<(), Failed> {
        // A host for which a server had no room until a moment ago is in doubt until that has heard it; one that could not renew its lease
        // until a moment ago may have lost it.
        run.pass(2 * run.cluster.options.settings.heartbeat)?;
        let slots = run.staying_slots();
        let Some(last) = pick(rng, &slots) else { return Ok(()) };
        let cluster = &mut run.cluster;
        let settings = &cluster.options.settings;
        // The locks of a host that has just ended are granted when it is fenced.
        let wait = 2 * settings.host_lease + 2 * settings.resend_max + Duration::from_secs(2);
        for slot in slots.into_iter().filter(|slot| *slot != last).chain([last]) {
            for (object, extents) in self.spaces.all() {
                let request = RangesRequest::Lock { object, extents, over: None, width: 0, wait: Some(wait) };
                let asked = cluster.ask(slot, request);
                let lock = match cluster.outcome(asked, "a space can't be locked after healing")? {
                    Ok(HostSuccess::RangeLocked { lock, .. }) => lock,
                    // What hosts keep fills the little that there is room for.
                    Err(HostError::Busy) if cluster.options.settings.lock_extents_max == FEW_EXTENTS => return Ok(()),
                    other => return failed("ranges-not-free", format!("{}: {other:?}", cluster.node(slot))),
                };
                let asked = cluster.ask(slot, RangesRequest::Unlock { lock });
                cluster.answer(asked, "a lock of a space is not known")?;
            }
        }
        // A release without an answer may be on the way.
        cluster.run_for(Duration::from_millis(100));
        self.check_nothing_is_left(cluster, last)
    }

    fn count(&self, _cluster: &Cluster, report: &mut Report) {
        report.count(Self::NAME, self.programs.counts.clone());
    }
}

impl RangeUse {
    /// No lock server knows of a lock in the spaces but those of the host that has just locked all.
    fn check_nothing_is_left(&self, cluster: &Cluster, last: HostSlot) -> Result<(), Failed> {
        for (id, server) in servers(cluster) {
            let others = server.engine().lock_ids().filter(|(name, _)| name.host != cluster.generation(last));
            let mut others = others.filter_map(|(name, _)| Some((name, server.engine().extents(name)?)));
            let is_left = |object, extents: &[LockExtent]| extents.iter().any(|it| self.spaces.contain(object, it));
            if let Some((name, (_, extents))) = others.find(|(_, (object, extents))| is_left(*object, extents)) {
                return failed("ranges-left", format!("{id} still has {name:?}: {extents:?}"));
            }
        }
        Ok(())
    }
}
