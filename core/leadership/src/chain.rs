//! The chain of heads, as one candidate writes and sees it. At most one swap is under way. If its outcome is unknown, the same swap is
//! repeated until it is definite: no other one begins, since the first may take effect at any later time.
//!
//! ```text
//!   answer                                          the swap of X for Y
//!   swapped, or `head` is Y                         is done
//!   `head` is X                                     is repeated
//!   `head` belongs to a state before X              the registry has gone back
//!   `head` is anything else                         is superseded: it can never be made
//!   none in time, or a failure                      is repeated
//! ```

use crate::times::PATIENCE;
use crate::{Answer, CallId, Effect, Head, Mark, WriteId};
use braid_base::Time;

/// What is known of the chain, and the swap under way.
#[derive(Clone, Debug)]
pub(crate) struct Chain {
    /// The newest head that was found or made.
    pub newest: Option<Mark>,
    swap: Option<Swap>,
    last_call: CallId,
}

/// A swap, and what is decided by it.
#[derive(Clone, Debug)]
pub(crate) struct Swap {
    pub expected: Head,
    pub head: Head,
    pub write: Option<WriteId>,
    /// When it was first sent.
    pub first: (CallId, Time),
    last: (CallId, Time),
}

/// What a call has shown.
#[derive(Clone, Debug)]
pub(crate) enum Shown {
    /// Nothing is known from it.
    Nothing,
    /// `head` was this at a time after `sent`. If a swap was under way, it is still.
    Head { found: Head, sent: Time },
    /// The swap is made, and `head` was its value at a time after `sent`.
    Done { swap: Swap, sent: Time },
    /// The swap can't be made any more.
    Superseded { swap: Swap, found: Head },
    /// The registry has gone back behind this.
    WentBack(Mark),
}

impl Chain {
    pub fn new(seen: Option<Mark>) -> Chain {
        Chain { newest: seen, swap: None, last_call: CallId(0) }
    }

    /// The swap under way.
    pub fn swap(&self) -> Option<&Swap> {
        self.swap.as_ref()
    }

    pub fn next_call(&mut self) -> CallId {
        self.last_call.0 += 1;
        self.last_call
    }

    pub fn begin(&mut self, now: Time, expected: Head, head: Head, write: Option<WriteId>) -> Effect {
        assert!(self.swap.is_none(), "one swap is under way at a time");
        assert!(head.seq == expected.seq + 1, "each write has the next number");
        assert_eq!(self.newest, Some(expected.mark()), "a swap replaces the newest head that is known");
        let call = self.next_call();
        let sent = (call, now);
        let effect = Effect::Swap { call, expected: expected.clone(), head: head.clone(), write };
        self.swap = Some(Swap { expected, head, write, first: sent, last: sent });
        effect
    }

    /// When the swap under way is repeated.
    pub fn deadline(&self) -> Option<Time> {
        self.swap.as_ref().map(|swap| swap.last.1.after(PATIENCE))
    }

    /// Repeats the swap under way if it was not answered in time.
    pub fn repeat(&mut self, now: Time) -> Option<Effect> {
        self.deadline().filter(|due| *due <= now)?;
        let call = self.next_call();
        let swap = self.swap.as_mut()?;
        swap.last = (call, now);
        let (expected, head) = (swap.expected.clone(), swap.head.clone());
        Some(Effect::Swap { call, expected, head, write: swap.write })
    }

    /// Takes the answer to a call of the swap under way.
    pub fn on_answer(&mut self, call: CallId, answer: Answer) -> Shown {
        let Some(swap) = self.swap.as_ref().filter(|swap| swap.first.0 <= call) else { return Shown::Nothing };
        // Of a call that is not the last one, it is only known that it was not sent before the first.
        let sent = if call == swap.last.0 { swap.last.1 } else { swap.first.1 };
        match answer {
            Answer::Swapped => self.done(sent),
            Answer::Differs(found) => self.found(found, sent),
            Answer::Head(_) | Answer::Failed => Shown::Nothing,
        }
    }

    /// The registry had this head at a time after `sent`.
    pub fn found(&mut self, found: Head, sent: Time) -> Shown {
        if let Some(newest) = self.newest.filter(|newest| newest.contradicts(found.mark())) {
            return Shown::WentBack(newest);
        }
        match &self.swap {
            Some(swap) if found == swap.head => self.done(sent),
            Some(swap) if found == swap.expected => Shown::Head { found, sent },
            _ => {
                self.newest = Some(found.mark());
                match self.swap.take() {
                    Some(swap) => Shown::Superseded { swap, found },
                    None => Shown::Head { found, sent },
                }
            }
        }
    }

    /// Awaits the swap under way no more.
    pub fn give_up(&mut self) -> Option<Swap> {
        self.swap.take()
    }

    fn done(&mut self, sent: Time) -> Shown {
        let swap = self.swap.take().expect("a swap is under way");
        self.newest = Some(swap.head.mark());
        Shown::Done { swap, sent }
    }
}
