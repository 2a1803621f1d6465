//! A future with a waker of its own. A future inside a task is usually polled whenever the task is woken, for whatever reason. A task that
//! is woken for every message should not poll each time what rarely has anything to do.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};

/// Polls `inner` only when `inner` itself was woken.
pub struct OwnWaker<F> {
    inner: F,
    notice: Arc<Notice>,
    /// Wakes the notice.
    waker: Waker,
}

struct Notice {
    woken: AtomicBool,
    /// The waker of the task.
    task: Mutex<Waker>,
}

impl<F: Future + Unpin> OwnWaker<F> {
    pub fn new(inner: F) -> OwnWaker<F> {
        let notice = Arc::new(Notice { woken: AtomicBool::new(true), task: Mutex::new(Waker::noop().clone()) });
        OwnWaker { inner, waker: notice.clone().into(), notice }
    }
}

impl<F: Future + Unpin> Future for OwnWaker<F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        {
            let mut task = self.notice.task.lock().expect("no holder panics");
            if !task.will_wake(cx.waker()) {
                task.clone_from(cx.waker());
            }
        }
        // After the waker is stored: whoever wakes from here on wakes this task.
        if !self.notice.woken.swap(false, Ordering::AcqRel) {
            return Poll::Pending;
        }
        let OwnWaker { inner, waker, .. } = &mut *self;
        Pin::new(inner).poll(&mut Context::from_waker(waker))
    }
}

impl Wake for Notice {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.woken.store(true, Ordering::Release);
        self.task.lock().expect("no holder panics").wake_by_ref();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::future::poll_fn;
    use std::sync::atomic::AtomicUsize;

    #[tokio::test]
    async fn the_future_is_polled_when_it_is_woken_and_at_no_other_time() {
        let (polls, inner_waker) = (AtomicUsize::new(0), Mutex::new(None));
        let inner = poll_fn(|cx| {
            *inner_waker.lock().unwrap() = Some(cx.waker().clone());
            match polls.fetch_add(1, Ordering::Relaxed) {
                0 | 1 => Poll::Pending,
                _ => Poll::Ready(7),
            }
        });
        let mut future = OwnWaker::new(inner);
        let wake = || inner_waker.lock().unwrap().take().unwrap().wake();
        let mut cx = Context::from_waker(Waker::noop());
        for _ in 0..3 {
            assert!(Pin::new(&mut future).poll(&mut cx).is_pending());
        }
        assert_eq!(polls.load(Ordering::Relaxed), 1);
        wake();
        assert!(Pin::new(&mut future).poll(&mut cx).is_pending());
        assert_eq!(polls.load(Ordering::Relaxed), 2);
        // The task that waits is woken, too.
        let waking = async {
            tokio::task::yield_now().await;
            wake();
        };
        let (found, ()) = tokio::join!(&mut future, waking);
        assert_eq!((found, polls.load(Ordering::Relaxed)), (7, 3));
    }
}
