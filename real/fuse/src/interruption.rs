//! Tells a request that its program was interrupted by a signal, or is ending. Whoever was interrupted waits for the answer all the same:
//! the request ends soon, with EINTR if nothing has happened. Whoever is ending needs no answer.

use futures_util::task::AtomicWaker;
use std::future::poll_fn;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Poll;

/// What has happened to the program of a request.
#[derive(Clone, Debug, Default)]
pub struct Interruption(Arc<State>);

#[derive(Debug, Default)]
struct State {
    is_interrupted: AtomicBool,
    is_ending: AtomicBool,
    has_waited_enough: AtomicBool,
    waker: AtomicWaker,
}

impl Interruption {
    /// Waits until the program is interrupted or ending. Only one task may wait for either.
    pub async fn wait(&self) {
        self.wait_for(&self.0.is_interrupted).await;
    }

    /// Waits until the program is ending.
    pub async fn ending(&self) {
        self.wait_for(&self.0.is_ending).await;
    }

    async fn wait_for(&self, what: &AtomicBool) {
        poll_fn(|cx| {
            self.0.waker.register(cx.waker());
            if what.load(Ordering::SeqCst) { Poll::Ready(()) } else { Poll::Pending }
        })
        .await;
    }

    pub(crate) fn interrupt(&self) {
        self.0.is_interrupted.store(true, Ordering::SeqCst);
        self.0.waker.wake();
    }

    /// The program is ending, or has waited for so long that it gets an error (`has_waited`), and is as good as ended for the request.
    pub(crate) fn end(&self, has_waited: bool) {
        self.0.has_waited_enough.store(has_waited, Ordering::SeqCst);
        self.0.is_ending.store(true, Ordering::SeqCst);
        self.interrupt();
    }

    pub(crate) fn has_waited_enough(&self) -> bool {
        self.0.has_waited_enough.load(Ordering::SeqCst)
    }

    pub(crate) fn is_interrupted(&self) -> bool {
        self.0.is_interrupted.load(Ordering::SeqCst)
    }

    pub(crate) fn is_ending(&self) -> bool {
        self.0.is_ending.load(Ordering::SeqCst)
    }
}
