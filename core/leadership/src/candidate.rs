//! A candidate: a monitor that leads, or may lead. See the crate's page for the states.

use crate::chain::{Chain, Shown, Swap};
use crate::leading::Leading;
use crate::times::{FOLLOWED, PROMISE, SILENCE, Times, UNREACHED, UNREADABLE, longer};
use crate::watch::Watch;
use crate::{Answer, CallId, CandidateId, Effect, Head, Input, Mark, Message, Nonce};
use braid_base::{Rng, Time};

#[derive(Clone, Debug)]
pub struct Candidate {
    id: CandidateId,
    times: Times,
    /// Where the nonces of its terms come from.
    nonces: Rng,
    chain: Chain,
    watch: Watch,
    /// It makes no swap before: after a promise, and after its start, since it may have promised before that.
    bound: Time,
    /// Its last term, if it has ended that in order: its end is for others to follow.
    ended: Option<Nonce>,
    role: Role,
}

#[derive(Clone, Debug)]
enum Role {
    Standby,
    Leading(Box<Leading>),
    Stopped,
}

impl Candidate {
    /// A candidate that starts. `nonces` is never the same for two starts. `seen`: the newest mark that it had seen before, if that is known.
    pub fn new(now: Time, id: CandidateId, times: Times, nonces: Rng, seen: Option<Mark>) -> Candidate {
        let (chain, watch, bound) = (Chain::new(seen), Watch::new(now), now.after(longer(PROMISE)));
        Candidate { id, times, nonces, chain, watch, bound, ended: None, role: Role::Standby }
    }

    /// What it has seen of the history: kept over restarts, as well as possible.
    pub fn seen(&self) -> Option<Mark> {
        self.chain.newest
    }

    /// True if it may grant a lease to a device now.
    pub fn may_grant(&self, now: Time) -> bool {
        matches!(&self.role, Role::Leading(leading) if leading.may_grant(now, self.times, self.chain.swap()))
    }

    /// When it is to be woken.
    pub fn deadline(&self) -> Option<Time> {
        let swap = self.chain.deadline();
        match &self.role {
            Role::Standby => Some(swap.unwrap_or(self.watch.deadline())),
            Role::Leading(leading) => {
                let unproven = leading.unproven();
                let reads = self.watch.deadline();
                let reads = if leading.is_reading() { reads } else { reads.max(unproven) };
                Some(swap.unwrap_or(leading.deadline()).min(reads).min(leading.pact.deadline(unproven)))
            }
            Role::Stopped => None,
        }
    }

    pub fn step(&mut self, now: Time, input: Input) -> Vec<Effect> {
        let mut out = Vec::new();
        match input {
            Input::Wake => {}
            Input::Answer { call, answer } => self.on_answer(now, call, answer, &mut out),
            Input::Message { from, message } => self.on_message(now, from, message, &mut out),
            Input::Write { write, candidates } => out.extend(match &mut self.role {
                Role::Leading(leading) => leading.write(write, candidates),
                _ => Some(Effect::RefusedWrite(write)),
            }),
            Input::Question(question) => out.extend(match &mut self.role {
                Role::Leading(leading) => leading.question(question),
                _ => Some(Effect::RefusedQuestion(question)),
            }),
            Input::Resign => {
                if let Role::Leading(leading) = &mut self.role {
                    leading.resigns = true;
                }
            }
        }
        self.go_on(now, &mut out);
        self.invariants();
        out
    }

    fn on_answer(&mut self, now: Time, call: CallId, answer: Answer, out: &mut Vec<Effect>) {
        let shown = match (self.watch.ends(call), answer) {
            (Some(sent), Answer::Head(Some(found))) => self.chain.found(found, sent),
            // `init` has not made the key yet, or it is gone.
            (Some(_), Answer::Head(None)) => self.chain.newest.map_or(Shown::Nothing, Shown::WentBack),
            (Some(_), _) => Shown::Nothing,
            (None, answer) => self.chain.on_answer(call, answer),
        };
        match shown {
            Shown::Nothing => {}
            Shown::Head { found, sent } => self.on_head(now, found, sent, out),
            Shown::Done { swap, sent } => self.on_done(now, swap, sent, out),
            Shown::Superseded { swap, found } => self.lose(now, Some(swap), Some(found), out),
            Shown::WentBack(seen) => {
                self.lose(now, None, None, out);
                self.role = Role::Stopped;
                out.push(Effect::Stopped { seen });
            }
        }
    }

    fn on_head(&mut self, now: Time, found: Head, sent: Time, out: &mut Vec<Effect>) {
        match &mut self.role {
            Role::Leading(leading) if leading.head.nonce == found.nonce => {
                out.extend(leading.prove(sent).into_iter().map(Effect::Current));
            }
            Role::Leading(_) => self.lose(now, None, Some(found), out),
            Role::Standby if self.chain.swap().is_none() => {
                self.watch.see(now, found);
                out.extend(self.take_over(now));
            }
            // The swap is repeated, and a candidate that has stopped does nothing.
            Role::Standby | Role::Stopped => {}
        }
    }

    /// Begins to take over, if there is no leader or if it is silent. To be called after a successful read: what was read before counts no more.
    fn take_over(&mut self, now: Time) -> Option<Effect> {
        let head = self.watch.head.as_ref().filter(|head| head.candidates.contains(&self.id))?;
        let has_ended = head.leader.is_none() && self.ended != Some(head.nonce);
        if now < self.bound || !(has_ended || self.watch.silence >= SILENCE) {
            return None;
        }
        let nonce = Nonce(u128::from(self.nonces.next_u64()) << 64 | u128::from(self.nonces.next_u64()));
        let (expected, next) = (head.clone(), head.taken_over(self.id, nonce));
        self.watch.give_up();
        Some(self.chain.begin(now, expected, next, None))
    }

    fn on_done(&mut self, now: Time, swap: Swap, sent: Time, out: &mut Vec<Effect>) {
        // A read that was sent before may show what the swap has replaced.
        self.watch.give_up();
        match &mut self.role {
            Role::Standby => {
                let (head, after_orderly_end) = (swap.head, swap.expected.leader.is_none());
                let follows = self.watch.followed >= FOLLOWED && now.since(swap.first.1) < UNREACHED;
                let wait = self.times.wait(after_orderly_end);
                out.push(Effect::Won { head: head.clone(), wait, follows });
                let leading = Leading::new(now, head, sent, self.times, after_orderly_end);
                self.role = Role::Leading(Box::new(leading));
            }
            Role::Leading(leading) => {
                out.extend(swap.write.map(Effect::Written));
                leading.head = swap.head;
                // A call that shows its own end does not show that it leads.
                if leading.head.leader.is_some() {
                    out.extend(leading.prove(sent).into_iter().map(Effect::Current));
                    leading.read_again();
                }
                if leading.head.leader.is_none() {
                    self.ended = Some(leading.head.nonce);
                    out.push(Effect::Ended);
                    self.stand_by(now, None, out);
                }
            }
            Role::Stopped => unreachable!("a candidate that has stopped has no swap under way"),
        }
    }

    /// Its swap, if one is given, can't be made any more, or another candidate leads.
    fn lose(&mut self, now: Time, swap: Option<Swap>, found: Option<Head>, out: &mut Vec<Effect>) {
        let swap = swap.or_else(|| self.chain.give_up());
        if let Role::Leading(_) = self.role {
            out.push(Effect::Lost { unknown: swap.and_then(|swap| swap.write) });
        }
        self.stand_by(now, found, out);
    }

    fn stand_by(&mut self, now: Time, found: Option<Head>, out: &mut Vec<Effect>) {
        if let Role::Leading(leading) = std::mem::replace(&mut self.role, Role::Standby) {
            out.extend(leading.refuse_all());
            self.watch = Watch::new(now);
        }
        if let Some(found) = found {
            self.watch.see(now, found);
        }
    }

    fn on_message(&mut self, now: Time, from: CandidateId, message: Message, out: &mut Vec<Effect>) {
        match message {
            Message::Ask { term, nonce, sent } if self.promises(now, term, nonce) => {
                self.bound = self.bound.max(now.after(PROMISE));
                out.push(Effect::Send { to: from, message: Message::Promise { nonce, sent } });
            }
            Message::Promise { nonce, sent } => {
                if let Role::Leading(leading) = &mut self.role
                    && leading.head.nonce == nonce
                {
                    leading.pact.on_promise(now, from, sent);
                }
            }
            Message::Ask { .. } => {}
        }
    }

    /// True if it promises the leader of this term to make no swap.
    fn promises(&self, now: Time, term: u64, nonce: Nonce) -> bool {
        let is_free = matches!(self.role, Role::Standby) && self.chain.swap().is_none();
        let knows_no_later = |newest: Mark| newest.term < term || (newest.term == term && newest.nonce == nonce);
        let has_read = self.watch.head.is_some();
        let cannot_read = self.watch.unread(now) >= UNREADABLE;
        is_free && has_read && cannot_read && self.chain.newest.is_some_and(knows_no_later)
    }

    /// Does what is due.
    fn go_on(&mut self, now: Time, out: &mut Vec<Effect>) {
        out.extend(self.chain.repeat(now));
        match &mut self.role {
            Role::Standby if self.chain.swap().is_some() || !self.watch.is_due(now) => {}
            Role::Standby => out.push(self.read(now)),
            Role::Leading(leading) => {
                if self.chain.swap().is_none() && leading.deadline() <= now {
                    let expected = leading.head.clone();
                    let (head, write) = leading.next_write(now);
                    out.push(self.chain.begin(now, expected, head, write));
                }
                let unproven = leading.unproven();
                if leading.pact.deadline(unproven) <= now {
                    let message = leading.pact.ask(now, leading.head.term, leading.head.nonce);
                    let others = leading.others(self.chain.swap());
                    out.extend(others.into_iter().map(|to| Effect::Send { to, message }));
                }
                let repeats = (unproven <= now || leading.is_reading()) && self.watch.is_due(now);
                if leading.begins_read(now) || repeats {
                    out.push(self.read(now));
                }
            }
            Role::Stopped => {}
        }
    }

    fn read(&mut self, now: Time) -> Effect {
        let call = self.chain.next_call();
        self.watch.begin(now, call);
        Effect::Read { call }
    }

    fn invariants(&self) {
        let swap = self.chain.swap();
        match &self.role {
            Role::Standby => assert!(swap.is_none_or(|swap| swap.first.1 >= self.bound), "it is bound to make no swap"),
            Role::Leading(leading) => {
                assert_eq!(self.chain.newest, Some(leading.head.mark()), "a leader knows no newer head than its own");
                let is_own = |swap: &Swap| swap.expected == leading.head && swap.head.nonce == leading.head.nonce;
                assert!(swap.is_none_or(is_own), "a leader's swap continues its own term");
            }
            Role::Stopped => assert!(swap.is_none(), "a candidate that has stopped has no swap under way"),
        }
    }
}
