//! Tells a request that its program was interrupted, by a signal. The program waits for the answer all the same: the request ends soon,
//! with EINTR if nothing has happened.

use futures_util::task::AtomicWaker;
use std::future::poll_fn;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Poll;

/// Whether a request was interrupted.
#[derive(Clone, Debug, Default)]
pub struct Interruption(Arc<State>);

#[derive(Debug, Default)]
struct State {
    is_interrupted: AtomicBool,
    waker: AtomicWaker,
}

impl Interruption {
    /// Waits until the request is interrupted. Only one task may wait.
    pub async fn wait(&self) {
        poll_fn(|cx| {
            self.0.waker.register(cx.waker());
            if self.0.is_interrupted.load(Ordering::SeqCst) { Poll::Ready(()) } else { Poll::Pending }
        })
        .await;
    }

    pub(crate) fn interrupt(&self) {
        self.0.is_interrupted.store(true, Ordering::SeqCst);
        self.0.waker.wake();
    }
}
