//! Waiting until all hosts have drained a volume, and fencing of those that are dead.
//!
//! A host counts as drained if it has confirmed the version with the hold. A host that starts later sees the hold, because it takes its lease
//! before it reads the description; so every host that may know the volume without the hold is in the list.

use crate::contract::{Effect, Error, Input, Stage};
use crate::interface::{Answer, Command, Fence, HostLease, LeaseEnd, Question, Tag};
use crate::questions::Questions;
use crate::record::Version;
use braid_base::{Generation, Time};
use std::time::Duration;

/// The longest time without a look at the hosts: a watch may never answer.
const LOOK_MAX: Duration = Duration::from_secs(1);

/// The wait for the hosts of a volume on hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Drain {
    hold: Version,
    step: Step,
    until: Time,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Step {
    Listing(Tag),
    /// Until a watch answers, or for a while.
    Watching(Tag, Vec<Generation>),
    Fencing(SilentHostFence),
}

impl Drain {
    /// Begins to wait for the hosts, for this time.
    pub fn new(hold: Version, within: Duration, questions: &mut Questions) -> Drain {
        questions.push(Effect::Began(Stage::Draining));
        let step = Step::Listing(questions.command(Command::ListHosts));
        Drain { hold, step, until: questions.after(within) }
    }

    /// Takes an input. Returns whether all hosts have drained, when that is known.
    pub fn step(&mut self, input: Input, questions: &mut Questions) -> Option<Result<(), Error>> {
        match (&mut self.step, input) {
            (Step::Watching(_, late), Input::Wake) if questions.now >= self.until => {
                return Some(Err(Error::NotDrained(late.clone())));
            }
            (Step::Watching(..), Input::Wake) => self.list(questions),
            (Step::Listing(asked), Input::Answer { tag, answer }) if *asked == tag => match answer {
                Answer::Hosts(hosts) => return self.on_hosts(&hosts, questions),
                Answer::Unknown => self.watch(Vec::new(), questions),
                _ => return Some(Err(Error::Question(tag))),
            },
            (Step::Watching(asked, ..), Input::Answer { tag, .. }) if *asked == tag => self.list(questions),
            (Step::Fencing(fence), Input::Answer { tag, answer }) => match fence.on_answer(tag, answer, questions)? {
                FenceEnd::Failed(tag) => return Some(Err(Error::Question(tag))),
                FenceEnd::Unknown(_) => self.watch(Vec::new(), questions),
                FenceEnd::Lives | FenceEnd::Fenced => self.list(questions),
            },
            _ => {}
        }
        None
    }

    fn list(&mut self, questions: &mut Questions) {
        self.step = Step::Listing(questions.command(Command::ListHosts));
    }

    fn watch(&mut self, late: Vec<Generation>, questions: &mut Questions) {
        self.step = Step::Watching(questions.command(Command::Watch), late);
        questions.wake_at(questions.after(LOOK_MAX).min(self.until));
    }

    fn on_hosts(&mut self, hosts: &[HostLease], questions: &mut Questions) -> Option<Result<(), Error>> {
        let late: Vec<&HostLease> = hosts.iter().filter(|host| self.is_late(host)).collect();
        let names = || late.iter().map(|host| host.host).collect();
        if late.is_empty() {
            return Some(Ok(()));
        }
        // All of them have been silent for longer than their leases, so they are fenced. Other silent hosts do not delay the change.
        if late.iter().all(|host| !host.is_live) {
            self.step = Step::Fencing(SilentHostFence::new(late[0].host, questions));
        } else if questions.now >= self.until {
            return Some(Err(Error::NotDrained(names())));
        } else {
            self.watch(names(), questions);
        }
        None
    }

    /// True if the host may have operations under way that began before the hold. The administrator's own host is no exception: it may
    /// resynchronise a device.
    fn is_late(&self, host: &HostLease) -> bool {
        host.uses_volumes && host.confirmed < self.hold
    }
}

/// Makes sure that no request of a silent host can take effect any more: its lease is ended for good, the devices refuse it, and then the
/// lease is forgotten. If this is interrupted, the next one to do it begins anew.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SilentHostFence {
    host: Generation,
    step: FenceStep,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum FenceStep {
    EndingLease(Tag),
    Fencing(Tag),
    Forgetting(Tag),
}

/// How fencing ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FenceEnd {
    /// It is alive.
    Lives,
    /// No device serves it any more.
    Fenced,
    /// The question of this tag had no answer.
    Unknown(Tag),
    /// The question of this tag has failed.
    Failed(Tag),
}

impl SilentHostFence {
    pub fn new(host: Generation, questions: &mut Questions) -> SilentHostFence {
        SilentHostFence { host, step: FenceStep::EndingLease(questions.command(Command::EndLease { host })) }
    }

    pub fn on_answer(&mut self, tag: Tag, answer: Answer, questions: &mut Questions) -> Option<FenceEnd> {
        let (FenceStep::EndingLease(asked) | FenceStep::Fencing(asked) | FenceStep::Forgetting(asked)) = &self.step;
        if *asked != tag {
            return None;
        }
        match (&self.step, answer) {
            (FenceStep::EndingLease(_), Answer::Lease(LeaseEnd::Lives)) => return Some(FenceEnd::Lives),
            (FenceStep::EndingLease(_), Answer::Lease(LeaseEnd::Ended(fence))) => {
                self.fence(fence, questions);
            }
            (FenceStep::Fencing(_), Answer::Yes) => {
                self.step = FenceStep::Forgetting(questions.command(Command::ForgetLease { host: self.host }));
            }
            // A lease that could not be forgotten is found again, and then the host is fenced once more.
            (FenceStep::Forgetting(_), Answer::Yes | Answer::Unknown) => return Some(FenceEnd::Fenced),
            (_, Answer::Unknown) => return Some(FenceEnd::Unknown(tag)),
            _ => return Some(FenceEnd::Failed(tag)),
        }
        None
    }

    fn fence(&mut self, fence: Fence, questions: &mut Questions) {
        assert!(
            self.host < fence.below && !fence.except.contains(&self.host),
            "the fence of an ended lease refuses its host"
        );
        self.step = FenceStep::Fencing(questions.ask(Question::Fence(fence)));
    }
}
