//! Activities: what happens in a run beside the usual operations of clients and the faults of the world. Each has a file of its own, with its
//! options, its random source, its events, its checks and its counts, and a line in the list of [`crate::activities`]. The attack names
//! activities as it names kinds of faults; `docs/fault-model.md` describes all of them.

use crate::activity_choices::{Activities, Choice};
use crate::cluster::{Cluster, Failed, HostSlot, PendingOperation};
use crate::options::Choices;
use crate::prelude::*;
use std::any::Any;
use std::fmt::Debug;
use std::rc::Rc;

// What the functions of activities are given.
pub(crate) use crate::options::Options;
pub(crate) use crate::report::Report;
pub(crate) use crate::swarm::Run;

/// What an activity does, and when. A run has its own copy of each activity that its options name.
pub(crate) trait Activity: Any + Debug + Copied {
    /// Before a run: what must be there on the new array, through its first host.
    fn prepare(&self, _cluster: &mut Cluster, _first: HostSlot) {}

    /// The layouts of volumes that the run has because of it.
    fn layouts(&self) -> Vec<Layout> {
        Vec::new()
    }

    /// True if devices may serve the locks of a volume that it makes or changes.
    fn uses_device_locks(&self) -> bool {
        false
    }

    /// How many candidates the array has in place of its one monitor; 0 of an activity that changes nothing in that.
    fn candidates(&self) -> u16 {
        0
    }

    /// Clients begin to work, and faults to happen.
    fn start(&mut self, _run: &mut Run, _rng: &mut Rng) {}

    /// It acts: if it was drawn with a mean time between two of its events, again and again.
    fn act(&mut self, _run: &mut Run, _rng: &mut Rng) {}

    /// A client is about to issue an operation; true if it issues one of this activity instead.
    fn operate(&mut self, _run: &mut Run, _rng: &mut Rng, _slot: HostSlot, _client: usize) -> bool {
        false
    }

    /// The same, where an operation must concern the volume.
    fn use_volume(&mut self, _run: &mut Run, _slot: HostSlot, _client: usize) -> bool {
        false
    }

    /// A request was answered; true if it is one that this activity has made by itself.
    fn on_reply(&mut self, _run: &mut Run, _op: OpId, _outcome: &HostOutcome) -> bool {
        false
    }

    /// An operation of a client was answered.
    fn learn(&mut self, _cluster: &Cluster, _answered: &PendingOperation) {}

    /// The operator looks after the array, often, also after the faults.
    fn supervise(&mut self, _run: &mut Run) {}

    /// Before each event, and again and again at rest: looks after what it has started.
    fn look_after(&mut self, _run: &mut Run) -> Result<(), Failed> {
        Ok(())
    }

    /// A fault begins that this activity brings about.
    fn on_fault(&mut self, _run: &mut Run, _fault: &Fault) {}

    /// All faults end.
    fn heal(&mut self, _run: &mut Run) {}

    /// Nothing new begins, until all is at rest: helps what is under way to its end.
    fn drain(&mut self, _run: &mut Run) {}

    /// All is healed: it starts again what has ended.
    fn healed(&mut self, _run: &mut Run) {}

    /// The array is at rest after its faults, perhaps for the last time.
    fn at_rest(&mut self, _run: &mut Run, _rng: &mut Rng, _is_last: bool) -> Result<(), Failed> {
        Ok(())
    }

    /// Its last checks, after those of all others.
    fn finish(&mut self, _run: &mut Run) -> Result<(), Failed> {
        Ok(())
    }

    /// Judges the answer to an operation, if it is one of this activity.
    fn judge(&self, _run: &Run, _asked: &PendingOperation, _outcome: &HostOutcome) -> Option<Result<(), Failed>> {
        None
    }

    /// Adds to the report, after all checks.
    fn count(&self, _cluster: &Cluster, _report: &mut Report) {}
}

/// How an activity is drawn.
pub(crate) trait Feature: Activity + Clone {
    /// Its name in reports, and of its random source.
    const NAME: &'static str;
    /// The kinds by which the command line names it; none if it only comes with others.
    const KINDS: &'static [&'static str] = &[Self::NAME];
    /// Activities that are drawn before, beside which a run does not have it.
    const NOT_WITH: &'static [&'static str] = &[];
    /// One seed of so many has it; 0: it decides by itself.
    const ONE_IN: u64 = 0;
    /// If it acts again and again, the mean times of which one is drawn, in milliseconds.
    const EVERY: Option<[u64; 3]> = None;
    /// It needs writes that happen as a whole or not at all.
    const NEEDS_ATOMICITY: bool = true;
    /// True for an error that it may cause.
    const EXCUSES: fn(&HostError) -> bool = |_| false;

    /// The activity of these options, if they allow it; changes what must be different then.
    fn draw(options: &mut Options, draw: &mut Draw) -> Option<Self>;
}

/// What an activity is drawn from.
pub(crate) struct Draw<'a> {
    pub choices: &'a Choices,
    pub rng: Rng,
    /// The choices ask for it.
    pub is_named: bool,
    /// The choices and the activities before allow it.
    pub may: bool,
    /// The mean time between two of its events, if it acts again and again.
    pub every: Option<Duration>,
}

impl Draw<'_> {
    /// True in one seed of so many; if the choices name the activity, in each in which there may be one.
    pub fn one_in(&mut self, seeds: u64) -> bool {
        self.may && (self.rng.below(seeds) == 0 || self.is_named)
    }

    /// It acts again and again, with one of these mean times, in milliseconds.
    pub fn acts_every(&mut self, among: [u64; 3]) {
        self.every = Some(Duration::from_millis(among[self.rng.below(3) as usize]));
    }
}

/// An activity as its type declares it.
pub(crate) struct Entry {
    pub name: &'static str,
    pub kinds: &'static [&'static str],
    pub not_with: &'static [&'static str],
    needs_atomicity: bool,
    draw: fn(&mut Options, &mut Draw),
}

impl Entry {
    pub const fn of<A: Feature>() -> Entry {
        Entry {
            name: A::NAME,
            kinds: A::KINDS,
            not_with: A::NOT_WITH,
            needs_atomicity: A::NEEDS_ATOMICITY,
            draw: |options, draw| {
                let events = draw.rng.named("events");
                if A::ONE_IN > 0 && !draw.one_in(A::ONE_IN) {
                    return;
                }
                if let Some(activity) = A::draw(options, draw) {
                    A::EVERY.into_iter().for_each(|among| draw.acts_every(among));
                    options.activities.add(activity, events, draw.every);
                }
            },
        }
    }

    /// Draws the activity.
    pub fn draw(&self, options: &mut Options, choices: &Choices) {
        let are_named = |kinds: &[&str]| kinds.iter().any(|kind| choices.names(kind));
        let may = (self.kinds.first().is_none_or(|kind| choices.may(kind))
            || are_named(self.kinds.get(1..).unwrap_or_default()))
            && (!self.needs_atomicity || options.atomicity == Atomicity::Implied)
            && !options.activities.has_any(self.not_with);
        let rng = options.source(self.name);
        (self.draw)(options, &mut Draw { choices, rng, is_named: are_named(self.kinds), may, every: None });
    }
}

impl Activities {
    fn add<A: Feature>(&mut self, activity: A, rng: Rng, every: Option<Duration>) {
        self.0.push(Choice {
            name: A::NAME,
            layouts: activity.layouts(),
            uses_device_locks: activity.uses_device_locks(),
            candidates: activity.candidates(),
            excuses: A::EXCUSES,
            activity: Rc::new(Box::new(activity) as Box<dyn Activity>),
            rng,
            every,
        });
    }
}

/// An activity that can be cloned, whatever its type.
pub(crate) trait Copied {
    fn copied(&self) -> Box<dyn Activity>;
}

impl<A: Activity + Clone> Copied for A {
    fn copied(&self) -> Box<dyn Activity> {
        Box::new(self.clone())
    }
}

/// An activity with the source of what it does.
pub(crate) struct Acting {
    pub activity: Box<dyn Activity>,
    pub rng: Rng,
    every: Option<Duration>,
}

/// The activities of a run, by name. One that acts is taken out meanwhile.
pub(crate) struct Running(Vec<(&'static str, Option<Acting>)>);

impl Running {
    pub fn of(options: &Options) -> Running {
        let acting = |choice: &Choice| {
            let activity = activity_of(choice).copied();
            (choice.name, Some(Acting { activity, rng: choice.rng.clone(), every: choice.every }))
        };
        Running(options.activities.0.iter().map(acting).collect())
    }

    /// All but the one that acts now.
    pub fn iter(&self) -> impl Iterator<Item = &dyn Activity> {
        self.0.iter().filter_map(|(_, acting)| Some(&*acting.as_ref()?.activity))
    }
}

fn activity_of(choice: &Choice) -> &dyn Activity {
    let activity = (&*choice.activity as &dyn Any).downcast_ref::<Box<dyn Activity>>();
    &**activity.expect("it was added here")
}

impl Options {
    pub(crate) fn activity<A: Feature>(&self) -> Option<&A> {
        self.activities.0.iter().find_map(|choice| (activity_of(choice) as &dyn Any).downcast_ref())
    }

    /// Has each activity prepare a new array, through its first host.
    pub(crate) fn prepare(&self, cluster: &mut Cluster, first: HostSlot) {
        self.activities.0.iter().for_each(|choice| activity_of(choice).prepare(cluster, first));
    }

    /// Adds this activity, which does not act by itself, for scripted scenarios.
    pub(crate) fn with<A: Feature>(mut self, activity: A) -> Options {
        self.activities.add(activity, Rng::new(0), None);
        self
    }
}

/// One of these hosts, if there is any.
pub(crate) fn pick(rng: &mut Rng, among: &[HostSlot]) -> Option<HostSlot> {
    (!among.is_empty()).then(|| among[rng.below(among.len() as u64) as usize])
}

impl Run {
    /// Has all activities do something, one after the other. One that does something already is left out.
    pub(crate) fn each(&mut self, mut act: impl FnMut(&mut Acting, &mut Run)) {
        (0..self.activities.0.len()).for_each(|place| {
            self.with_one_at(place, &mut act);
        });
    }

    /// The same, until one fails.
    pub(crate) fn try_each(
        &mut self,
        mut act: impl FnMut(&mut Acting, &mut Run) -> Result<(), Failed>,
    ) -> Result<(), Failed> {
        (0..self.activities.0.len()).try_for_each(|place| self.with_one_at(place, &mut act).unwrap_or(Ok(())))
    }

    /// All look after what they have started.
    pub(crate) fn look_after_activities(&mut self) -> Result<(), Failed> {
        self.try_each(|acting, run| acting.activity.look_after(run))
    }

    /// Has one activity do something, if the run has it.
    pub(crate) fn with<A: Feature>(&mut self, act: impl FnOnce(&mut A, &mut Run, &mut Rng)) {
        if let Some(place) = self.activities.0.iter().position(|(name, _)| *name == A::NAME) {
            self.with_one_at(place, |acting, run| {
                let activity = (&mut *acting.activity as &mut dyn Any).downcast_mut().expect("it has this name");
                act(activity, run, &mut acting.rng);
            });
        }
    }

    fn with_one_at<T>(&mut self, place: usize, act: impl FnOnce(&mut Acting, &mut Run) -> T) -> Option<T> {
        let mut acting = self.activities.0[place].1.take()?;
        let result = act(&mut acting, self);
        self.activities.0[place].1 = Some(acting);
        Some(result)
    }

    pub(crate) fn start_activities(&mut self) {
        for place in 0..self.activities.0.len() {
            self.with_one_at(place, |acting, run| acting.activity.start(run, &mut acting.rng));
            self.plan_next_of(place);
        }
    }

    fn plan_next_of(&mut self, place: usize) {
        let Some(Acting { rng, every: Some(mean), .. }) = &mut self.activities.0[place].1 else { return };
        let pause = Duration::from_nanos(rng.below(2 * mean.as_nanos() as u64) + 1);
        self.plan(pause, move |run| {
            run.with_one_at(place, |acting, run| acting.activity.act(run, &mut acting.rng));
            run.plan_next_of(place);
        });
    }
}
