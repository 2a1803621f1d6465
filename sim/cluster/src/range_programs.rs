//! Programs that lock ranges: what each does next, what it has, and whether the answers that it gets are right.
//!
//! - A lock is lost, or a lock server is silent, only because of a fault. A lease may be refused, and may end, at any time.
//! - A range is refused because others have it only to a program that has waited for as long as it wanted to.
//! - A program for which no other one is in the way gets its lock soon ([`RangePrograms::check_progress`]).

use crate::cluster::{Cluster, Failed, HostSlot, Record, failed};
use crate::exclusion::of_hosts;
use crate::prelude::*;
use crate::swarm::Run;
use braid_machine::RangesRequest;
use braid_wire::{LockExtent, LockMode};

/// Programs keep at most so many locks.
const LOCKS_MAX: usize = 3;
/// No client has this number. The activity makes its own requests under it.
const ITSELF: usize = usize::MAX;
/// A program that nothing is in the way of may wait for so long, whatever faults there are: it is not looked at before.
const SOON: Duration = Duration::from_millis(500);

/// The spaces that programs share.
#[derive(Clone, Debug)]
pub(crate) struct Spaces {
    count: u64,
    bytes: u64,
    /// The share of exclusive locks, in per cent.
    exclusive: u64,
    /// By how much hosts may keep more.
    width: u64,
}

/// A host, and the number of its client.
type Program = (NodeId, usize);

/// A lock that a program has, as far as it was told.
#[derive(Clone, Debug)]
struct Held {
    lock: u64,
    object: ObjectId,
    extents: Vec<LockExtent>,
    /// Others want some of it.
    is_recalled: bool,
    is_lease: bool,
}

/// A lock that a program waits for.
#[derive(Clone, Debug)]
struct Waiting {
    program: Program,
    object: ObjectId,
    extents: Vec<LockExtent>,
    over: Option<u64>,
    wait: Option<Duration>,
    is_lease: bool,
    since: Time,
    is_abandoned: bool,
    /// When another program was in its way last.
    free_since: Time,
}

/// A request about a lock that a program has.
#[derive(Clone, Debug)]
enum About {
    Recall,
    Unlock { by_itself: bool },
}

#[derive(Clone, Debug)]
pub(crate) struct RangePrograms {
    rng: Rng,
    held: BTreeMap<Program, Vec<Held>>,
    waiting: BTreeMap<OpId, Waiting>,
    about: BTreeMap<OpId, (Program, u64, About)>,
    pub counts: BTreeMap<&'static str, u64>,
}

impl Spaces {
    pub fn draw(rng: &mut Rng, bytes: u64) -> Spaces {
        let (count, exclusive) = (rng.between(1, 3), [20, 50, 80][rng.below(3) as usize]);
        Spaces { count, bytes, exclusive, width: [0, bytes / 8, bytes][rng.below(3) as usize] }
    }

    fn object(number: u64) -> ObjectId {
        ObjectId(1 << 63 | number)
    }

    /// True if an extent lies in one of them, in part at least. Hosts may keep what is beside.
    pub fn contain(&self, object: ObjectId, extent: &LockExtent) -> bool {
        (0..self.count).any(|number| object == Spaces::object(number)) && extent.range.start < self.bytes
    }

    /// All of each space.
    pub fn all(&self) -> impl Iterator<Item = (ObjectId, Vec<LockExtent>)> + use<> {
        let range = BlockRange::new(0, self.bytes);
        let whole = LockExtent { position: 0, range, mode: LockMode::Exclusive };
        (0..self.count).map(move |number| (Spaces::object(number), vec![whole]))
    }

    /// Some ranges.
    fn extents(&self, rng: &mut Rng) -> Vec<LockExtent> {
        let count = [1, 1, 1, 1, 2, 3][rng.below(6) as usize];
        let mut extent = || {
            let length = [1, self.bytes / 16, self.bytes / 4, self.bytes][rng.below(4) as usize];
            let start = rng.below(self.bytes - length + 1);
            let mode = if rng.chance(self.exclusive, 100) { LockMode::Exclusive } else { LockMode::Shared };
            LockExtent { position: 0, range: BlockRange::new(start, length), mode }
        };
        (0..count).map(|_| extent()).collect()
    }
}

impl RangePrograms {
    pub fn new(rng: Rng) -> RangePrograms {
        let (held, waiting, about) = (BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
        RangePrograms { rng, held, waiting, about, counts: BTreeMap::new() }
    }

    /// A program that waits goes away, if there is one. Returns its request and its host.
    pub fn abandon_one(&mut self, rng: &mut Rng) -> Option<(OpId, NodeId)> {
        let any = rng.below(self.waiting.len().max(1) as u64) as usize;
        let (op, waiting) = self.waiting.iter_mut().nth(any)?;
        waiting.is_abandoned = true;
        Some((*op, waiting.program.0))
    }

    fn count(&mut self, what: &'static str) {
        *self.counts.entry(what).or_default() += 1;
    }

    /// A program does something: it locks a range, promotes, demotes or moves a lock, or unlocks one.
    pub fn operate(&mut self, cluster: &mut Cluster, spaces: &Spaces, slot: HostSlot, client: usize) {
        let program = (cluster.node(slot), client);
        let held = self.held.get(&program).map_or(&[][..], Vec::as_slice);
        let recalled = held.iter().position(|held| held.is_recalled).filter(|_| self.rng.chance(2, 3));
        let any = (!held.is_empty()).then(|| self.rng.below(held.len() as u64) as usize);
        match (self.rng.below(10), recalled.or(any)) {
            (0..4, Some(place)) => self.unlock(cluster, program, place),
            (4..7, Some(place)) => {
                let Held { lock, object, mut extents, is_lease, .. } = held[place].clone();
                if is_lease {
                    return self.unlock(cluster, program, place);
                }
                match self.rng.below(5) {
                    0 => extents = spaces.extents(&mut self.rng),
                    _ => extents.iter_mut().for_each(|extent| extent.mode = other(extent.mode)),
                }
                self.lock(cluster, program, (object, extents), Some(lock), spaces.width);
            }
            (_, Some(place)) if held.len() == LOCKS_MAX => self.unlock(cluster, program, place),
            _ => {
                let object = Spaces::object(self.rng.below(spaces.count));
                let extents = spaces.extents(&mut self.rng);
                if self.rng.chance(1, 3) {
                    return self.lease(cluster, program, (object, extents));
                }
                let width = if self.rng.chance(1, 2) { spaces.width } else { 0 };
                self.lock(cluster, program, (object, extents), None, width);
            }
        }
    }

    fn lease(&mut self, cluster: &mut Cluster, program: Program, (object, extents): (ObjectId, Vec<LockExtent>)) {
        let shared = |extent: LockExtent| LockExtent { mode: LockMode::Shared, ..extent };
        let extents: Vec<_> = extents.into_iter().map(shared).collect();
        let request = RangesRequest::Lease { object, extents: extents.clone(), wait: Duration::from_secs(1) };
        self.ask(cluster, program, request, (object, extents), (None, Some(Duration::ZERO)));
    }

    fn lock(
        &mut self,
        cluster: &mut Cluster,
        program: Program,
        (object, extents): (ObjectId, Vec<LockExtent>),
        over: Option<u64>,
        width: u64,
    ) {
        // A program that has one lock and waits for another one without limit may be in a deadlock.
        let has_other = self.held.get(&program).is_some_and(|held| held.iter().any(|held| Some(held.lock) != over));
        let span = Duration::from_millis([1, 20, 1_000, 10_000][self.rng.below(4) as usize]);
        let wait = if has_other || self.rng.chance(2, 3) { Some(span) } else { None };
        let request = RangesRequest::Lock { object, extents: extents.clone(), over, width, wait };
        self.ask(cluster, program, request, (object, extents), (over, wait));
    }

    fn ask(
        &mut self,
        cluster: &mut Cluster,
        program: Program,
        request: RangesRequest,
        (object, extents): (ObjectId, Vec<LockExtent>),
        (over, wait): (Option<u64>, Option<Duration>),
    ) {
        let (now, is_lease) = (cluster.world.now(), matches!(request, RangesRequest::Lease { .. }));
        let slot = cluster.slot(program.0).expect("its host is up");
        let op = cluster.begin(slot, program.1, request, Record::Ranges);
        let waiting = Waiting {
            program,
            object,
            extents,
            over,
            wait,
            is_lease,
            since: now,
            is_abandoned: false,
            free_since: now,
        };
        self.waiting.insert(op, waiting);
    }

    fn unlock(&mut self, cluster: &mut Cluster, program: Program, place: usize) {
        let Held { lock, .. } = self.held.get_mut(&program).expect("it has locks").remove(place);
        self.ask_about(cluster, program, lock, About::Unlock { by_itself: false });
    }

    /// All programs end their locks.
    pub fn unlock_all(&mut self, cluster: &mut Cluster) {
        for (program, held) in std::mem::take(&mut self.held) {
            // One that is being replaced ends with that.
            let (kept, ended): (Vec<_>, _) = held.into_iter().partition(|held| self.is_replaced(program, held.lock));
            self.held.insert(program, kept);
            for Held { lock, .. } in ended {
                self.ask_about(cluster, program, lock, About::Unlock { by_itself: true });
            }
        }
    }

    fn is_replaced(&self, program: Program, lock: u64) -> bool {
        self.waiting.values().any(|it| it.program == program && it.over == Some(lock))
    }

    fn ask_about(&mut self, cluster: &mut Cluster, program: Program, lock: u64, about: About) {
        let Some(slot) = cluster.slot(program.0) else { return };
        let (client, request) = match about {
            About::Recall => (ITSELF, RangesRequest::AwaitRecall { lock }),
            About::Unlock { by_itself: true } => (ITSELF, RangesRequest::Unlock { lock }),
            About::Unlock { .. } => (program.1, RangesRequest::Unlock { lock }),
        };
        let op = cluster.begin(slot, client, request, Record::Ranges);
        self.about.insert(op, (program, lock, about));
    }

    /// Hosts have died with their programs.
    pub fn forget_the_dead(&mut self, cluster: &Cluster) {
        self.held.retain(|(node, _), held| cluster.world.is_up(*node) && !held.is_empty());
        self.waiting.retain(|op, _| cluster.requests.is_open(*op));
        self.about.retain(|op, _| cluster.requests.is_open(*op));
    }

    /// A request was answered. True if no client waits for it; and whether the answer is right. `quiet_since`: no fault excuses anything that
    /// began later.
    pub fn on_reply(
        &mut self,
        cluster: &mut Cluster,
        op: OpId,
        outcome: &HostOutcome,
        quiet_since: Time,
    ) -> (bool, Result<(), Failed>) {
        if let Some(asked) = self.waiting.remove(&op) {
            return (false, self.on_locked(cluster, asked, outcome, quiet_since));
        }
        let Some((program, lock, about)) = self.about.remove(&op) else { return (false, Ok(())) };
        let by_itself = !matches!(about, About::Unlock { by_itself: false });
        (by_itself, self.on_answer_about(cluster, (program, lock, about), outcome, quiet_since))
    }

    fn on_locked(
        &mut self,
        cluster: &mut Cluster,
        asked: Waiting,
        outcome: &HostOutcome,
        quiet_since: Time,
    ) -> Result<(), Failed> {
        let now = cluster.world.now();
        let Waiting { program, object, extents, over, wait, is_lease, since, is_abandoned, .. } = asked;
        let waited = now.since(since);
        let error = match outcome {
            Ok(HostSuccess::RangeLocked { lock, kept }) => {
                self.count(match (over, kept) {
                    (None, _) if is_lease => "leased",
                    (None, _) => "locked",
                    (_, true) => "converted",
                    (_, false) => "converted, not kept",
                });
                let held = self.held.entry(program).or_default();
                held.retain(|held| Some(held.lock) != over);
                held.push(Held { lock: *lock, object, extents, is_recalled: false, is_lease });
                self.ask_about(cluster, program, *lock, About::Recall);
                return Ok(());
            }
            Ok(other) => return failed("unexpected-answer", format!("{program:?}: {other:?}")),
            Err(error) => error,
        };
        let is_excused = was_excused(cluster, quiet_since);
        let (what, is_right) = match error {
            // A host's clock may run fast, by less than a twentieth.
            HostError::RangeTaken { .. } if is_lease => ("no lease", true),
            HostError::RangeTaken { .. } => ("taken", wait.is_some_and(|wait| waited >= wait - wait / 20)),
            HostError::Abandoned => ("abandoned", is_abandoned),
            HostError::LockServerSilent { .. } => ("lock server silent", is_excused),
            HostError::Busy => ("no room", may_lack_room(cluster)),
            HostError::NoSuchLock => ("nothing to convert", over.is_some() && is_excused),
            HostError::LockLost => ("lost", is_excused),
            error => ("host ended", cluster.options.excuses(error)),
        };
        self.count(what);
        if is_right { Ok(()) } else { failed("ranges-refused", format!("{program:?} after {waited:?}: {error}")) }
    }

    fn on_answer_about(
        &mut self,
        cluster: &mut Cluster,
        (program, lock, about): (Program, u64, About),
        outcome: &HostOutcome,
        quiet_since: Time,
    ) -> Result<(), Failed> {
        let is_replaced = self.is_replaced(program, lock);
        let all = self.held.entry(program).or_default();
        let place = all.iter().position(|held| held.lock == lock);
        let error = match (outcome, &about, place) {
            (Ok(HostSuccess::Done), About::Recall, Some(place)) => {
                all[place].is_recalled = true;
                self.count("recalled");
                self.ask_about(cluster, program, lock, About::Recall);
                return Ok(());
            }
            (Ok(HostSuccess::Done), ..) => return Ok(()),
            (Ok(other), ..) => return failed("unexpected-answer", format!("{program:?}, {about:?}: {other:?}")),
            (Err(error), ..) => error,
        };
        // It has ended the lock by itself, or another program has got it instead of a replacement.
        let is_over = place.is_none_or(|place| all[place].is_lease) || is_replaced;
        place.into_iter().for_each(|place| drop(all.remove(place)));
        // The host keeps what other servers have granted until the program says that it relies on it no more.
        if matches!(about, About::Recall) && matches!(error, HostError::LockLost | HostError::Fenced) {
            self.ask_about(cluster, program, lock, About::Unlock { by_itself: true });
        }
        let is_right = match error {
            HostError::NoSuchLock | HostError::LockLost if is_over => true,
            HostError::LockLost | HostError::NoSuchLock => {
                self.count("lost");
                was_excused(cluster, quiet_since)
            }
            error => cluster.options.excuses(error),
        };
        if is_right { Ok(()) } else { failed("ranges-lost", format!("{program:?}, lock {lock}: {error}")) }
    }

    /// A lock is granted soon if no program that lives has some of it, and none that has to wait itself wants some of it. A lock that is to
    /// be replaced blocks no other lock. It is not said which of several that wait is next; but the first one is, and then it is in the way
    /// of the others.
    pub fn check_progress(&mut self, run: &Run) -> Result<(), Failed> {
        let (cluster, now) = (&run.cluster, run.cluster.world.now());
        let locked = |host: &Host| {
            let locked = host.locked_ranges().filter(|(.., is_lease)| !is_lease);
            let locked = locked.map(|(lock, object, extents, _)| (lock, object, extents));
            locked.collect::<Vec<_>>()
        };
        let held = of_hosts(cluster, locked);
        let replaced: BTreeSet<_> = self.waiting.values().filter_map(|it| Some((it.program.0, it.over?))).collect();
        let stays = |host: Generation, lock: u64| !replaced.contains(&(NodeId::Host(host), lock));
        let held = held.iter().flat_map(|(host, locks)| locks.iter().map(move |lock| (*host, lock)));
        let held: Vec<_> = held.filter(|(host, (lock, ..))| stays(*host, *lock)).map(|(_, lock)| lock).collect();
        let is_in_the_way = |it: &Waiting| held.iter().any(|(_, object, extents)| conflict(it, *object, extents));
        let (mut blocked, mut free): (Vec<_>, Vec<_>) = self.waiting.values_mut().partition(|it| is_in_the_way(it));
        loop {
            let behind = |it: &mut &mut Waiting| blocked.iter().any(|other| conflict(it, other.object, &other.extents));
            let more: Vec<_> = free.extract_if(.., behind).collect();
            if more.is_empty() {
                break;
            }
            blocked.extend(more);
        }
        blocked.into_iter().for_each(|waiting| waiting.free_since = now);
        for waiting in free.into_iter().filter(|waiting| now.since(waiting.free_since) > SOON) {
            let judged = run.availability.judge(waiting.program.0, waiting.free_since, now, None);
            judged.map_err(|why| Failed { check: "ranges-stuck", details: format!("{waiting:?}\n{why}") })?;
        }
        Ok(())
    }
}

fn conflict(waiting: &Waiting, object: ObjectId, extents: &[LockExtent]) -> bool {
    waiting.object == object && waiting.extents.iter().any(|wanted| extents.iter().any(|other| wanted.conflicts(other)))
}

fn other(mode: LockMode) -> LockMode {
    if mode == LockMode::Shared { LockMode::Exclusive } else { LockMode::Shared }
}

/// True if a fault may have been the reason why a host did not hear a lock server for a lease.
fn was_excused(cluster: &Cluster, quiet_since: Time) -> bool {
    quiet_since.after(2 * cluster.options.settings.host_lease) > cluster.world.now()
}

/// True if lock servers may lack room for a lock, or for a host.
fn may_lack_room(cluster: &Cluster) -> bool {
    let settings = &cluster.options.settings;
    let usual = Settings::default();
    settings.lock_extents_max < usual.lock_extents_max || settings.hosts_max < usual.hosts_max
}
