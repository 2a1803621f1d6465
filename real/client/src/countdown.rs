//! One deadline for a call that makes several requests.

use crate::error::Error;
use std::time::{Duration, Instant};

/// A deadline that counts from when it is created.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Countdown {
    begun: Instant,
    whole: Duration,
}

impl Countdown {
    pub fn new(whole: Duration) -> Countdown {
        Countdown { begun: Instant::now(), whole }
    }

    /// Makes a request with the remaining time. A time-out reports the time since the call began.
    pub async fn part<T, F>(&self, ask: impl FnOnce(Duration) -> F) -> Result<T, Error>
    where
        F: Future<Output = Result<T, Error>>,
    {
        let left = self.whole.saturating_sub(self.begun.elapsed());
        if left.is_zero() {
            return Err(self.over());
        }
        match ask(left).await {
            Err(Error::TimedOut { .. }) => Err(self.over()),
            outcome => outcome,
        }
    }

    fn over(&self) -> Error {
        Error::TimedOut { waited: self.begun.elapsed() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wait;

    #[test]
    fn each_part_has_the_time_that_those_before_it_left() {
        let whole = Duration::from_secs(3600);
        let countdown = Countdown { begun: Instant::now() - Duration::from_secs(600), whole };
        let left = wait(countdown.part(|left| async move { Ok(left) })).expect("there is time left");
        assert!(left <= Duration::from_secs(3000) && left > Duration::from_secs(2900), "{left:?}");
    }

    #[test]
    fn when_nothing_is_left_nothing_is_asked() {
        let countdown = Countdown::new(Duration::ZERO);
        let outcome: Result<(), Error> = wait(countdown.part(|_| async { panic!("no request is made") }));
        assert!(matches!(outcome, Err(Error::TimedOut { .. })));
    }
}
