//! What a client may hold of the server's memory, and how long it may take to read replies or to send the rest of a request.
//!
//! Its receive buffer, its requests and its replies are charged to the process's memory budget. A client that holds too much waits: the
//! server reads nothing more from it until its requests have ended, or others hold less.

use crate::server::Settings;
use braid_shell::{Account, Charge};
use std::pin::Pin;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::task::Context;
use std::time::{Duration, Instant};
use tokio::time::Sleep;

/// How often a client is checked of whom something is awaited.
const CHECK_EVERY: Duration = Duration::from_secs(1);
/// How often a client that waits for memory is checked.
const THROTTLE_PAUSE: Duration = Duration::from_millis(20);
/// The slowest client that is served, in bytes per second: a request with more data may take the more time, and replies are read no slower.
const RATE_MIN: usize = 64 << 10;

/// Why a client is disconnected.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum TooSlow {
    #[error("the client has read none of its replies for {seconds} s, or too slowly")]
    Reads { seconds: u64 },
    #[error("the client did not send the rest of a request in time")]
    Sends,
}

/// What others see of a client.
#[derive(Debug, Default)]
pub(crate) struct Activity {
    has_chosen: AtomicBool,
    /// Since when it has no requests, in milliseconds since the first use of the clock; zero while it has some.
    idle_since: AtomicU64,
}

impl Activity {
    /// Says whether it has chosen an export.
    pub fn set_chosen(&self, has_chosen: bool) {
        self.has_chosen.store(has_chosen, Relaxed);
        self.idle_since.store(millis(), Relaxed);
    }

    pub fn has_chosen(&self) -> bool {
        self.has_chosen.load(Relaxed)
    }

    /// For how long it has had no requests; none if it has some.
    pub fn idle(&self) -> Option<Duration> {
        let since = Some(self.idle_since.load(Relaxed)).filter(|since| *since > 0)?;
        Some(Duration::from_millis(millis().saturating_sub(since)))
    }
}

/// Milliseconds since an arbitrary moment, never zero.
fn millis() -> u64 {
    static FIRST: LazyLock<Instant> = LazyLock::new(Instant::now);
    FIRST.elapsed().as_millis() as u64 + 1
}

/// The state of a client's connection, as far as it matters here.
pub(crate) struct Load {
    /// Bytes of the receive buffer, of requests in flight and of replies that wait.
    pub bytes: usize,
    /// Bytes of the request that has arrived in part; none if the server does not read or waits for no rest.
    pub unfinished: Option<usize>,
    /// True if replies wait to be read.
    pub has_replies: bool,
    pub has_requests: bool,
    /// True if the server reads nothing more for want of memory.
    pub is_throttled: bool,
}

/// The account and the deadlines of one client.
pub(crate) struct Pressure<'a> {
    account: Account,
    charge: Charge,
    activity: &'a Activity,
    stall_timeout: Duration,
    /// The request that is being received: since when, and its length as far as known.
    receiving: Option<(Instant, usize)>,
    /// Since when replies wait that the client does not read, and how much it has read since.
    unread_since: Option<Instant>,
    read: usize,
    tick: Option<Pin<Box<Sleep>>>,
}

impl<'a> Pressure<'a> {
    pub fn new(settings: &Settings, activity: &'a Activity) -> Pressure<'a> {
        let account = Account::new(settings.budget);
        let charge = account.charge(0);
        let stall_timeout = settings.stall_timeout;
        Pressure { account, charge, activity, stall_timeout, receiving: None, unread_since: None, read: 0, tick: None }
    }

    /// True if the client may hold so many bytes more.
    pub fn has_room_for(&self, bytes: usize) -> bool {
        self.account.has_room_for(bytes)
    }

    /// Notes how much the client holds now.
    pub fn charge(&mut self, bytes: usize) {
        self.charge.resize(bytes);
    }

    /// The client has sent the whole of a request.
    pub fn has_sent(&mut self) {
        self.receiving = None;
    }

    /// The client has read so many bytes of its replies.
    pub fn has_read(&mut self, bytes: usize) {
        self.read += bytes;
        if self.read >= RATE_MIN * self.stall_timeout.as_secs() as usize {
            (self.unread_since, self.read) = (None, 0);
        }
    }

    /// To be called when nothing more can be done now; `cx` is woken when it is to be called again. Returns true once in a while, if the
    /// client should be polled again.
    pub fn poll(&mut self, cx: &mut Context<'_>, load: &Load) -> Result<bool, TooSlow> {
        self.charge.resize(load.bytes);
        let is_idle = !load.has_requests && !load.has_replies;
        let since = self.activity.idle_since.load(Relaxed);
        if is_idle != (since != 0) {
            self.activity.idle_since.store(if is_idle { millis() } else { 0 }, Relaxed);
        }
        if load.bytes == 0 {
            (self.receiving, self.unread_since, self.tick) = (None, None, None);
            return Ok(false);
        }
        let now = Instant::now();
        self.receiving = load.unfinished.map(|bytes| {
            let (since, length) = self.receiving.unwrap_or((now, bytes));
            (since, length.max(bytes))
        });
        self.unread_since = load.has_replies.then(|| self.unread_since.unwrap_or(now));
        if !load.has_replies {
            self.read = 0;
        }
        if self.unread_since.is_some_and(|since| now.duration_since(since) >= self.stall_timeout) {
            return Err(TooSlow::Reads { seconds: self.stall_timeout.as_secs() });
        }
        let patience = |bytes: usize| self.stall_timeout + Duration::from_secs((bytes / RATE_MIN) as u64);
        if self.receiving.is_some_and(|(since, bytes)| now.duration_since(since) >= patience(bytes)) {
            return Err(TooSlow::Sends);
        }
        let pause = if load.is_throttled { THROTTLE_PAUSE } else { CHECK_EVERY.min(self.stall_timeout) };
        let tick = self.tick.get_or_insert_with(|| Box::pin(tokio::time::sleep(pause)));
        if tick.as_mut().poll(cx).is_pending() {
            return Ok(false);
        }
        self.tick = None;
        Ok(true)
    }
}
