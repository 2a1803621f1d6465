//! A simulated registry, such as etcd: one key of a linearizable map, with reads and swaps, and everything that may happen to the calls of its
//! clients. A call has three moments: it is sent, it takes effect, and its answer arrives. Its owner schedules the latter two.
//!
//! | fault | what happens |
//! | --- | --- |
//! | a client's calls or answers are lost | without and with the effect |
//! | late | a call takes effect, or an answer arrives, up to ten seconds late |
//! | no quorum | a call fails after seven seconds, or takes effect late |
//! | reads or writes of a client are refused | the others work |
//! | full | writes fail, reads work |
//! | going back | an earlier value is there again, as after the restoration of a copy |

use braid_base::{Rng, Time};
use std::time::Duration;

/// By how much calls and answers are late, at most.
pub const LATEST: Duration = Duration::from_secs(10);
/// The usual longest time each way.
const LATENCY: Duration = Duration::from_millis(4);
/// When a call fails that finds no quorum.
const GIVEN_UP: Duration = Duration::from_secs(7);

/// A read, or a swap with what is written beside the key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Operation<V> {
    Read,
    Swap { expected: V, value: V },
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RegistryAnswer<V> {
    Value(V),
    Swapped,
    Differs(V),
    /// An error that does not say whether the call had an effect.
    Failed,
}

/// A call that has been sent.
#[derive(Clone, Debug)]
pub struct RegistryCall<V> {
    pub client: usize,
    pub operation: Operation<V>,
}

/// What becomes of a call when it arrives.
#[derive(Debug)]
pub enum Arrived<V> {
    /// It waits, and arrives again then.
    Later(Time, RegistryCall<V>),
    /// It has taken effect, if the answer does not say otherwise. The answer arrives then, or is lost.
    Answered(RegistryAnswer<V>, Option<Time>),
}

/// The way between a client and the registry. Probabilities are in per cent.
#[derive(Clone, Debug, Default)]
pub struct RegistryPath {
    pub loses_calls: bool,
    pub loses_answers: bool,
    pub refuses_reads: bool,
    pub refuses_writes: bool,
    /// The longest time each way, beyond the usual one.
    pub latency: Duration,
    /// How many calls and how many answers are late.
    pub late_calls: u64,
    pub late_answers: u64,
}

/// The registry, with one key.
pub struct Registry<V> {
    /// All values that the key has had, the present one last.
    history: Vec<V>,
    /// The way of each client.
    pub paths: Vec<RegistryPath>,
    /// How many outages there are: without one, it has its quorum.
    pub outages: u32,
    pub is_full: bool,
    rng: Rng,
}

impl<V: Clone + PartialEq> Registry<V> {
    pub fn new(value: V, clients: usize, rng: Rng) -> Registry<V> {
        let paths = vec![RegistryPath::default(); clients];
        Registry { history: vec![value], paths, outages: 0, is_full: false, rng }
    }

    pub fn value(&self) -> &V {
        self.history.last().expect("the key has a value")
    }

    /// Makes an earlier value the present one; what came after it is forgotten.
    pub fn go_back(&mut self, steps: usize) {
        self.history.truncate(self.history.len().saturating_sub(steps).max(1));
    }

    /// A client sends a call. Returns when it arrives, unless it is lost.
    pub fn send(&mut self, now: Time, client: usize, operation: Operation<V>) -> Option<(Time, RegistryCall<V>)> {
        let path = &self.paths[client];
        if path.loses_calls {
            return None;
        }
        let (latency, late) = (path.latency, path.late_calls);
        Some((self.after(now, latency, late), RegistryCall { client, operation }))
    }

    /// A call arrives, and takes effect if it can.
    pub fn arrive(&mut self, now: Time, call: RegistryCall<V>) -> Arrived<V> {
        let is_read = call.operation == Operation::Read;
        if self.outages > 0 {
            return if !is_read && self.rng.chance(1, 2) {
                Arrived::Later(self.after(now, LATEST, 0), call)
            } else {
                Arrived::Answered(RegistryAnswer::Failed, Some(now.after(GIVEN_UP)))
            };
        }
        let path = &self.paths[call.client];
        let (latency, late, is_lost) = (path.latency, path.late_answers, path.loses_answers);
        let is_refused = if is_read { path.refuses_reads } else { path.refuses_writes || self.is_full };
        let answer = match call.operation {
            _ if is_refused => RegistryAnswer::Failed,
            Operation::Read => RegistryAnswer::Value(self.value().clone()),
            Operation::Swap { expected, value } if *self.value() == expected => {
                self.history.push(value);
                RegistryAnswer::Swapped
            }
            Operation::Swap { .. } => RegistryAnswer::Differs(self.value().clone()),
        };
        let at = self.after(now, latency, late);
        Arrived::Answered(answer, (!is_lost).then_some(at))
    }

    fn after(&mut self, now: Time, latency: Duration, late: u64) -> Time {
        let longest = if self.rng.chance(late, 100) { LATEST } else { latency + LATENCY };
        now.after(Duration::from_nanos(self.rng.below(longest.as_nanos() as u64 + 1)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn swap(expected: u64, value: u64) -> RegistryCall<u64> {
        RegistryCall { client: 0, operation: Operation::Swap { expected, value } }
    }

    fn answer(registry: &mut Registry<u64>, call: RegistryCall<u64>) -> RegistryAnswer<u64> {
        match registry.arrive(Time(0), call) {
            Arrived::Answered(answer, _) => answer,
            Arrived::Later(..) => panic!("the registry has its quorum"),
        }
    }

    #[test]
    fn a_swap_is_made_once_and_an_earlier_value_may_come_back() {
        let mut registry = Registry::new(1, 1, Rng::new(1));
        assert_eq!(answer(&mut registry, swap(1, 2)), RegistryAnswer::Swapped);
        assert_eq!(answer(&mut registry, swap(1, 2)), RegistryAnswer::Differs(2));
        registry.go_back(1);
        assert_eq!(answer(&mut registry, swap(1, 3)), RegistryAnswer::Swapped);
        registry.go_back(9);
        assert_eq!(*registry.value(), 1);
    }

    #[test]
    fn a_full_registry_can_be_read_and_a_lost_answer_has_had_its_effect() {
        let mut registry = Registry::new(1, 1, Rng::new(1));
        registry.is_full = true;
        assert_eq!(answer(&mut registry, swap(1, 2)), RegistryAnswer::Failed);
        let read = RegistryCall { client: 0, operation: Operation::Read };
        assert_eq!(answer(&mut registry, read), RegistryAnswer::Value(1));
        (registry.is_full, registry.paths[0].loses_answers) = (false, true);
        assert!(matches!(registry.arrive(Time(0), swap(1, 2)), Arrived::Answered(RegistryAnswer::Swapped, None)));
        assert_eq!(*registry.value(), 2);
    }

    #[test]
    fn a_write_without_quorum_takes_effect_late_or_never() {
        let mut registry = Registry::new(1, 1, Rng::new(1));
        registry.outages = 1;
        let waits = |_: &u64| matches!(registry.arrive(Time(0), swap(1, 2)), Arrived::Later(..));
        assert!((16..48).contains(&(0..64).filter(waits).count()));
        assert_eq!(*registry.value(), 1);
    }
}
