//! A queue of future events, ordered by time; events of the same time keep the order in which they were scheduled.

use braid_base::Time;
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::collections::binary_heap::PeekMut;

/// Events by time. The events stay in place while only small keys move in the heap.
pub struct EventQueue<E> {
    keys: BinaryHeap<Reverse<(Time, u64, u32)>>,
    places: Vec<Option<E>>,
    free: Vec<u32>,
    next: u64,
}

impl<E> Default for EventQueue<E> {
    fn default() -> Self {
        EventQueue { keys: BinaryHeap::new(), places: Vec::new(), free: Vec::new(), next: 0 }
    }
}

impl<E> EventQueue<E> {
    pub fn push(&mut self, at: Time, event: E) {
        let place = match self.free.pop() {
            Some(place) => place,
            None => {
                self.places.push(None);
                (self.places.len() - 1) as u32
            }
        };
        self.places[place as usize] = Some(event);
        self.keys.push(Reverse((at, self.next, place)));
        self.next += 1;
    }

    /// Removes the next event.
    pub fn pop(&mut self) -> Option<(Time, E)> {
        self.pop_until(Time(u64::MAX))
    }

    /// Removes the next event, unless it comes after `until`.
    pub fn pop_until(&mut self, until: Time) -> Option<(Time, E)> {
        let key = self.keys.peek_mut().filter(|key| key.0.0 <= until)?;
        let Reverse((at, _, place)) = PeekMut::pop(key);
        self.free.push(place);
        Some((at, self.places[place as usize].take().expect("a key has its event")))
    }

    pub fn len(&self) -> usize {
        self.keys.len()
    }

    pub fn is_empty(&self) -> bool {
        self.keys.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn events_come_by_time_and_then_as_scheduled(times in prop::collection::vec(0u64..20, 0..200), drain in 0usize..200) {
            let mut queue = EventQueue::default();
            let mut naive: Vec<(u64, usize)> = Vec::new();
            for (number, time) in times.iter().enumerate() {
                queue.push(Time(*time), number);
                naive.push((*time, number));
                if number == drain {
                    naive.sort();
                    let (time, number) = naive.remove(0);
                    prop_assert_eq!(queue.pop(), Some((Time(time), number)));
                }
            }
            naive.sort();
            let rest: Vec<_> = std::iter::from_fn(|| queue.pop()).map(|(time, number)| (time.0, number)).collect();
            prop_assert_eq!(rest, naive);
        }
    }
}
