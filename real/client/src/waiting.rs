//! Running futures on threads without an executor.

use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::Thread;

/// Runs a future to its end on this thread, which blocks meanwhile. Not for use within an executor, which would be blocked as well.
///
/// ```
/// assert_eq!(braid_client::wait(async { 6 * 7 }), 42);
/// ```
pub fn wait<T>(future: impl Future<Output = T>) -> T {
    let mut future = pin!(future);
    let waker = Waker::from(Arc::new(Sleeper(std::thread::current())));
    let mut context = Context::from_waker(&waker);
    loop {
        if let Poll::Ready(output) = future.as_mut().poll(&mut context) {
            return output;
        }
        // A wake-up that came meanwhile makes this return at once.
        std::thread::park();
    }
}

struct Sleeper(Thread);

impl Wake for Sleeper {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

#[cfg(test)]
mod tests {
    use super::wait;

    #[test]
    fn a_waiter_is_woken_from_another_thread() {
        let (tell, told) = tokio::sync::oneshot::channel();
        let teller = std::thread::spawn(move || tell.send(7));
        assert_eq!(wait(told), Ok(7));
        teller.join().expect("it ends").expect("the future was woken");
    }
}
