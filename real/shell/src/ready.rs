//! A ready list: which of many connections have something to do. The driver polls these and no others, so that a connection costs
//! nothing while it is silent.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Wake, Waker};

/// The connections that are ready, by their numbers.
pub(crate) struct ReadyList(Arc<Shared>);

struct Shared(Mutex<State>);

struct State {
    ready: Vec<Arc<Notice>>,
    /// The waker of the task that polls them.
    task: Waker,
}

/// A connection in a ready list. Its waker puts it there.
pub(crate) struct Notice {
    pub number: u64,
    is_queued: AtomicBool,
    list: Arc<Shared>,
}

impl Default for ReadyList {
    fn default() -> ReadyList {
        ReadyList(Arc::new(Shared(Mutex::new(State { ready: Vec::new(), task: Waker::noop().clone() }))))
    }
}

impl ReadyList {
    /// A connection of this number, which is not ready yet.
    pub fn add(&self, number: u64) -> Arc<Notice> {
        Arc::new(Notice { number, is_queued: AtomicBool::new(false), list: self.0.clone() })
    }

    /// Appends the connections that are ready to `taken`. They are ready again when they are woken after this. If there are none, `cx` is
    /// woken when there are some.
    pub fn take(&self, cx: &Context<'_>, taken: &mut Vec<Arc<Notice>>) {
        let mut state = self.0.lock();
        if !state.task.will_wake(cx.waker()) {
            state.task.clone_from(cx.waker());
        }
        for notice in &state.ready {
            notice.is_queued.store(false, Ordering::Release);
        }
        taken.append(&mut state.ready);
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Notice {
    /// Puts the connection into the list, without waking the task: for the task itself, which looks at the list soon.
    pub fn queue(self: &Arc<Self>) {
        if !self.is_queued.swap(true, Ordering::AcqRel) {
            self.list.lock().ready.push(self.clone());
        }
    }
}

impl Wake for Notice {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        if self.is_queued.swap(true, Ordering::AcqRel) {
            return;
        }
        let mut state = self.list.lock();
        state.ready.push(self.clone());
        let task = state.task.clone();
        drop(state);
        task.wake();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn taken(list: &ReadyList) -> Vec<u64> {
        let mut taken = Vec::new();
        list.take(&Context::from_waker(Waker::noop()), &mut taken);
        taken.into_iter().map(|notice| notice.number).collect()
    }

    #[test]
    fn woken_tasks_are_taken_once_in_the_order_of_waking() {
        let list = ReadyList::default();
        let notices: Vec<_> = (0..5).map(|number| list.add(number)).collect();
        assert!(taken(&list).is_empty());
        for number in [3, 1, 3, 3] {
            Waker::from(notices[number].clone()).wake();
        }
        assert_eq!(taken(&list), [3, 1]);
        assert!(taken(&list).is_empty());
        notices[3].wake_by_ref();
        assert_eq!(taken(&list), [3]);
    }
}
