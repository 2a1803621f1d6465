//! Short waits for the papers' back-offs of some tens of microseconds. The timers of the runtime have a resolution of milliseconds; a
//! thread that sleeps is more precise.

use std::collections::BTreeMap;
use std::io;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::time::{Duration, Instant};
use tokio::sync::oneshot;

/// A thread that wakes waiting tasks. Clones share the thread, which ends with the last of them.
#[derive(Clone)]
pub struct Alarm(Sender<Wake>);

/// A request to be woken.
struct Wake {
    at: Instant,
    wake: oneshot::Sender<()>,
}

impl Alarm {
    /// Starts the thread.
    pub fn start() -> io::Result<Alarm> {
        let (wishes, heard) = mpsc::channel();
        std::thread::Builder::new().name("braid-alarm".to_string()).spawn(move || wake(&heard))?;
        Ok(Alarm(wishes))
    }

    pub async fn wait(&self, span: Duration) {
        let (wake, woken) = oneshot::channel();
        if self.0.send(Wake { at: Instant::now() + span, wake }).is_ok() {
            let _ = woken.await;
        }
    }
}

/// Wakes tasks in the order of their deadlines, and of their requests if deadlines are equal.
fn wake(heard: &Receiver<Wake>) {
    let (mut waiting, mut count): (BTreeMap<(Instant, u64), oneshot::Sender<()>>, u64) = (BTreeMap::new(), 0);
    loop {
        let now = Instant::now();
        while let Some(next) = waiting.first_entry().filter(|next| next.key().0 <= now) {
            let wake = next.remove();
            // The waiting task may have been dropped.
            let _ = wake.send(());
        }
        let next = waiting.first_key_value().map(|((at, _), _)| at.saturating_duration_since(now));
        let wish = match next {
            Some(span) => heard.recv_timeout(span),
            None => heard.recv().map_err(|_| RecvTimeoutError::Disconnected),
        };
        match wish {
            Ok(Wake { at, wake }) => {
                count += 1;
                waiting.insert((at, count), wake);
            }
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn waiters_are_woken_after_their_time_the_earliest_first() {
        let alarm = Alarm::start().expect("a thread can be started");
        let (begun, [short, long]) = (Instant::now(), [300, 3_000].map(Duration::from_micros));
        let mut woken = Vec::new();
        tokio::join!(alarm.wait(long), async {
            alarm.wait(short).await;
            woken.push(begun.elapsed());
        });
        assert!(begun.elapsed() >= long && woken[0] >= short, "{woken:?}");
        alarm.wait(Duration::ZERO).await;
    }
}
