//! Waits as short as those of the papers' back-offs, some tens of microseconds: the timers of the runtime know milliseconds only, a
//! thread that sleeps does better.

use std::collections::BTreeMap;
use std::io;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::time::{Duration, Instant};
use tokio::sync::oneshot;

/// Wakes whoever waits. Clones are of the same; its thread ends with the last.
#[derive(Clone)]
pub struct Alarm(Sender<Wake>);

/// Somebody wants to be woken.
struct Wake {
    at: Instant,
    wake: oneshot::Sender<()>,
}

impl Alarm {
    /// Starts its thread.
    pub fn start() -> io::Result<Alarm> {
        let (wishes, heard) = mpsc::channel();
        std::thread::Builder::new().name("braid-alarm".to_string()).spawn(move || wake(&heard))?;
        Ok(Alarm(wishes))
    }

    /// Waits so long.
    pub async fn wait(&self, span: Duration) {
        let (wake, woken) = oneshot::channel();
        if self.0.send(Wake { at: Instant::now() + span, wake }).is_ok() {
            let _ = woken.await;
        }
    }
}

/// Wakes the first first, and of two with the same time the one who asked first.
fn wake(heard: &Receiver<Wake>) {
    let (mut waiting, mut count): (BTreeMap<(Instant, u64), oneshot::Sender<()>>, u64) = (BTreeMap::new(), 0);
    loop {
        let now = Instant::now();
        while let Some(next) = waiting.first_entry().filter(|next| next.key().0 <= now) {
            let wake = next.remove();
            // He may have given up.
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
    async fn whoever_waits_is_woken_after_his_time_the_first_first() {
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
